"""Builds the simulator: three installed trees of CANN and a custom package.

As a command, ``python -m tests.simulator.build [--asan] [folder]``, it prints the folder that it
built into. A second build of the same sources does nothing.
"""

import argparse
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from npucall_exec.compiler import RUNTIME, Compiler, release, sources_of, together

from .generate import entry_points
from .install import install, install_custom, lay_out
from .prototypes import FOLDER, Prototype, read_prototypes
from .tree import IN_THE_PACKAGE, Generation, Tree

SOURCES = FOLDER / "src"
_PARTS = {
    "acl": ("environment", "faults", "control", "report"),
    "nnopbase": ("phase_one", "python"),
}
"""The files of the simulator that each part of the runtime has beside its own."""
DEFAULT_ROOT = FOLDER.parents[1] / "build" / "simulator"
_MACRO = {"8.1": "SIM_GENERATION=81", "8.3": "SIM_GENERATION=81", "9.x": "SIM_GENERATION=90"}
_RELEASE = {"8.1": 81, "8.3": 83, "9.x": 90}
# The libraries of operators, each with the marks in prototypes.h that it holds.
_SPLIT = {"libopapi_math.so": ("math",), "libopapi_nn.so": ("nn",), "libopapi.so": ("opapi",)}
_OPERATORS: dict[str, Mapping[str, Sequence[str]]] = {
    "8.1": {"libopapi.so": ("math", "nn", "opapi")},
    "8.3": _SPLIT,
    "9.x": _SPLIT,
}
_CHECKS = SOURCES / "checks.cpp"


def build(root: Path = DEFAULT_ROOT, *, asan: bool = False) -> Tree:
    """Builds everything into ``root``; does nothing where that has been done.

    ``asan``: with GCC's address sanitizer; a process must preload its library. Two processes may
    build at a time: one waits.
    """
    stamp = root / "built"
    content = _content(asan)
    if _is_built(stamp, content):  # where it has been, the folder may be one that is only read
        return Tree(root)
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / "lock"):
        if not _is_built(stamp, content):
            stamp.unlink(missing_ok=True)
            _Builder(root, asan).all()
            stamp.write_text(content)
    return Tree(root)


def _is_built(stamp: Path, content: str) -> bool:
    return stamp.exists() and stamp.read_text() == content


class _Builder:
    """One build: where to, and with which flags."""

    def __init__(self, root: Path, asan: bool) -> None:
        self.root, self.tree, self.asan = root, Tree(root), asan
        self.prototypes = read_prototypes()

    def all(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._generation, ("8.1", "9.x")))
        self._generation("8.3")  # of the objects of 8.1
        self._custom_package()

    def _generation(self, name: str) -> None:
        here = self.tree.generation(name)
        lay_out(name, here)
        compiler = self._compiler(name)
        acl = self._runtime(name, here, compiler)
        base = here.lib64 / "libnnopbase.so"
        compiler.library(base, [self._whole("nnopbase")], [acl], "$ORIGIN")
        folder = here.op_api_libraries if name in IN_THE_PACKAGE else here.lib64
        for library, marks in _OPERATORS[name].items():
            held = [p for p in self.prototypes if name in p.releases and p.library in marks]
            sources = [self._entry_points(f"{library}-{name}", held), _CHECKS]
            path = _search_path(here, folder)
            compiler.library(folder / library, sources, [base, acl], path, link=("-z,lazy",))
        if name in IN_THE_PACKAGE:
            _link_operators(here, list(_OPERATORS[name]))
        install(name, here, self.prototypes)

    def _runtime(self, name: str, here: Generation, compiler: Compiler) -> Path:
        """The runtime's library or libraries; answers the one that holds the functions."""
        whole = here.lib64 / ("libascendcl.so" if name in IN_THE_PACKAGE else "libacl_rt.so")
        own = self._generated(f"release-{name}", release(_RELEASE[name]))
        compiler.library(whole, [self._whole("acl"), own], [], "$ORIGIN")
        if name not in IN_THE_PACKAGE:
            compiler.library(here.lib64 / "libascendcl.so", [], [whole], "$ORIGIN")
        return whole

    def _custom_package(self) -> None:
        held = [p for p in self.prototypes if p.library == "cust"]
        source = self._entry_points("libcust_opapi", held)
        base = self.tree.generation("9.x").lib64 / "libnnopbase.so"
        library = self.tree.custom / "op_api/lib/libcust_opapi.so"
        self._compiler("9.x").library(library, [source, _CHECKS], [base], link=("-z,lazy",))
        install_custom(self.tree.custom, held)

    def _entry_points(self, name: str, held: list[Prototype]) -> Path:
        return self._generated(name, entry_points(held))

    def _whole(self, part: str) -> Path:
        """All C++ files of a part of the runtime as one."""
        files = sources_of(part) + [SOURCES / f"{name}.cpp" for name in _PARTS[part]]
        return self._generated(part, together(files))

    def _generated(self, name: str, text: str) -> Path:
        path = self.root / "generated" / f"{name}.cpp"
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(f".{threading.get_ident()}")  # generations are built side by side
        part.write_text(text)
        part.replace(path)
        return path

    def _compiler(self, name: str) -> Compiler:
        kernels = f'SIM_KERNELS_PATH="{FOLDER}"'
        return Compiler(
            self.root / "objects", (FOLDER, SOURCES, RUNTIME), (_MACRO[name], kernels), self.asan
        )


def _search_path(here: Generation, folder: Path) -> str:
    """Leads to lib64 from the folder of a library of operators, and from links to it."""
    folders = {here.lib64, here.opp / "lib64", folder}
    return ":".join(sorted(f"$ORIGIN/{os.path.relpath(here.lib64, f)}" for f in folders))


def _link_operators(here: Generation, libraries: list[str]) -> None:
    """Up to 8.3 operators are below opp/, and links elsewhere lead there."""
    links = [here.lib64 / name for name in libraries] + [here.opp / "lib64/libopapi.so"]
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to((here.op_api_libraries / link.name).resolve())


def _content(asan: bool) -> str:
    """A text that differs where a build would."""
    patterns = ("*.py", "*.h", "src/**/*.*", "headers/**/*.h")
    files = [path for pattern in patterns for path in sorted(FOLDER.glob(pattern))]
    own = ("../compiler.py", "../entry_points.py", "*.*", "acl/*.*", "nnopbase/*.*")
    files += [path for pattern in own for path in sorted(RUNTIME.glob(pattern))]
    digest = hashlib.sha256(repr(asan).encode())
    for path in files:
        if not path.name.startswith("test_"):
            digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _main() -> None:
    parser = argparse.ArgumentParser(description="Builds the simulator of CANN.")
    parser.add_argument("root", nargs="?", type=Path, help=f"folder; {DEFAULT_ROOT} if not given")
    parser.add_argument("--asan", action="store_true", help="with the address sanitizer")
    arguments = parser.parse_args()
    default = DEFAULT_ROOT.with_name("simulator-asan") if arguments.asan else DEFAULT_ROOT
    print(build(arguments.root or default, asan=arguments.asan).root)


if __name__ == "__main__":
    _main()
