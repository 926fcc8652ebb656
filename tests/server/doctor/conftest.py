"""Fixtures: a healthy host of files, and the simulator of CANN 9.x in this process."""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.npu import need_compiler
from tests.simulator.build import build
from tests.simulator.control import Simulator
from tests.simulator.tree import Generation, Tree

from npucall.declare.prepare import Prepared
from npucall.products import Product
from npucall_server import doctor
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.operators import OpApi
from npucall_server.doctor import copies, kinds, planning, trial
from npucall_server.doctor.device import examine
from npucall_server.doctor.finding import Finding
from npucall_server.npu_settings import AscendPaths

from .hosts import Host, make_host

SECRET = "what nobody else may read"
FEW = ("aclnnMatmul", "aclnnSmoothL1Loss", "aclnnThreshold")
"""Operators of which calls are tried where a test is not about which ones are."""
Examined: TypeAlias = Callable[..., list[Finding]]


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


@pytest.fixture(scope="session")
def chosen() -> dict[str, list[kinds.Trial]]:
    """The trials of each product, which take half a second to choose."""
    return {}


@pytest.fixture
def examined(
    simulator: Simulator,
    paths: AscendPaths,
    chosen: dict[str, list[kinds.Trial]],
    monkeypatch: pytest.MonkeyPatch,
) -> Examined:
    """What the doctor says of the NPU: with a few operators, in all steps or in these alone."""

    def few(catalogue: HostCatalogue, libraries: OpApi, product: Product) -> list[kinds.Trial]:
        if product.name not in chosen:
            chosen[product.name] = kinds.trials(catalogue, libraries, product)
        return [each for each in chosen[product.name] if each.call.operator.name in FEW]

    def calls(*given: Any) -> list[Prepared]:
        return [call for call in kinds.of_every_operator(*given) if call.operator.name in FEW]

    def found(*steps: Any, number: int = 0, paths: AscendPaths = paths) -> list[Finding]:
        if steps:
            monkeypatch.setattr(trial, "_STEPS", steps)
        return [message for message in examine(number, paths) if isinstance(message, Finding)]

    monkeypatch.setattr(trial, "trials", few)
    monkeypatch.setattr(planning, "of_every_operator", calls)
    return found


def install_simulated(host: Host, toolkit: Generation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the toolkit of a host be the simulator, as the environment says."""
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


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("8.1", False), marks=pytest.mark.long),
        pytest.param(("8.1", True), marks=pytest.mark.more),
        pytest.param(("8.3", False), marks=pytest.mark.more),
        pytest.param(("8.3", True), marks=pytest.mark.long),
        ("9.x", True),
        pytest.param(("9.x", False), marks=pytest.mark.more),
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
