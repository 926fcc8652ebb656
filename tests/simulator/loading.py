"""Opens a library as CANN's users do: RTLD_LAZY, where ctypes alone is never lazy."""

import ctypes
import os
from pathlib import Path

_dlopen = ctypes.CDLL(None).dlopen
_dlopen.argtypes, _dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p


def opened(path: Path | str) -> ctypes.CDLL:
    """The library, though it lacks functions that nobody calls. Raises OSError."""
    handle = _dlopen(os.fsencode(path), os.RTLD_LAZY)
    if handle is None:
        raise OSError(f"{path}: cannot be opened, not even lazily")
    return ctypes.CDLL(str(path), handle=handle)
