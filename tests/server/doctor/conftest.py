"""Fixtures: a healthy host of files, and the simulator of CANN 9.x in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.npu import need_compiler
from tests.simulator.build import build
from tests.simulator.control import Simulator

from npucall_server import doctor
from npucall_server.doctor import copies
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
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", "guarded")
    monkeypatch.setattr(copies, "ELEMENTS", 1 << 18)  # still more than its staging limit
    simulator = Simulator.open(toolkit.lib64)
    simulator.reset()
    yield simulator
    simulator.reset()


@pytest.fixture(params=["9.x"])
def simulated_host(
    host: Host, tree: Tree, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Host:
    """A healthy host whose toolkit is the simulator, as the environment says."""
    install_simulated(host, tree.generation(request.param), monkeypatch)
    return host


def install_simulated(host: Host, toolkit: Generation, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.home / "lib64").rmdir()
    (host.home / "lib64").symlink_to(toolkit.lib64)
    (host.home / "include").symlink_to(toolkit.include)
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", "guarded")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)


class Run(NamedTuple):
    """What one run of the doctor left."""

    code: int
    printed: str
    report: str
    custom: bool


SECRET = "what nobody else may read"


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(("8.1", False), marks=pytest.mark.long),
        ("8.1", True),
        pytest.param(("8.3", False), marks=pytest.mark.more),
        pytest.param(("8.3", True), marks=pytest.mark.long),
        ("9.x", False),
        pytest.param(("9.x", True), marks=pytest.mark.long),
    ],
    ids=lambda param: f"{param[0]}{' with a custom package' * param[1]}",
)
def healthy(
    tree: Tree, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """The doctor's run on a healthy host of each release, with and without a custom package."""
    generation, custom = request.param
    folder = tmp_path_factory.mktemp("host")
    host, file = make_host(folder / "root"), folder / "report.txt"
    with pytest.MonkeyPatch.context() as monkeypatch, redirect_stdout(io.StringIO()) as printed:
        install_simulated(host, tree.generation(generation), monkeypatch)
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(tree.custom) if custom else "")
        monkeypatch.setenv("NPUCALL_TOKEN", SECRET)
        code = doctor.run(["--report", str(file)], host.root)
    return Run(code, printed.getvalue(), file.read_text(), custom)
