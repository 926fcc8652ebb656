"""Compiles and links with g++; an object file is made once for the same content."""

import hashlib
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-pthread")
_WARNINGS = ("-Wall", "-Wextra")
_ASAN = ("-fsanitize=address", "-fno-omit-frame-pointer")


@dataclass(frozen=True)
class Compiler:
    """g++ with the flags of one build; keeps object files in a folder, named by their content."""

    objects: Path
    include: tuple[Path, ...]
    definitions: tuple[str, ...]
    asan: bool = False

    def library(
        self,
        path: Path,
        sources: Sequence[Path],
        needs: Sequence[Path] = (),
        rpath: str = "",
        *,
        lazy: bool = False,
    ) -> None:
        """Makes a shared library that depends on others; its soname is its file's name.

        ``lazy``: it may lack functions, as long as nobody calls them.
        """
        objects = self._compile(sources)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        options = [f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed"]
        options += ["-Wl,-z,lazy" if lazy else "-Wl,-z,defs"]
        options += [f"-Wl,-rpath-link,{need.parent}" for need in needs]
        options += [f"-Wl,-rpath,{rpath}"] if rpath else []
        self._run(["-shared", *options, *objects, *needs, "-ldl", "-o", part])
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
        subprocess.run(["g++", *self._flags, *arguments], check=True)
