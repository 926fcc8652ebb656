"""Memory of this process: new memory that nobody has written, and freed memory that it keeps.

All memory whose bytes may leave the process comes from here. It may hold what others have freed, so
the caller must write all of it. The debug mode fills it with a pattern; a test then sees a number
that it does not expect where bytes were forgotten.

Freed memory is kept for the next call on Linux with glibc, which returns a large block to the
kernel as soon as it is freed; the next one would cost a page fault for every 4 KiB, more than to
copy what is in it [src:page-faults].
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer

PATTERN = 0xA5
"""Of each byte: -2.9e-16 as float32, -1.2e-127 as float64, -0.022 as float16, 165 as uint8."""
_SMALL = 1 << 14
"""Bytes below which Python's own memory is there sooner than NumPy's."""

# Parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_LARGEST = 2**31 - 1
_TOP_PAD = 16 * 2**20
_OWN_SIZES = Path("/proc/self/statm")


class _Mode:
    """Of this process."""

    poisoned = False


def poison(on: bool = True) -> None:  # noqa: FBT001, FBT002  # a switch
    """Turns the debug mode of this process on, or off."""
    _Mode.poisoned = on


def is_poisoned() -> bool:
    """Whether the debug mode is on."""
    return _Mode.poisoned


def fresh(size: int) -> Buffer:
    """So many bytes of anything."""
    memory = bytearray(size) if size < _SMALL else np.empty(size, np.uint8).data
    return spoilt(memory) if _Mode.poisoned else memory


def fresh_array(shape: Sequence[int], dtype: np.dtype[Any] | type[Any]) -> AnyArray:
    """A row-major array of anything."""
    array = np.empty(shape, dtype)
    if _Mode.poisoned:
        spoilt(array.reshape(-1).view(np.uint8).data)
    return array


def spoilt(memory: Buffer) -> Buffer:
    """The memory, filled with the pattern."""
    if len(memory):
        np.frombuffer(memory, np.uint8).fill(PATTERN)
    return memory


def keep(limit: int) -> bool:
    """From now on keeps up to ``limit`` freed bytes (at most 2 GiB); whether the platform can.

    Blocks of every size then come from one heap for all threads, because blocks that the kernel
    maps one by one would also go back to it one by one.
    """
    libc = _libc()
    if libc is None:
        return False
    settings = {
        _M_ARENA_MAX: 1,
        _M_MMAP_MAX: 0,
        _M_TRIM_THRESHOLD: min(limit, _LARGEST),
        _M_TOP_PAD: min(limit, _TOP_PAD),
    }
    answers = [libc.mallopt(name, value) for name, value in settings.items()]  # each, whatever
    return all(answers)


def give_back() -> bool:
    """Returns what is free to the kernel, until it is needed again; whether there was any."""
    libc = _libc()
    return libc is not None and bool(libc.malloc_trim(0))


def resident_bytes() -> int:
    """Memory that this process has now, in bytes; 0 where the system does not tell."""
    try:
        return int(_OWN_SIZES.read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


@cache
def _libc() -> Any:
    """The C library, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
