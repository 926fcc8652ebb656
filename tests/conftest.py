"""Fixtures of all tests: ``client`` runs a test on every device that is there."""

from __future__ import annotations

import gc
import os
from collections import Counter
from importlib.util import find_spec
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import pytest
from tests import on_a_loop

import npucall_client
from npucall import memory
from npucall_client.settings import target_of_environment

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

# Memory that nobody wrote shows in every test, in this process and in servers that tests start.
os.environ["NPUCALL_POISON"] = "1"
os.environ["NPUCALL_LOG_CALLS"] = "all"  # tests read what servers say of calls
memory.poison()

pytest_plugins = ["npucall_client.testing", "tests.alone", "tests.summary"]

# The client's tests also run where no server is installed.
HAS_SERVER = find_spec("npucall_server") is not None
DEVICES = ["local"]
if HAS_SERVER or target_of_environment() is not None:
    DEVICES.append("server")
if HAS_SERVER:
    DEVICES.append("npu")
ASYNCIO = "asyncio"
"""A client for asyncio of the CPU server, where the client itself is tried."""
_MANY_TESTS = 100
SOC = "Ascend910B1"
"""What the CPU reference stands for, and the simulator too."""


@pytest.fixture(params=DEVICES, scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of this process, of a CPU server over a socket, of a server on a simulated NPU."""
    if request.param == "npu":
        from tests.npu import client_of_any_variant

        servers = (request.getfixturevalue(name) for name in ("npu_server", "community_npu_server"))
        with client_of_any_variant(*(server.target for server in servers)) as connected:
            yield connected
        return
    target = "local:" if request.param == "local" else request.getfixturevalue("npucall_server")
    connect = on_a_loop.connect if request.param == ASYNCIO else npucall_client.connect
    with connect(target) as connected:
        yield connected


_THREADS = pytest.param("threads", id=pytest.HIDDEN_PARAM)


@pytest.fixture(params=[_THREADS, ASYNCIO])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the client's senders: ``npucall_client.connect`` opens a client over it."""
    return _connects_by(request, monkeypatch)


@pytest.fixture(params=[_THREADS, pytest.param(ASYNCIO, marks=pytest.mark.long)])
def sender_in_sweeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for tests that take long: asyncio's by make test-long."""
    return _connects_by(request, monkeypatch)


def _connects_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == ASYNCIO:
        monkeypatch.setattr(npucall_client, "connect", on_a_loop.connect)
    return name


@pytest.fixture(scope="session")
def npu_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on a simulated NPU with CANN 9.x, whose variants are builtin."""
    from tests.npu import spotless_npu_server

    with spotless_npu_server(tmp_path_factory.mktemp("npu"), NPUCALL_SIM_SOC=SOC) as server:
        yield server


@pytest.fixture(scope="session")
def community_npu_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same with a custom package, which makes them community."""
    from tests.npu import spotless_npu_server

    folder = tmp_path_factory.mktemp("npu")
    with spotless_npu_server(folder, custom=True, NPUCALL_SIM_SOC=SOC) as server:
        yield server


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of tests of PyTorch import it, which takes seconds: not where none of them is run."""
    unwanted = "not torch" in config.getoption("markexpr")
    return (unwanted and "torch" in collection_path.name) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.freeze()  # thousands of tests, which stay
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[Any] | None:
    """Tests of a mark that the run leaves out become no items, unless one is named."""
    config = collector.config
    named = any("::" in argument for argument in config.args)
    marks = () if named or not isfunction(obj) else getattr(obj, "pytestmark", ())
    out = any(f"not {mark.name}" in config.getoption("markexpr").split(" and ") for mark in marks)
    return [] if out else None


@pytest.fixture(scope="module", autouse=True)
def _what_lasts_is_looked_at_once() -> None:
    """Thousands of tests stay in memory: the collector need not look at them again and again.

    Tests of what is left behind begin with it, and each took over a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is left behind stays: nothing that is asserted needs the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every second worker collects backwards: in a fresh clone each compiles what others do not."""
    report = yield
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if isinstance(collector, pytest.Directory) and int(number) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around anything that orders or shuffles them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """All workers have the same order. Of random files those with very many tests are the first.

    One of them takes a tenth of ``make test``: as the last it would be alone on one core.
    """
    items.sort(key=lambda item: item.path)
    yield
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: counts[item.path] < _MANY_TESTS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With ``--dist loadfile`` the files of containers stay together too: they share one podman.

    Each full run of the suite may go elsewhere: it takes minutes, and shares nothing.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if "_in_full[" in nodeid:
                return nodeid
            file = super()._split_scope(nodeid)
            return file.rpartition("/")[0] if "/containers/" in file else file

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """What is skipped for want of PyTorch has to be marked, so that make test-all runs it."""
    report = yield
    unmarked = item.get_closest_marker("torch") is None
    if report.skipped and unmarked and "torch" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"expected the mark torch, found none: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _the_npus_server_lives(request: pytest.FixtureRequest) -> None:
    """Tests of the NPU's client fail at once when its server has ended."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("client") == "npu":
        server: ServerProcess = request.getfixturevalue("npu_server")
        assert server.process.poll() is None, server.log.read_text()[-2000:]
