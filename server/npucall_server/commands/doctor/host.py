"""What variables and files tell about the host: toolkit, device nodes, driver, custom packages."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from npucall_server.commands.doctor.finding import Finding, fault, ok, warning
from npucall_server.devices.cann.operators import CUSTOM_LIBRARY, load_priority
from npucall_server.settings.npu import AscendPaths

_SCRIPTS = ("usr/local/Ascend/cann/set_env.sh", "usr/local/Ascend/ascend-toolkit/set_env.sh")
"""Where CANN's installer puts set_env.sh: from version 9 on, and before."""
_NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
_EARLY = "LD_LIBRARY_PATH is read when a program starts: set it before, not in the program"
_GIVE = (
    "on the host: install the driver, check `npu-smi info`, reboot after an installation; in a "
    "container: start it with --device /dev/davinci0 (each device to use), --device "
    "/dev/davinci_manager, --device /dev/devmm_svm and --device /dev/hisi_hdc"
)
_JOIN = (
    "on the host: `usermod -aG HwHiAiUser <user>`, then log in again (the systemd unit has "
    "SupplementaryGroups=HwHiAiUser); in a container: --group-add $(stat -c %g "
    "/dev/davinci_manager), which is ASCEND_GID for docker-compose.yml"
)


# --- What set_env.sh exports ----------------------------------------------------------------------


def check_environment(environment: Mapping[str, str], root: Path, number: int) -> Iterator[Finding]:
    """Checks variables of CANN and the loader's path. ``number``: of the device to use."""
    home = environment.get("ASCEND_HOME_PATH") or environment.get("ASCEND_TOOLKIT_HOME")
    opp, source = environment.get("ASCEND_OPP_PATH"), _how_to_source(root, home)
    if home is None:
        names = "ASCEND_HOME_PATH is" if opp else "ASCEND_HOME_PATH and ASCEND_OPP_PATH are"
        yield fault(f"{names} not set", source)
    elif not Path(home, "lib64").is_dir():
        yield fault(f"ASCEND_HOME_PATH is {home}, but no toolkit is there (no lib64)", source)
    else:
        yield ok(f"ASCEND_HOME_PATH is {home}")
    if opp or home is not None:
        yield _operators(opp, home, source)
    yield from _loader(environment.get("LD_LIBRARY_PATH", ""), home, root, source)
    yield _visible(environment.get(_VISIBLE), number)


def _how_to_source(root: Path, home: str | None) -> str:
    """What to do if a variable is missing."""
    own = [Path(home, "set_env.sh"), Path(home).parent / "set_env.sh"] if home else []
    found = [str(script) for script in own if script.is_file()]
    found += [f"/{script}" for script in _SCRIPTS if (root / script).is_file()]
    if found:
        return (
            f"`source {found[0]}` before the server starts; for the systemd unit and the image, "
            f"set CANN_SET_ENV={found[0]}"
        )
    return (
        "no toolkit in /usr/local/Ascend: install CANN 8.1 or newer, or use a CANN image; then "
        "`source` its set_env.sh before the server starts"
    )


def _operators(opp: str | None, home: str | None, source: str) -> Finding:
    if home is not None and not Path(home, "opp").is_dir():
        source = f"install CANN's operators and kernels for this chip into {home}; then {source}"
    if not opp:
        return fault("ASCEND_OPP_PATH is not set; every call would end with 561107", source)
    if not Path(opp).is_dir():
        return fault(f"ASCEND_OPP_PATH is {opp}, but there is no such folder", source)
    if home is not None and Path(home, "opp").resolve() != Path(opp).resolve():
        todo = "libraries and operators must be of one version: source only one set_env.sh"
        return warning(f"ASCEND_OPP_PATH is {opp}, not {home}/opp", todo)
    return ok(f"ASCEND_OPP_PATH is {opp}")


def _loader(paths: str, home: str | None, root: Path, source: str) -> Iterator[Finding]:
    entries = [Path(entry) for entry in paths.split(":") if entry]
    known = {entry.resolve() for entry in entries}
    if home is not None:
        there = Path(home, "lib64").resolve() in known
        said = f"LD_LIBRARY_PATH {'has' if there else 'does not have'} {home}/lib64"
        yield ok(said) if there else fault(said, f"{source}. {_EARLY}")
    driver = driver_folder(root) / "lib64"
    folders = [each for each in (driver, driver / "common", driver / "driver") if each.is_dir()]
    missing = [f"/{each.relative_to(root)}" for each in folders if each.resolve() not in known]
    if missing:
        yield warning(
            f"LD_LIBRARY_PATH does not have {', '.join(missing)}",
            "add them, unless the driver's installer has told the loader about them (files in "
            f"/etc/ld.so.conf.d). {_EARLY}",
        )
    elif folders:
        yield ok("LD_LIBRARY_PATH has the driver's folders")
    if stubs := [str(entry) for entry in entries if entry.name == "devlib"]:
        yield warning(
            f"LD_LIBRARY_PATH has {', '.join(stubs)}",
            "remove it, or put it last: its libraries are stubs for linking, and their "
            "functions answer 100039",
        )


