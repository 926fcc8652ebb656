"""Keeps freed memory in the process, for the next call to use (Linux with glibc).

glibc returns a large block to the kernel as soon as it is freed, and the next one costs a page
fault for every 4 KiB, more than copying what is in it [src:page-faults]. Kept blocks are reused as
they are, so a call must never show memory that it has not written: what it does not provably write
is cleared.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from pathlib import Path
from typing import Any

# Parameters of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_LARGEST = 2**31 - 1
_TOP_PAD = 16 * 2**20
_OWN_SIZES = Path("/proc/self/statm")


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
