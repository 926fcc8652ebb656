"""Fixtures: the CANN device in this process, on the simulator of CANN 9.x."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial

import pytest
from tests.simulator.build import DEFAULT_ROOT, build
from tests.simulator.control import Simulator
from tests.simulator.tree import Tree

from npucall import memory
from npucall_server.devices.cann import device as device_module
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import DeviceContext, Libraries, open_libraries
from npucall_server.settings.npu import AscendPaths

from .calls import WAYS
from .opened import Open, Opened

ASAN = os.environ.get("NPUCALL_SIM_ASAN") == "1"


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The built simulator; with the address sanitizer where NPUCALL_SIM_ASAN is 1."""
    return build(DEFAULT_ROOT.with_name("simulator-asan"), asan=True) if ASAN else build()


@pytest.fixture(scope="session")
def paths(tree: Tree) -> AscendPaths:
    """Where CANN 9.x is, with a custom package."""
    generation = tree.generation("9.x")
    return AscendPaths(generation.home, generation.opp, (tree.custom,))


@pytest.fixture(scope="session")
def loaded(tree: Tree, paths: AscendPaths) -> Simulator:
    """The simulator, loaded by its path; what opens it by its bare name gets the same one.

    Custom packages need both libraries of CANN loaded before them, as in a server.
    """
    simulator = Simulator.open(tree.generation("9.x").lib64)
    open_libraries(paths)
    return simulator


@pytest.fixture
def simulator(
    loaded: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    """A fresh simulator. At the end nothing may be left open, and nothing undefined have happened.

    A test that leaves a device broken calls ``reset``, as the process would end.
    """
    monkeypatch.setenv("ASCEND_OPP_PATH", str(paths.opp))
    monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", "0")  # a device is closed often
    loaded.reset()
    yield loaded
    left = loaded.violations(), loaded.live_objects()
    loaded.reset()
    assert left == ([], {})


@pytest.fixture
def unrun(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what becomes of executors that never run, before a device is opened."""

    def choose(kind: str) -> None:
        monkeypatch.setenv("NPUCALL_SIM_UNRUN", kind)
        simulator.reset()

    return choose


@pytest.fixture
def open_device(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens the device with these settings, one lane if nothing else is said; closed at the end."""
    monkeypatch.setattr(device_module, "HostCatalogue", catalogue_of)
    with ExitStack() as closing:
        yield lambda **settings: closing.enter_context(Opened(simulator, paths, **settings))


@pytest.fixture
def device(open_device: Open) -> Opened:
    """The device with one lane."""
    return open_device()


@pytest.fixture(params=WAYS)
def any_way(request: pytest.FixtureRequest, open_device: Open) -> Opened:
    """However tensors are copied."""
    return open_device(**WAYS[request.param])


@pytest.fixture
def as_in_production() -> Iterator[None]:
    """The debug mode would fill the memory of each call anew."""
    memory.poison(False)
    yield
    memory.poison()


@pytest.fixture
def libraries(simulator: Simulator, paths: AscendPaths) -> Libraries:
    """CANN's two libraries."""
    return open_libraries(paths)


@pytest.fixture
def context(libraries: Libraries) -> Iterator[DeviceContext]:
    """Device 0, set in this thread."""
    with DeviceContext(libraries, 0, deterministic=False) as context:
        yield context


def op_api(paths: AscendPaths) -> OpApi:
    """The libraries of operators, for tests that call none."""
    return OpApi(paths, failure=RuntimeError, forget=partial(bool))


@cache
def _catalogue(paths: AscendPaths) -> HostCatalogue:
    return HostCatalogue(op_api(paths), paths)


def catalogue_of(libraries: OpApi, paths: AscendPaths) -> HostCatalogue:
    """What a host has does not change, and devices are opened often."""
    return _catalogue(paths)
