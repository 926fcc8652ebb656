"""All tests of this folder need network namespaces; where there are none they say what lacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .bench import bench as bench_of_hosts
from .hosts import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .bench import Bench


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [each for each in items if Path(__file__).parent in each.path.parents]
    for each in here:
        each.add_marker(pytest.mark.pool)


@pytest.fixture(scope="session", autouse=True)
def _hosts_can_be_made() -> None:
    if reason := missing("iproute2 iptables", "iptables"):
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_of_hosts(tmp_path_factory.mktemp("bench")) as made:
        yield made
