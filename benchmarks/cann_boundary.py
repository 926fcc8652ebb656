"""The C functions that a device calls: as they are, timed, or replaced by one that does nothing."""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
BUILD = HERE.parent / "build"
_INT64 = ctypes.c_int64
_CLOCK = {
    "clock_of": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    "clock_calls": (_INT64, ctypes.c_int),
    "clock_nanoseconds": (_INT64, ctypes.c_int),
}


class Spent(NamedTuple):
    """What went into a C function."""

    calls: int
    nanoseconds: int


class Boundary:
    """The ctypes functions that were made while it ``watches``.

    A ctypes function holds the address of the C function, which is exchanged: timing adds two
    looks at the clock, in C; whatever ctypes and Python do for the call stays outside of that time.
    """

    def __init__(self) -> None:
        self._clock = _compiled_clock()
        self._nothing = _address(self._clock.clock_nothing)
        self.total = _INT64.in_dll(self._clock, "clock_total")
        """Its ``value``: nanoseconds in C so far, in all threads, while calls were timed."""
        self._functions: list[tuple[str, Any]] = []
        self._own: dict[str, int] = {}

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Takes note of the C functions that are looked up."""
        noted = self._functions

        class Library(ctypes.CDLL):
            def __getitem__(self, name: str) -> Any:
                function = super().__getitem__(name)
                noted.append((name, function))
                return function

        with mock.patch.object(ctypes, "CDLL", Library):
            yield
        # Without types it was only looked for.
        self._functions = [(name, f) for name, f in noted if f.argtypes is not None]
        self._own = {name: _address(function) for name, function in self._functions}
        self._timed = {
            name: self._clock.clock_of(index, address)
            for index, (name, address) in enumerate(self._own.items())
        }

    def leave(self) -> None:
        """Calls go where they should."""
        self._exchange(self._own)

    def time(self) -> None:
        """Calls go where they should, and are timed."""
        self._exchange(self._timed)

    def empty(self) -> None:
        """Calls return 0 at once."""
        self._exchange(dict.fromkeys(self._own, self._nothing))

    def spent(self) -> dict[str, Spent]:
        """What went into each function so far, while it was timed."""
        clock = self._clock
        return {
            name: Spent(clock.clock_calls(index), clock.clock_nanoseconds(index))
            for index, name in enumerate(self._own)
        }

    def _exchange(self, addresses: dict[str, int]) -> None:
        for name, function in self._functions:
            ctypes.c_void_p.from_address(ctypes.addressof(function)).value = addresses[name]


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _compiled_clock() -> ctypes.CDLL:
    library = BUILD / "cann_clock.so"
    library.parent.mkdir(exist_ok=True)
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(["g++", *flags, str(HERE / "cann_clock.cpp")], check=True)
    clock = ctypes.CDLL(str(library))
    for name, (result, *parameters) in _CLOCK.items():
        function = clock[name]
        function.restype, function.argtypes = result, parameters
        setattr(clock, name, function)
    return clock
