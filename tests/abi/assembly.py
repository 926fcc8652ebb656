"""Where functions on aarch64 find their parameters, read from what a cross compiler makes of them.

``COMPILER`` is Debian's package ``g++-aarch64-linux-gnu``.
"""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from npucall_exec.compiler import RUNTIME

from .aarch64 import Place, Places

COMPILER = "aarch64-linux-gnu-g++"
HERE = Path(__file__).parent
_SIMULATOR = HERE.parent / "simulator"
INCLUDES = (f"-I{HERE}", f"-I{_SIMULATOR}", f"-I{RUNTIME}")

_OPTIONS = ("-std=c++17", "-O1", "-fno-pie", "-fno-exceptions", "-w", "-S", "-o", "-")
_TABLE = "npucall_table"
_LABEL = re.compile(r"^(\w+):$")
_SYMBOL = re.compile(r"^\t\.xword\t(\w+)$")
_STORE = re.compile(r"str(b|h)?\t([wxsd]\d+|wzr|xzr), \[(x\d+)")
_LOAD = re.compile(r"ldr(b|h|sb|sh|sw)?\t([wxsd]\d+), \[sp(?:, (\d+))?\]")
_CALL = re.compile(r"blr?\t")
# Addresses, and bytes whose register holds more.
_HARMLESS = re.compile(r"adrp\t|(?:and|uxtb|sxtb)\t(w\d+), \1(?:, 255)?$")
_WIDTHS = {"w": 4, "x": 8, "s": 4, "d": 8}
_SUFFIXES = {"b": 1, "h": 2, "sb": 1, "sh": 2, "sw": 4}


def taken(types: Mapping[str, str], before: str) -> dict[str, Places]:
    """The places of functions of these C++ types; ``before``: C++ that the types need."""
    listed = "\n".join(f"    (void *)Taken<{kind}>::rows," for kind in types.values())
    table = f'extern "C" void *const {_TABLE}[] = {{\n{listed}\n}};'
    blocks = _blocks(compiled(f'{before}\n#include "taken.h"\n{table}\n'))
    rows = (_symbols(blocks[symbol]) for symbol in _symbols(blocks[_TABLE]))
    return {
        name: Places(_result(blocks[call]), tuple(_parameter(blocks[take]) for take in takes))
        for name, (call, *takes) in zip(types, rows, strict=True)
    }


def compiled(program: str) -> str:
    """The assembly of a C++ program."""
    command = [COMPILER, *_OPTIONS, *INCLUDES]
    done = subprocess.run(
        [*command, "-x", "c++", "-"], input=program, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(f"expected C++ that compiles, found {done.stderr}")
    return done.stdout


def _blocks(assembly: str) -> dict[str, list[str]]:
    """The lines below each label."""
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in assembly.splitlines():
        if found := _LABEL.match(line):
            lines = blocks[found[1]] = []
        else:
            lines.append(line)
    return blocks


def _symbols(lines: Iterable[str]) -> list[str]:
    return [found[1] for line in lines if (found := _SYMBOL.match(line))]


def _parameter(lines: Sequence[str]) -> Place:
    """What a function that keeps one parameter stores: a register, or what it loads before."""
    loaded: dict[str, Place] = {}
    for line in _instructions(lines):
        if found := _LOAD.match(line):
            size = _SUFFIXES.get(found[1]) or _WIDTHS[found[2][0]]
            loaded[_register(found[2])] = Place(f"sp+{found[3] or 0}", size)
        elif found := _STORE.match(line):
            own = Place(_register(found[2]), _SUFFIXES.get(found[1]) or _WIDTHS[found[2][0]])
            before = loaded.get(own.where, own)
            if before.size != own.size:
                raise AssertionError(f"expected a value stored as it was loaded, found {lines}")
            return before
        elif not _HARMLESS.match(line):
            raise AssertionError(f"expected loads and a store, found {line!r}")
    raise AssertionError(f"expected a store, found {lines}")


def _result(lines: Sequence[str]) -> Place | None:
    """What a function that calls another stores behind the call."""
    instructions = _instructions(lines)
    call = next(number for number, line in enumerate(instructions) if _CALL.match(line))
    for line in instructions[call + 1 :]:
        if found := _STORE.match(line):
            return Place(_register(found[2]), _SUFFIXES.get(found[1]) or _WIDTHS[found[2][0]])
    return None


def _instructions(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines if line.startswith("\t") and not line.startswith("\t.")]


def _register(name: str) -> str:
    """``w3`` is half of ``x3``, ``s0`` of ``v0``."""
    return ("x" if name[0] in "wx" else "v") + name[1:]
