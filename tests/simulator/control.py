"""Controls the simulator that is loaded in this process: faults, delays, and what it has seen."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TEXT = ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    # name: result, parameters
    "generation": (ctypes.c_int,),
    "reset": (None,),
    "set_fault": (ctypes.c_int, _TEXT, ctypes.c_int, ctypes.c_int, _TEXT),
    "clear_faults": (None,),
    "live_objects": (_TEXT,),
    "violations": (_TEXT,),
    "counters": (_TEXT,),
    "call_count": (ctypes.c_uint64, _TEXT),
    "set_kernels": (ctypes.c_int, _TEXT),
    "set_kernel_delay_us": (None, ctypes.c_uint64),
    "set_bandwidth": (None, ctypes.c_uint64),
    "set_memory": (None, ctypes.c_uint64),
    "set_soc": (ctypes.c_int, _TEXT),
    "hold": (None,),
    "let_go": (None,),
}


class Simulator:
    """The control functions of the loaded simulator."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = {}
        for name, (result, *parameters) in _FUNCTIONS.items():
            function = library[f"npucall_sim_{name}"]
            function.restype, function.argtypes = result, parameters
            self._functions[name] = function

    @classmethod
    def open(cls, lib64: Path) -> Simulator:
        """The simulator whose ``libascendcl.so`` is in this folder.

        A process can load one generation: the libraries of all have the same names.
        """
        return cls(ctypes.CDLL(str(lib64 / "libascendcl.so")))

    @property
    def generation(self) -> int:
        """81, 83 or 90."""
        return self._functions["generation"]()

    def reset(self) -> None:
        """Makes the simulator as it was when it was loaded; the environment is read again."""
        self._functions["reset"]()

    def fail(self, function: str, nth: int = 1, *, status: int, what: str = "return") -> None:
        """Lets a C function fail at its ``nth`` next call; ``"*"`` is any function.

        ``what``: ``"return"``; ``"at_sync"``, the work that the call submits fails, and the
        synchronise says so; ``"stall"``, that work does not end; ``"hang"``, the call does not
        return; both until the faults are cleared; ``"sticky"``, this call fails and every later one
        of its device; ``"crash"``, a segmentation fault; ``"tolerated"``, the status becomes the
        thread's last error, and the call goes on, to fail by another fault or not.
        """
        if self._functions["set_fault"](function.encode(), nth, status, what.encode()) != 0:
            raise ValueError(f"no such fault: {what!r} at call {nth} of {function!r}")

    def clear_faults(self) -> None:
        """Forgets all faults, and releases what hangs or stalls."""
        self._functions["clear_faults"]()

    def live_objects(self) -> dict[str, int]:
        """What the caller has not given back, by kind: ``{"aclTensor": 2, "aclrtMalloc": 1}``."""
        return self._json("live_objects")

    def violations(self) -> list[str]:
        """What would have been undefined behaviour since this was last asked, a line each."""
        return self._json("violations")

    def counters(self) -> dict[str, Any]:
        """Bytes and number of copies, allocations, launches, peaks; ``calls`` by function."""
        return self._json("counters")

    def call_count(self, function: str) -> int:
        """How often a C function was called."""
        return self._functions["call_count"](function.encode())

    def set_kernels(self, kernels: str) -> None:
        """``"python"``: launches compute; ``"none"``: they do nothing."""
        if self._functions["set_kernels"](kernels.encode()) != 0:
            raise ValueError(f"no such kernels: {kernels!r}")

    def set_delays(self, *, kernel_us: int = 0, bytes_per_second: int = 0) -> None:
        """Lets kernels and copies take time; 0 is no delay."""
        self._functions["set_kernel_delay_us"](kernel_us)
        self._functions["set_bandwidth"](bytes_per_second)

    def set_memory(self, size: int) -> None:
        """The bytes of memory that each device has."""
        self._functions["set_memory"](size)

    def set_soc(self, name: str) -> None:
        """The SoC that ``aclrtGetSocName`` answers and kernels compute for."""
        self._functions["set_soc"](name.encode())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stops every thread in the middle of its call, for races that tests want to see."""
        self._functions["hold"]()
        try:
            yield
        finally:
            self._functions["let_go"]()

    def _json(self, name: str) -> Any:
        return json.loads(self._functions[name]())
