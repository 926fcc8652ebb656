"""Fixtures: a healthy host of files, and the simulator of CANN 9.x in this process."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.npu import need_compiler
from tests.simulator.build import build
from tests.simulator.control import Simulator
from tests.simulator.tree import Generation, Tree

from npucall_server.commands.doctor import kinds, promises, trial
from npucall_server.commands.doctor.device import examine
from npucall_server.commands.doctor.finding import Finding, Verdict
from npucall_server.settings.npu import AscendPaths

FEW = ("aclnnMatmul", "aclnnSmoothL1Loss", "aclnnHardtanh")
"""Operators of which calls are tried where a test is not about which ones are."""
Examined: TypeAlias = Callable[..., list[Finding]]
DRIVER = "usr/local/Ascend/driver"
TOOLKIT = "usr/local/Ascend/cann"
NODES = ("davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc")


class Host(NamedTuple):
    """A healthy host: driver, toolkit and two devices, below ``root``."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / TOOLKIT

    @property
    def paths(self) -> AscendPaths:
        return AscendPaths(self.home, self.home / "opp", ())

    @property
    def environment(self) -> dict[str, str]:
        """What set_env.sh exports."""
        driver = self.root / DRIVER / "lib64"
        folders = (self.home / "lib64", driver, driver / "common", driver / "driver")
        return {
            "ASCEND_HOME_PATH": str(self.home),
            "ASCEND_OPP_PATH": str(self.home / "opp"),
            "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        }


def make_host(root: Path) -> Host:
    """As CANN's installer leaves it from 8.5.0 on: ``cann`` is a link to the release's folder."""
    installed = root / f"{TOOLKIT}-8.5.0"
    for folder in ("dev", f"{DRIVER}/lib64/common", f"{DRIVER}/lib64/driver"):
        (root / folder).mkdir(parents=True)
    (installed / "opp").mkdir(parents=True)
    (root / TOOLKIT).symlink_to(installed.name)
    for node in NODES:
        (root / "dev" / node).touch()
    (root / DRIVER / "lib64/driver/libascend_hal.so").touch()
    (root / DRIVER / "version.info").write_text("Version=25.5.0\nfirmware=7.8\n")
    (root / TOOLKIT / "set_env.sh").touch()
    (root / TOOLKIT / "lib64").mkdir()
    return Host(root)


def said(findings: Iterable[Finding], verdict: Verdict) -> list[str]:
    """What was found, of one verdict."""
    return [finding.found for finding in findings if finding.verdict is verdict]


def faults(findings: Iterable[Finding]) -> list[str]:
    return said(findings, Verdict.FAULT)


def warnings(findings: Iterable[Finding]) -> list[str]:
    return said(findings, Verdict.WARNING)


def not_ok(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def todo(findings: Iterable[Finding]) -> str:
    """What to do about all that is not well."""
    return "\n".join(finding.todo for finding in findings if finding.todo)


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
    monkeypatch.setattr(promises, "ELEMENTS", 1 << 18)  # still more than its staging limit
    simulator = Simulator.open(toolkit.lib64)
    simulator.reset()
    yield simulator
    simulator.reset()


@pytest.fixture
def examined(simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch) -> Examined:
    """What the doctor says of the NPU: with a few operators, in all steps or in these alone."""
    here = kinds._here

    def found(*steps: Any, number: int = 0, paths: AscendPaths = paths) -> list[Finding]:
        if steps:
            monkeypatch.setattr(trial, "_STEPS", steps)
        return [message for message in examine(number, paths) if isinstance(message, Finding)]

    monkeypatch.setattr(kinds, "_here", lambda host: [o for o in here(host) if o.name in FEW])
    return found
