"""Compiles and links with g++; an object file is made once for the same content."""

import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

RUNTIME = Path(__file__).parent / "runtime"
"""The C++ of the runtime, without an end."""
_FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-pthread")
_WARNINGS = ("-Wall", "-Wextra")
_ALONE = ("-static-libstdc++", "-static-libgcc")
_ASAN = ("-fsanitize=address", "-fno-omit-frame-pointer")


def sources_of(part: str) -> list[Path]:
    """The C++ files of a part of the runtime: ``acl``, ``nnopbase`` or ``socket``."""
    return sorted((RUNTIME / part).glob("*.cpp"))


def command_for(machine: str) -> str:
    """The g++ that makes programs for a machine; for another one, as Debian names it."""
    return "g++" if machine == os.uname().machine else f"{machine}-linux-gnu-g++"


def release(number: int) -> str:
    """The C++ that makes a library one of a release of CANN: 81, 83 or 90."""
    return f'#define SIM_RELEASE {number}\n#include "{RUNTIME}/release.cpp"\n'


def together(files: Iterable[Path]) -> str:
    """C++ files as one, for headers cost most of the time; another text if one of them changes."""
    digests = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return "".join(f'#include "{file}"  // {digest}\n' for file, digest in digests.items())


@dataclass(frozen=True)
class Compiler:
    """g++ with the flags of one build; keeps object files in a folder, named by their content."""

    objects: Path
    include: tuple[Path, ...]
    definitions: tuple[str, ...]
    asan: bool = False
    alone: bool = False
    """Libraries need no libstdc++ of the host."""
    command: str = "g++"

    def library(
        self,
        path: Path,
        sources: Sequence[Path],
        needs: Sequence[Path] = (),
        rpath: str = "",
        *,
        link: Sequence[str] = ("-z,defs",),
    ) -> None:
        """Makes a shared library that depends on others; its soname is its file's name.

        ``link``: what the linker is told beside. By default the library may lack nothing.
        """
        objects = self._compile(sources)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        told = (f"-soname,{path.name}", "--no-as-needed", *link)
        flags = [f"-Wl,{each}" for each in told]
        flags += [f"-Wl,-rpath-link,{need.parent}" for need in needs]
        flags += [f"-Wl,-rpath,{rpath}"] if rpath else []
        self._run(
            [
                "-shared",
                *(_ALONE if self.alone else ()),
                *flags,
                *objects,
                *needs,
                "-ldl",
                "-o",
                part,
            ]
        )
        part.replace(path)  # the old file may be loaded somewhere

    def _compile(self, sources: Sequence[Path]) -> list[Path]:
        self.objects.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(self._object, sources))

    def _object(self, source: Path) -> Path:
        key = hashlib.sha256(self._headers_and_flags + source.read_bytes()).hexdigest()[:16]
        path = self.objects / f"{source.stem}-{key}.o"
        if not path.exists():
            part = path.with_suffix(".part")
            self._run([*_WARNINGS, "-c", source, "-o", part])
            part.replace(path)
        return path

    @cached_property
    def _headers_and_flags(self) -> bytes:
        headers = sorted(path for folder in self.include for path in folder.rglob("*.h"))
        return repr(self._flags).encode() + b"".join(path.read_bytes() for path in headers)

    @cached_property
    def _flags(self) -> list[str]:
        asan = _ASAN if self.asan else ()
        include = [f"-I{folder}" for folder in self.include]
        return [*_FLAGS, *asan, *(f"-D{text}" for text in self.definitions), *include]

    def _run(self, arguments: Sequence[str | Path]) -> None:
        command = [self.command, *self._flags, *arguments]
        subprocess.run(command, check=True)  # noqa: S603  # the compiler of the path
