"""Python for aarch64, run by an emulator, and a library of recorders that it calls.

Python is Debian's, unpacked below build/ once; nothing of it is installed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from .aarch64 import Signature
from .assembly import COMPILER, HERE, INCLUDES
from .wheel import FOLDER

EMULATOR = "qemu-aarch64-static"
PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    EMULATOR: "qemu-user-static",
}
"""Programs, and Debian's packages that have them."""

_SUITE, _PYTHON = "bookworm", "python3.11"
_SCRIPT = HERE / "call_recorders.py"


def python(folder: Path = FOLDER) -> list[str]:
    """The command of Python for aarch64, unpacked into ``folder`` where it is not there yet."""
    root = folder / f"arm64-{_SUITE}"
    if not root.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            included = f"--include={_PYTHON}-minimal,lib{_PYTHON}-stdlib"
            unpacked = Path(scratch, "root")
            command = ["mmdebstrap", "--arch=arm64", "--variant=extract", included, _SUITE]
            subprocess.run([*command, unpacked], check=True, capture_output=True)
            unpacked.rename(root)
    return [EMULATOR, "-L", str(root), str(root / "usr/bin" / _PYTHON)]


def recorders(types: Iterable[str], before: str, library: Path) -> None:
    """Builds a library that has a recorder for each function of these C++ types, in order.

    ``before``: C++ that the types need.
    """
    listed = "\n".join(f"    (void *)&Recorder<{kind}>::function," for kind in types)
    program = "\n".join(
        [before, '#include "recorders.h"', "Record npucall_record;"]
        + ['extern "C" void *const npucall_table[] = {', listed, "};", ""]
    )
    options = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-static-libstdc++", *INCLUDES]
    command = [COMPILER, *options, "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=program, text=True, check=True)


def recorded_otherwise(
    interpreter: list[str], library: Path, declared: Mapping[str, Signature]
) -> dict[str, str]:
    """The functions that recorded something else than ctypes handed over, with the difference.

    ``declared``: the functions of the library, in its order.
    """
    table = library.with_suffix(".json")
    table.write_text(json.dumps([_row(name, own) for name, own in declared.items()]))
    command = [*interpreter, str(_SCRIPT), str(library), str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"expected calls that return, found {done.stderr}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _row(name: str, own: Signature) -> tuple[str, str | None, list[str]]:
    result = None if own.result is None else own.result.__name__
    return name, result, [kind.__name__ for kind in own.parameters]
