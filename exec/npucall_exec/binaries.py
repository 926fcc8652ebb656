"""Why a program that was started here does not use our libraries, as far as its file tells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from struct import Struct, unpack_from

_HEADER = Struct("<16sHHIQQQIHHHHHH")
"""Of an ELF file of 64 bits."""
_MACHINES = {3: "i686", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_INTERPRETED = 3
"""The segment that names the loader; a program without it is linked statically."""
_SET_ID = 0o6000
_OTHER = "the program uses other libraries, or none of CANN's"
_FOUND = re.compile(r"(libascendcl|libacl_rt|libnnopbase)\.so\S* => (\S+)")


def why_nothing_arrived(program: str, environment: Mapping[str, str], libraries: Path) -> str:
    """A sentence without its end, for a program that ran and made no call here."""
    path = shutil.which(program)
    told = _elf(path) if path else None
    if path is None or told is None:
        return _OTHER
    machine, is_static = told
    if machine != os.uname().machine:
        return f"{program} is a program for {machine}, and this is {os.uname().machine}"
    if is_static:
        return f"{program} is linked statically: link it against libascendcl.so and its like"
    if Path(path).stat().st_mode & _SET_ID:
        return f"{program} is setuid or setgid, so the loader ignores LD_LIBRARY_PATH"
    listed = {**environment, "LD_TRACE_LOADED_OBJECTS": "1"}  # the loader lists, and ends
    done = subprocess.run([path], env=listed, capture_output=True, text=True, check=False)  # noqa: S603
    for name, found in _FOUND.findall(done.stdout):
        if found != str(libraries / f"{name}.so"):
            return f"{program} used {found}: link it without that folder as its rpath"
    return _OTHER


def _elf(path: str) -> tuple[str, bool] | None:
    """The machine of a program, and whether it needs no loader; None for what is no such file."""
    with Path(path).open("rb") as file:
        data = file.read(4096)
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\2\1":
        return None
    _, _, machine, _, _, start, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    kinds = [
        unpack_from("<I", data, start + size * number)[0]
        for number in range(count)
        if start + size * number + 4 <= len(data)
    ]
    return _MACHINES.get(machine, f"machine {machine}"), _INTERPRETED not in kinds
