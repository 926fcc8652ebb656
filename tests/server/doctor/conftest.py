"""Fixtures: a healthy host of files, and the simulator of CANN 9.x in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.npu import need_compiler
from tests.simulator.build import build
from tests.simulator.control import Simulator

from npucall_server.npu_settings import AscendPaths

from .hosts import Host, make_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.simulator.tree import Generation, Tree


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_host(tmp_path)


@pytest.fixture(scope="session")
def tree() -> Tree:
    need_compiler()
    return build()


@pytest.fixture(scope="session")
def toolkit(tree: Tree) -> Generation:
    return tree.generation("9.x")


@pytest.fixture
def paths(toolkit: Generation) -> AscendPaths:
    return AscendPaths(toolkit.home, toolkit.opp, ())


@pytest.fixture
def simulator(
    toolkit: Generation, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    """A fresh simulator; what a test leaves open ends with it, as with a process."""
    monkeypatch.setenv("ASCEND_OPP_PATH", str(paths.opp))
    simulator = Simulator.open(toolkit.lib64)
    simulator.reset()
    yield simulator
    simulator.reset()


@pytest.fixture(params=["9.x"])
def simulated_host(
    host: Host, tree: Tree, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Host:
    """A healthy host whose toolkit is the simulator, as the environment says."""
    toolkit = tree.generation(request.param)
    (host.home / "lib64").rmdir()
    (host.home / "lib64").symlink_to(toolkit.lib64)
    (host.home / "include").symlink_to(toolkit.include)
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    return host
