"""What files tell about the host: device nodes, the driver, custom packages."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from npucall_server.commands.doctor.finding import Finding, fault, ok, warning
from npucall_server.devices.cann.operators import CUSTOM_LIBRARY, load_priority

if TYPE_CHECKING:
    from npucall_server.settings.npu import AscendPaths

_SHARED_NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
_GROUP = "HwHiAiUser"
_GIVE_NODES = (
    "on the host: install the driver, check `npu-smi info`, reboot after an installation; in a "
    "container: start it with --device /dev/davinci0 (each device to use), --device "
    "/dev/davinci_manager, --device /dev/devmm_svm and --device /dev/hisi_hdc"
)


# --- Device nodes ---------------------------------------------------------------------------------


def _usable(node: Path) -> bool:
    return os.access(node, os.R_OK | os.W_OK)


def check_nodes(root: Path, usable: Callable[[Path], bool] = _usable) -> list[Finding]:
    """Whether the driver's nodes are in ``root``/dev, and whether this user may use them."""
    devices = sorted((root / "dev").glob("davinci[0-9]*"))
    nodes = [*devices, *(root / "dev" / name for name in _SHARED_NODES)]
    missing = [] if devices else ["davinci0 (or another number)"]
    missing += [node.name for node in nodes if not node.exists()]
    refused = [
        f"/dev/{node.name} ({_owner(node)})" for node in nodes if node.exists() and not usable(node)
    ]
    findings = []
    if missing:
        findings.append(fault(f"/dev does not have {', '.join(missing)}", _GIVE_NODES))
    if refused:
        findings.append(fault(f"{_self()} may not use {', '.join(refused)}", _JOIN))
    return findings or [ok(f"/dev has {', '.join(node.name for node in nodes)}")]


_JOIN = (
    f"on the host: `usermod -aG {_GROUP} <user>`, then log in again (the systemd unit has "
    f"SupplementaryGroups={_GROUP}); in a container: --group-add $(stat -c %g "
    "/dev/davinci_manager), which is ASCEND_GID for docker-compose.yml"
)


def _owner(node: Path) -> str:
    found = node.stat()
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return f"group {group}, mode {stat.S_IMODE(found.st_mode):04o}"


def _self() -> str:
    try:
        return f"user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"user {os.geteuid()}"


# --- Driver ---------------------------------------------------------------------------------------


def driver_folder(root: Path) -> Path:
    """Where the driver is: as /etc/ascend_install.info says, or in the default folder."""
    name = "Driver_Install_Path_Param="
    try:
        lines = (root / "etc/ascend_install.info").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.removeprefix(name).strip() for line in lines if line.startswith(name)), "")
    return root / (named.lstrip("/") or "usr/local/Ascend") / "driver"


def check_driver(root: Path) -> list[Finding]:
    """Checks the driver's files. A container gets them from the host."""
    folder = driver_folder(root)
    shown = f"/{folder.relative_to(root)}"
    library = next(iter(sorted(folder.glob("lib64/**/libascend_hal.so"))), None)
    if library is None:
        return [
            fault(
                f"there is no libascend_hal.so in {shown}/lib64"
                if folder.is_dir()
                else f"there is no driver in {shown}",
                "on the host: install the driver; in a container: mount the host's, -v "
                f"{shown}/lib64:{shown}/lib64:ro -v {shown}/version.info:{shown}/version.info:ro",
            )
        ]
    return [ok(f"{shown} has libascend_hal.so"), _driver_version(folder / "version.info", shown)]


def _driver_version(file: Path, shown: str) -> Finding:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return warning(
            f"{shown}/version.info cannot be read, so the driver's version is unknown",
            f"in a container mount it: -v {shown}/version.info:{shown}/version.info:ro",
        )
    named = (line.partition("=")[2] for line in lines if line.lower().startswith("version="))
    return ok(f"the driver's version is {next(named, 'not in version.info')}")


# --- Custom packages ------------------------------------------------------------------------------


def check_custom_packages(paths: AscendPaths) -> list[Finding]:
    """Checks the packages that the environment or the operator package's configuration names."""
    findings = [_package(entry, "ASCEND_CUSTOM_OPP_PATH") for entry in paths.custom]
    if paths.opp is not None:
        findings += _vendors(paths.opp / "vendors")
    return findings or [ok("none is installed: operators are CANN's own")]


def _package(folder: Path, named_by: str) -> Finding:
    if (folder / CUSTOM_LIBRARY).is_file():
        return ok(f"{folder} has {CUSTOM_LIBRARY} ({named_by})")
    missing = f"{folder / CUSTOM_LIBRARY}" if folder.is_dir() else f"{folder}"
    return warning(
        f"{named_by} names {folder}, but there is no {missing}: CANN ignores the package",
        "name the folder that holds op_api, or remove the name",
    )


def _vendors(vendors: Path) -> Iterator[Finding]:
    configuration = vendors / "config.ini"
    listed = load_priority(vendors)
    yield from (_package(vendors / name, f"{configuration}") for name in listed)
    for folder in sorted(vendors.glob("*/op_api")):
        if folder.parent.name not in listed:
            yield warning(
                f"{folder.parent} is installed, but {configuration} does not name it: CANN "
                "ignores it",
                f"write load_priority={folder.parent.name} there; separate several names with "
                "commas, without blanks",
            )
