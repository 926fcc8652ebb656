"""C functions in shared libraries, each declared in one line [src:library-opening].

A ``StatusFunction`` raises an error if the C function answers a status other than 0, so callers
need not check statuses. Every function is resolved when its library is opened, not at its first
call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Failure: TypeAlias = "Callable[[str, int], Exception]"
"""Makes the error of a function that answered a status."""


class LibraryError(Exception):
    """A library or one of its functions is missing. The message says what to source or mount."""


class Library(NamedTuple):
    """An opened shared library. It is never closed, since its own threads run in it."""

    path: str
    handle: ctypes.CDLL

    def find(self, name: str) -> Any:
        """The C function of that name, or None.

        Each call makes a new object, so that each user can declare its own types.
        """
        try:
            return self.handle[name]
        except AttributeError:
            return None

    def defines(self, name: str) -> bool:
        """Whether the library itself has the function; ``find`` also looks in linked libraries."""
        function, info = self.find(name), _SymbolInfo()
        if function is None or not _dladdr(function, ctypes.byref(info)):
            return False
        return Path(os.fsdecode(info.path)).samefile(self.path)


class _SymbolInfo(ctypes.Structure):
    """``Dl_info``: the library that a symbol is in."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_loader = ctypes.CDLL(None)
_dladdr, _dlopen, _dlerror = _loader.dladdr, _loader.dlopen, _loader.dlerror
_dladdr.argtypes, _dladdr.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
_dlopen.argtypes, _dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
_dlerror.argtypes, _dlerror.restype = (), ctypes.c_char_p


def load(path: str) -> Library:
    """Opens a library, by its path or through the loader's path. Raises OSError.

    It uses RTLD_LAZY, as CANN's own users do, since a library may lack functions that are never
    called. ctypes alone would use RTLD_NOW. ``CDLL`` releases the GIL during each call.
    """
    handle = _dlopen(os.fsencode(path), os.RTLD_LAZY)
    if handle is None:
        said: bytes | None = _dlerror()
        raise OSError((said or b"dlopen failed").decode(errors="replace"))
    return Library(path, ctypes.CDLL(path, handle=handle))


def open_library(names: Sequence[str], folders: Iterable[Path]) -> Library:
    """The first of these libraries that can be opened: through the loader's path, then in folders.

    Raises LibraryError.
    """
    tried = []
    for candidate in [*names, *(str(folder / name) for folder in folders for name in names)]:
        try:
            return load(candidate)
        except OSError as error:
            tried.append(f"  {candidate}: {error}")
    lines = "\n".join(tried)
    raise LibraryError(
        f"expected one of {', '.join(names)}, found none:\n{lines}\n"
        "Source the toolkit's set_env.sh (it sets ASCEND_HOME_PATH and LD_LIBRARY_PATH) before the "
        "server starts; in a container use a CANN image and mount the driver, "
        "/usr/local/Ascend/driver"
    )


class ValueFunction:
    """A C function that answers a value."""

    def __init__(self, *parameters: Any, result: Any = None) -> None:
        self.parameters = parameters
        self.result = result

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        """Only for type checkers: an instance has the bound function as an attribute."""
        raise AttributeError(self.name)

    def bind(self, raw: Any, failure: Failure) -> Callable[..., Any]:
        """The function, ready to be called."""
        del failure
        raw.argtypes, raw.restype = self.parameters, self.result
        bound: Callable[..., Any] = raw
        return bound


class StatusFunction(ValueFunction):
    """A C function that answers a status."""

    def bind(self, raw: Any, failure: Failure) -> Callable[..., Any]:
        """The function; it raises an error for every status except 0."""
        raw.argtypes, raw.restype = self.parameters, ctypes.c_int32
        name = self.name

        def call(*arguments: Any) -> None:
            status = raw(*arguments)
            if status:
                raise failure(name, status)

        return call


class NewStatusFunction(StatusFunction):
    """A function that older versions do not have."""

    def __get__(self, instance: object, owner: type) -> Callable[..., Any] | None:  # type: ignore[override]
        """None if the library does not have it."""
        return None


class HandleFunction(ValueFunction):
    """A C function that makes an object; a null pointer means that it could not."""

    def __init__(self, *parameters: Any) -> None:
        super().__init__(*parameters, result=ctypes.c_void_p)

    def bind(self, raw: Any, failure: Failure) -> Callable[..., Any]:
        """The function; it raises an error for a null pointer."""
        raw.argtypes, raw.restype = self.parameters, self.result
        name = self.name

        def call(*arguments: Any) -> int:
            handle: int | None = raw(*arguments)
            if handle is None:
                raise failure(name, BAD_ALLOC)
            return handle

        return call


BAD_ALLOC = 200000
"""The status that is used for a null pointer: such functions can only fail to allocate."""


class Functions:
    """A set of C functions; subclasses declare them, a line each."""

    def __init__(self, libraries: Sequence[Library], failure: Failure) -> None:
        missing = []
        for name, declared in self.declared().items():
            raw = next(filter(None, (library.find(name) for library in libraries)), None)
            if raw is not None:
                setattr(self, name, declared.bind(raw, failure))
            elif not isinstance(declared, NewStatusFunction):
                missing.append(name)
        if missing:
            paths = ", ".join(library.path for library in libraries)
            raise LibraryError(
                f"expected CANN 8.1 or newer, found no {', '.join(missing)} in {paths}"
            )

    @classmethod
    def declared(cls) -> dict[str, ValueFunction]:
        """The functions that the class declares."""
        return {
            name: value for name, value in vars(cls).items() if isinstance(value, ValueFunction)
        }
