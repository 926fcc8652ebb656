"""Hosts made of files, for the checks that look at /dev, /etc and /usr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from npucall_server.doctor.finding import Finding, Verdict
from npucall_server.npu_settings import AscendPaths

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    for folder in ("dev", f"{DRIVER}/lib64/common", f"{DRIVER}/lib64/driver", f"{TOOLKIT}/opp"):
        (root / folder).mkdir(parents=True)
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
