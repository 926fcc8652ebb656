"""Many members and clients, small calls and large ones mixed: all members work, nobody starves.

How evenly the work is shared depends here on which processes the machine lets run;
``tests/client/pool/test_table.py`` judges that in virtual time.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.summary import figures

from .bench import Bench
from .bench import bench as bench_of_hosts

pytestmark = pytest.mark.long

MIB = 2**20
PROCESSES, CLIENTS_EACH = 6, 5


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """24 members."""
    folder = tmp_path_factory.mktemp("many")
    with bench_of_hosts(folder, ports=range(50051, 50059)) as made:
        yield made


@pytest.mark.parametrize("source", ["directory", "static"])
@pytest.mark.parametrize(("megabytes", "enough"), [(1, 1000), (16, 500)])
def test_all_members_work_and_nobody_starves(
    many: Bench, source: str, megabytes: int, enough: int
) -> None:
    sizes = [4096, 4096, 4096, megabytes * MIB]
    flags = ["--clients", f"{CLIENTS_EACH}", "--threads", "1", "--timeout", "300"]
    flags += ["--enough", f"{enough}", "--sizes", *map(str, sizes)]
    with ExitStack() as stack:
        callers = [stack.enter_context(many.calling(source, *flags)) for _ in range(PROCESSES)]
        for each in callers:
            each.wait_until_enough()
        seen = [each.stop() for each in callers]
    for each in seen:
        each.check()
        assert each.fewest > each.right / CLIENTS_EACH / 2
    work = sum((Counter(each.by_server) for each in seen), Counter[str]())
    ratio = max(work.values()) / min(work.values())
    figures(f"{len(work)} members, busiest to idlest {ratio:.2f}")
    assert len(work) == len(many.servers)
