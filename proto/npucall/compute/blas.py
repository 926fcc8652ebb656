"""The threads of NumPy's BLAS: one, where threads of our own divide the work.

Two threads that each multiply small matrices with all threads of OpenBLAS wait for each other most
of the time: attention and convolution then take up to ten times as long.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)
"""Of OpenBLAS's functions: in wheels of NumPy since 2.0, and before; of distributions."""


class _Library(NamedTuple):
    get: Any
    set: Any


class _Holding:
    """How many hold BLAS to one thread now, and how many it had before."""

    lock = threading.Lock()
    count = before = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it each product of matrices takes one thread, in all threads of this process.

    Does nothing where NumPy has another BLAS than OpenBLAS.
    """
    library = _library()
    if library is None:
        yield
        return
    with _Holding.lock:
        if not _Holding.count:
            _Holding.before = library.get()
            library.set(1)
        _Holding.count += 1
    try:
        yield
    finally:
        with _Holding.lock:
            _Holding.count -= 1
            if not _Holding.count:
                library.set(_Holding.before)


@cache
def _library() -> _Library | None:
    """OpenBLAS, where it is among the libraries that NumPy's own needs."""
    try:
        numpy = ctypes.PyDLL(import_module("numpy.linalg._umath_linalg").__file__)
    except (ImportError, OSError):
        return None
    for name in _NAMES:
        found = (getattr(numpy, name.format(verb), None) for verb in ("get", "set"))
        if None not in (library := _Library(*found)):
            return library
    return None
