"""The tree of an installed toolkit: headers, libraries and ``set_env.sh``, built by g++.

``libnpucall_exec.so`` has all functions. The libraries with CANN's names are filters of it: they
name what programs link, and the loader takes each function from there. So all of them share one
state, and nothing but CANN's names is exported.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from npucall.operators import CATALOGUE
from npucall_exec import environment
from npucall_exec.compiler import RUNTIME, Compiler, command_for, release, sources_of, together
from npucall_exec.entry_points import CParameter, entry_point, parameters_of
from npucall_exec.headers import functions, headers

Own: TypeAlias = "Mapping[str, Sequence[CParameter]]"
"""Parameters of operators, by their C name."""
PACKED = Path(__file__).parent / "built"
"""Where a wheel has it."""
_HOLDER = "libnpucall_exec.so"
_RUNTIME = ("libascendcl.so", "libacl_rt.so")
_DESCRIPTORS = "libnnopbase.so"
_OPERATORS = (
    "libopapi.so", "libopapi_nn.so", "libopapi_math.so", "libopapi_cv.so",
    "libopapi_transformer.so", "libcust_opapi.so",
)  # fmt: skip
_EXPORTED = "{ global: acl*; Acl*; local: *; };\n"
_ENTRY = '"builtin", nullptr, 0, false, 8'


def built(own: Own | None = None) -> Path:
    """The toolkit of this version, built at the first use. Raises OSError without g++.

    ``own``: operators of the user, which it has too.
    """
    name = content(own=own)
    for home in (PACKED / name, environment.cache() / name):
        if home.is_dir():
            return home
    if shutil.which("g++") is None:
        raise OSError("npucall exec: g++ builds its libraries at the first use: install it")
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
                build(Path(scratch) / "tree", own=own)
                (Path(scratch) / "tree").rename(home)
    return home


def install(folder: Path, own: Own | None = None) -> None:
    """Copies the toolkit to a folder of the user's. Raises OSError."""
    shutil.copytree(built(own), folder, dirs_exist_ok=True)
    (folder / "opp").mkdir(exist_ok=True)  # a wheel has no empty folders
    _write_environment(folder.resolve())


def pack(machine: str) -> None:
    """Builds what a wheel has (``make exec-wheel``): a folder that hatch_build.py takes."""
    shutil.rmtree(PACKED, ignore_errors=True)
    build(PACKED / content(machine), machine)
    (PACKED / "machine").write_text(machine)


def build(home: Path, machine: str = "", own: Own | None = None) -> None:
    """Builds headers and libraries into a new folder; for this machine unless you name one."""
    machine = machine or os.uname().machine
    for name, text in headers().items():
        path = home / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (home / "opp").mkdir(parents=True)
    _write_environment(home)
    with tempfile.TemporaryDirectory() as scratch:
        _Libraries(home / "lib64", Path(scratch), machine).build(_by_name(own))


def content(machine: str = "", own: Own | None = None) -> str:
    """A name that differs where the tree would: of what is generated, and of all sources."""
    machine = machine or os.uname().machine
    package = RUNTIME.parent
    modules = [package / f"{name}.py" for name in ("compiler", "environment", "toolkit")]
    paths = [*sorted(RUNTIME.rglob("*.*")), *modules]
    sources = {str(path.relative_to(package)): path.read_text() for path in paths}
    generated = {**headers(), "operators.cpp": _operators(_by_name(own))}
    return hashlib.sha256(repr((machine, generated, sources)).encode()).hexdigest()[:16]


class _Libraries:
    def __init__(self, folder: Path, scratch: Path, machine: str) -> None:
        self._folder, self._scratch = folder, scratch
        self._compiler = Compiler(
            scratch / "objects",
            (RUNTIME,),
            ("SIM_GENERATION=90",),
            alone=True,
            command=command_for(machine),
        )

    def build(self, by_name: Own) -> None:
        sources = [
            self._written(part, together(sources_of(part)))
            for part in ("acl", "nnopbase", "socket")
        ]
        sources.append(self._written("release", release(90)))
        sources.append(self._written("operators", _operators(by_name)))
        exported = self._scratch / "exported"
        exported.write_text(_EXPORTED)
        link = ("-z,defs", f"--version-script={exported}")
        self._compiler.library(self._folder / _HOLDER, sources, link=link)
        operators = [n + phase for n in by_name for phase in ("", "GetWorkspaceSize")]
        self._filters(_RUNTIME, functions("acl"))
        self._filters((_DESCRIPTORS,), functions("nnopbase"))
        self._filters(_OPERATORS, operators)

    def _filters(self, libraries: Iterable[str], names: Iterable[str]) -> None:
        for library in libraries:
            stubs = "".join(f"SIM_API void {name}() {{}}\n" for name in names)
            source = self._written(library, f'#include "acl_types.h"\n{stubs}')
            link = (f"--filter={_HOLDER}",)
            self._compiler.library(self._folder / library, [source], rpath="$ORIGIN", link=link)

    def _written(self, name: str, text: str) -> Path:
        path = self._scratch / f"{name}.cpp"
        path.write_text(text)
        return path


def _by_name(own: Own | None) -> Own:
    """The parameters of each C name: the variants of an operator have one prototype."""
    return {**(own or {}), **{operator.name: parameters_of(operator) for operator in CATALOGUE}}


def _operators(by_name: Own) -> str:
    points = [entry_point(name, parameters, _ENTRY) for name, parameters in by_name.items()]
    return "\n".join(['#include "operator_entry.h"\n', *points])


def _write_environment(home: Path) -> None:
    lines = [f'export {name}="{value}"\n' for name, value in environment.of_toolkit(home).items()]
    lines.append(f'export LD_LIBRARY_PATH="{home}/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n')
    (home / "set_env.sh").write_text("".join(lines))
