"""The environment: the variables that set_env.sh exports, and others that CANN reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from npucall_server.commands.doctor.finding import Finding, fault, ok, warning
from npucall_server.commands.doctor.host import driver_folder

SCRIPTS = ("usr/local/Ascend/cann/set_env.sh", "usr/local/Ascend/ascend-toolkit/set_env.sh")
"""Where CANN's installer puts set_env.sh: from version 9 on, and before."""
_DRIVER_LIBRARIES = ("lib64", "lib64/common", "lib64/driver")
_ATOMIC = "LD_LIBRARY_PATH is read when a program starts: set it before, not in the program"


def check_environment(environment: Mapping[str, str], root: Path, number: int) -> list[Finding]:
    """Checks variables of CANN and the loader's path. ``number``: of the device to use."""
    home = environment.get("ASCEND_HOME_PATH") or environment.get("ASCEND_TOOLKIT_HOME")
    source = _how_to_source(root, home)
    opp = environment.get("ASCEND_OPP_PATH")
    return [
        _toolkit(home, opp, source),
        *_operators(opp, home, source),
        *_loader(environment.get("LD_LIBRARY_PATH", ""), home, root, source),
        _visible(environment.get("ASCEND_RT_VISIBLE_DEVICES"), number),
    ]


def _how_to_source(root: Path, home: str | None) -> str:
    """What to do if a variable is missing."""
    own = [Path(home, "set_env.sh"), Path(home).parent / "set_env.sh"] if home else []
    found = [str(script) for script in own if script.is_file()]
    found += [f"/{script}" for script in SCRIPTS if (root / script).is_file()]
    if found:
        return (
            f"`source {found[0]}` before the server starts; for the systemd unit and the image, "
            f"set CANN_SET_ENV={found[0]}"
        )
    return (
        "no toolkit in /usr/local/Ascend: install CANN 8.1 or newer, or use a CANN image; then "
        "`source` its set_env.sh before the server starts"
    )


def _toolkit(home: str | None, opp: str | None, source: str) -> Finding:
    if home is None:
        names = "ASCEND_HOME_PATH is" if opp else "ASCEND_HOME_PATH and ASCEND_OPP_PATH are"
        return fault(f"{names} not set", source)
    if not Path(home, "lib64").is_dir():
        return fault(f"ASCEND_HOME_PATH is {home}, but no toolkit is there (no lib64)", source)
    return ok(f"ASCEND_HOME_PATH is {home}")


def _operators(opp: str | None, home: str | None, source: str) -> Iterator[Finding]:
    if not opp:
        if home is not None:
            yield fault("ASCEND_OPP_PATH is not set; every call would end with 561107", source)
    elif not Path(opp).is_dir():
        yield fault(f"ASCEND_OPP_PATH is {opp}, but there is no such folder", source)
    elif home is not None and Path(home, "opp").resolve() != Path(opp).resolve():
        yield warning(
            f"ASCEND_OPP_PATH is {opp}, not {home}/opp",
            "libraries and operators must be of one version: source only one set_env.sh",
        )
    else:
        yield ok(f"ASCEND_OPP_PATH is {opp}")


def _loader(paths: str, home: str | None, root: Path, source: str) -> Iterator[Finding]:
    entries = [Path(entry) for entry in paths.split(":") if entry]
    known = {entry.resolve() for entry in entries}
    if home is not None and Path(home, "lib64").resolve() not in known:
        yield fault(f"LD_LIBRARY_PATH does not have {home}/lib64", f"{source}. {_ATOMIC}")
    elif home is not None:
        yield ok(f"LD_LIBRARY_PATH has {home}/lib64")
    folders = [driver_folder(root) / name for name in _DRIVER_LIBRARIES]
    there = [folder for folder in folders if folder.is_dir()]
    missing = [f"/{f.relative_to(root)}" for f in there if f.resolve() not in known]
    if missing:
        yield warning(
            f"LD_LIBRARY_PATH does not have {', '.join(missing)}",
            "add them, unless the driver's installer has told the loader about them (files in "
            f"/etc/ld.so.conf.d). {_ATOMIC}",
        )
    elif there:
        yield ok("LD_LIBRARY_PATH has the driver's folders")
    stubs = [str(entry) for entry in entries if entry.name == "devlib"]
    if stubs:
        yield warning(
            f"LD_LIBRARY_PATH has {', '.join(stubs)}",
            "remove it, or put it last: its libraries are stubs for linking, and their "
            "functions answer 100039",
        )


def _visible(value: str | None, number: int) -> Finding:
    if value is None:
        return ok("ASCEND_RT_VISIBLE_DEVICES is not set: all devices of this process are visible")
    entries = [entry.strip() for entry in value.split(",")]
    if not all(entry.isdecimal() for entry in entries):
        return warning(
            f"ASCEND_RT_VISIBLE_DEVICES is {value!r}, which is no list of numbers",
            "write numbers with commas between them, such as 0,1, or unset it",
        )
    if number >= len(entries):
        return fault(
            f"ASCEND_RT_VISIBLE_DEVICES is {value}: there is no cann:{number}, since the variable "
            "numbers its devices from 0",
            f"use cann:0 to cann:{len(entries) - 1}, or unset the variable",
        )
    return ok(
        f"ASCEND_RT_VISIBLE_DEVICES is {value}: cann:{number} is its device {entries[number]}"
    )
