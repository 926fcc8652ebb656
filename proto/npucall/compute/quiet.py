"""How NumPy computes for us: it does not warn, and broadcasts rows without copies of them.

NumPy's ufuncs copy what is broadcast until a buffer is full, of 8,192 elements as it comes. A row
of at least a buffer is not copied: a factor for each row of 1,024, or one row for all, then takes
0.12 ns an element instead of 0.2. Smaller buffers make changes of dtype slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

_BUFFER = 1 << 10
"""Elements."""


class _Quiet(threading.local):
    """A context of each thread, made once: to make one takes ten times as long as to use it.

    Until 2.0 NumPy keeps its settings for a thread, not for a context.
    """

    def __init__(self) -> None:
        self._run = Context().run
        self._inside = False
        if _HAS_CONTEXTS:
            self._run(_set)

    def __call__(self, compute: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What a function answers."""
        if self._inside:
            return compute(*args, **kwargs)
        self._inside = True
        try:
            if _HAS_CONTEXTS:
                return self._run(compute, *args, **kwargs)
            with np.errstate(all="ignore"):
                before = np.setbufsize(_BUFFER)
                try:
                    return compute(*args, **kwargs)
                finally:
                    np.setbufsize(before)
        finally:
            self._inside = False


def _set() -> None:
    np.seterr(all="ignore")
    np.setbufsize(_BUFFER)


_HAS_CONTEXTS = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
quietly = _Quiet()
"""Calls a function in this thread; one that it calls may do so too."""