def _visible(value: str | None, number: int) -> Finding:
    if value is None:
        return ok(f"{_VISIBLE} is not set: all devices of this process are visible")
    entries = [entry.strip() for entry in value.split(",")]
    if not all(entry.isdecimal() for entry in entries):
        todo = "write numbers with commas between them, such as 0,1, or unset it"
        return warning(f"{_VISIBLE} is {value!r}, which is no list of numbers", todo)
    if number < len(entries):
        return ok(f"{_VISIBLE} is {value}: cann:{number} is its device {entries[number]}")
    return fault(
        f"{_VISIBLE} is {value}: there is no cann:{number}, since the variable numbers its "
        "devices from 0",
        f"use cann:0 to cann:{len(entries) - 1}, or unset the variable",
    )


# --- Device nodes ---------------------------------------------------------------------------------


def _usable(node: Path) -> bool:
    return os.access(node, os.R_OK | os.W_OK)


def check_nodes(root: Path, usable: Callable[[Path], bool] = _usable) -> list[Finding]:
    """Whether the driver's nodes are in ``root``/dev, and whether this user may use them."""
    devices = sorted((root / "dev").glob("davinci[0-9]*"))
    nodes = [*devices, *(root / "dev" / name for name in _NODES)]
    missing = [] if devices else ["davinci0 (or another number)"]
    missing += [node.name for node in nodes if not node.exists()]
    refused = [_described(node) for node in nodes if node.exists() and not usable(node)]
    user = str(os.geteuid())
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    found = []
    if missing:
        found.append(fault(f"/dev does not have {', '.join(missing)}", _GIVE))
    if refused:
        found.append(fault(f"user {user} may not use {', '.join(refused)}", _JOIN))
    return found or [ok(f"/dev has {', '.join(node.name for node in nodes)}")]


def _described(node: Path) -> str:
    found = node.stat()
    group = str(found.st_gid)
    with suppress(KeyError):
        group = grp.getgrgid(found.st_gid).gr_name
    return f"/dev/{node.name} (group {group}, mode {stat.S_IMODE(found.st_mode):04o})"


# --- Driver ---------------------------------------------------------------------------------------


def driver_folder(root: Path) -> Path:
    """Where the driver is: as /etc/ascend_install.info says, or in the default folder."""
    named = _named_in(root / "etc/ascend_install.info", "driver_install_path_param=")
    return root / ((named or "").lstrip("/") or "usr/local/Ascend") / "driver"


def check_driver(root: Path) -> Iterator[Finding]:
    """Checks the driver's files. A container gets them from the host."""
    folder = driver_folder(root)
    shown = f"/{folder.relative_to(root)}"
    info = f"-v {shown}/version.info:{shown}/version.info:ro"
    if not any(folder.glob("lib64/**/libascend_hal.so")):
        todo = "on the host: install the driver; in a container: mount the host's, "
        lacking = f"libascend_hal.so in {shown}/lib64" if folder.is_dir() else f"driver in {shown}"
        yield fault(f"there is no {lacking}", f"{todo}-v {shown}/lib64:{shown}/lib64:ro {info}")
        return
    yield ok(f"{shown} has libascend_hal.so")
    version = _named_in(folder / "version.info", "version=")
    if version is None:
        said = f"{shown}/version.info cannot be read, so the driver's version is unknown"
        yield warning(said, f"in a container mount it: {info}")
    else:
        yield ok(f"the driver's version is {version or 'not in version.info'}")


def _named_in(file: Path, name: str) -> str | None:
    """What a line of the file gives the name, in any case; empty if none does; None: no file."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return None
    values = (line[len(name) :].strip() for line in lines if line.lower().startswith(name))
    return next(values, "")


# --- Custom packages ------------------------------------------------------------------------------


def check_custom_packages(paths: AscendPaths) -> list[Finding]:
    """Checks the packages that the environment or the operator package's configuration names."""
    found = [_package(entry, "ASCEND_CUSTOM_OPP_PATH") for entry in paths.custom]
    vendors = paths.opp / "vendors" if paths.opp is not None else Path("/nowhere")
    configuration, listed = vendors / "config.ini", load_priority(vendors)
    found += [_package(vendors / name, str(configuration)) for name in listed]
    for folder in sorted(each.parent for each in vendors.glob("*/op_api")):
        if folder.name not in listed:
            said = f"{folder} is installed, but {configuration} does not name it: CANN ignores it"
            todo = f"write load_priority={folder.name} there; separate several names with commas, "
            found.append(warning(said, f"{todo}without blanks"))
    return found or [ok("none is installed: operators are CANN's own")]


def _package(folder: Path, named_by: str) -> Finding:
    library = folder / CUSTOM_LIBRARY
    if library.is_file():
        return ok(f"{folder} has {CUSTOM_LIBRARY} ({named_by})")
    return warning(
        f"{named_by} names {folder}, but there is no {library if folder.is_dir() else folder}: "
        "CANN ignores the package",
        "name the folder that holds op_api, or remove the name",
    )
