"""Fixtures: the CANN device in this process, on the simulator of CANN 9.x."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.simulator.build import DEFAULT_ROOT, build
from tests.simulator.control import Simulator

from npucall_server.devices.cann import device as device_module
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import DeviceContext, Libraries, open_libraries
from npucall_server.npu_settings import AscendPaths

from .opened import Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulator.tree import Tree

ASAN = os.environ.get("NPUCALL_SIM_ASAN") == "1"


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The built simulator; with the address sanitizer where NPUCALL_SIM_ASAN is 1."""
    return build(DEFAULT_ROOT.with_name("simulator-asan"), asan=True) if ASAN else build()


@pytest.fixture(scope="session")
def loaded(tree: Tree) -> Simulator:
    """The simulator, loaded by its path; what opens it by its bare name gets the same one."""
    return Simulator.open(tree.generation("9.x").lib64)


@pytest.fixture(scope="session")
def paths(tree: Tree) -> AscendPaths:
    """Where CANN 9.x is, with a custom package."""
    generation = tree.generation("9.x")
    return AscendPaths(generation.home, generation.opp, (tree.custom,))


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
) -> Iterator[Callable[..., Opened]]:
    """Opens the device with these settings, one lane if nothing else is said; closed at the end."""
    monkeypatch.setattr(device_module, "HostCatalogue", catalogue_of)
    with ExitStack() as closing:

        def opened(**settings: object) -> Opened:
            return closing.enter_context(Opened(simulator, paths, **settings))

        yield opened


@pytest.fixture
def device(open_device: Callable[..., Opened]) -> Opened:
    """The device with one lane."""
    return open_device()


@pytest.fixture
def libraries(simulator: Simulator, paths: AscendPaths) -> Libraries:
    """CANN's two libraries."""
    return open_libraries(paths)


@pytest.fixture
def context(libraries: Libraries) -> Iterator[DeviceContext]:
    """Device 0, set in this thread."""
    with DeviceContext(libraries, 0, deterministic=False) as context:
        yield context


@cache
def _catalogue(paths: AscendPaths) -> HostCatalogue:
    return HostCatalogue(OpApi(paths, failure=RuntimeError, forget=lambda: None), paths)


def catalogue_of(libraries: OpApi, paths: AscendPaths) -> HostCatalogue:
    """What a host has does not change, and devices are opened often."""
    return _catalogue(paths)
