"""All tests of this folder need network namespaces; where there are none they say what lacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .bench import Bench
from .bench import bench as bench_of_hosts
from .hosts import need

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for each in items:
        if each.path.is_relative_to(_HERE):
            each.add_marker(pytest.mark.pool)


@pytest.fixture(scope="session", autouse=True)
def _hosts_can_be_made() -> None:
    need("iproute2 iptables", "iptables")


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_of_hosts(tmp_path_factory.mktemp("bench")) as made:
        yield made
