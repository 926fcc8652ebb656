"""CANN's two libraries: which files were loaded, and which functions they lack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from npucall_server.commands.doctor.finding import Finding, fault, ok, warning
from npucall_server.devices.cann.library import NewStatusFunction
from npucall_server.devices.cann.runtime import BASE, RUNTIME

if TYPE_CHECKING:
    from npucall_server.devices.cann.runtime import Libraries
    from npucall_server.settings.npu import AscendPaths

_OURS = re.compile(r"(?:^|\s)(/\S*/lib(?:ascendcl|acl_rt|nnopbase)\.so\S*)$", re.MULTILINE)
_LACKING = re.compile(r": (lib\S+): cannot open shared object file")
_OF_THE_DRIVER = re.compile(r"libascend_hal|libdrv|libmmpa|libdcmi")


def check_libraries(
    libraries: Libraries, paths: AscendPaths, maps: Path = Path("/proc/self/maps")
) -> Iterator[Finding]:
    """The files that were loaded for the names, and the functions that this version lacks."""
    lib64 = paths.home / "lib64" if paths.home else None
    own = {(lib64 / name).resolve() for name in (*RUNTIME, *BASE)} if lib64 else set()
    for file in sorted(set(_OURS.findall(maps.read_text()))):
        if lib64 is None or Path(file).resolve() in own:
            yield ok(f"loaded {file}", "library-names")
        else:
            yield warning(
                f"loaded {file}, which is not the library in {lib64}",
                "another toolkit comes first in LD_LIBRARY_PATH: source only one set_env.sh",
                "library-names",
            )
    new = [
        name
        for functions in (libraries.acl, libraries.base)
        for name, declared in functions.declared().items()
        if isinstance(declared, NewStatusFunction) and getattr(functions, name) is None
    ]
    yield ok(
        "every function is there"
        + (f", but for {', '.join(new)}, which this version does not have yet" if new else "")
    )


def check_opening(message: str) -> Finding:
    """What a LibraryError means, from the loader's message for each path that was tried."""
    *lines, last = message.splitlines()
    found, todo = ("\n".join(lines), last[0].lower() + last[1:]) if lines else (last, _OLD)
    driver = [name for name in sorted(set(_LACKING.findall(message))) if _OF_THE_DRIVER.match(name)]
    if driver:
        todo = (
            f"{', '.join(driver)} belongs to the driver: see the section driver, and add its "
            "lib64, lib64/common and lib64/driver to LD_LIBRARY_PATH before the server starts"
        )
    return fault(found, todo, "library-names")


_OLD = "install CANN 8.1 or newer, and source its set_env.sh before the server starts"
