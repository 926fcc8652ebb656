"""A process with one client, which a benchmark tells what to do: a JSON object a line, each way.

``worker.py WAY TARGET``. The commands are the methods of ``Commands``; their answers are objects.
Memory that is kept, and peaks of memory, belong to a process: so each way has one of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from threading import Barrier
from typing import TYPE_CHECKING, Any

import numpy as np
import process
from cases import PROGRAM
from ways import WAYS, expected, tensors

if TYPE_CHECKING:
    from ways import Arrays, Runs

_SMALL, _WARM = 1 << 10, 16 << 20


class Commands:
    """What the benchmark can ask for."""

    def __init__(self, way: str, target: str) -> None:
        self._way, self._target = WAYS[way], target
        self._name = way
        self._arrays: Arrays = ()
        self._open = ExitStack()
        self._runs: Runs = []

    def check(self) -> dict[str, Any]:
        """A small call, whose numbers have to be right; whatever is loaded late is there then."""
        self.tensors(_SMALL, "float32")
        self.open(1)
        found = self._runs[0]()
        if not isinstance(found, np.ndarray):
            found = found.numpy()
        np.testing.assert_array_equal(found, expected(self._name, self._arrays))
        return {}

    def warm(self) -> dict[str, Any]:
        """A call of 16 MiB; a small one where all of it travels in one message."""
        self.tensors(_SMALL if self._name == PROGRAM else _WARM, "float32")
        self.open(1)
        self._runs[0]()
        return {}

    def tensors(self, size: int, dtype: str) -> dict[str, Any]:
        """From here on calls have tensors of that many bytes; answers the memory with these."""
        self._open.close()
        self._runs, self._arrays = [], ()
        self._arrays = tensors(size, dtype)
        process.forget_peak(os.getpid())
        return {"resident": process.resident_bytes(os.getpid())}

    def open(self, callers: int) -> dict[str, Any]:
        """Connects, for so many callers."""
        self._open.close()
        self._open = ExitStack()
        way: AbstractContextManager[Runs] = self._way(self._target, self._arrays, callers)
        self._runs = self._open.enter_context(way)
        return {}

    def once(self) -> dict[str, Any]:
        """Seconds of a call of the first caller."""
        start = time.perf_counter()
        self._runs[0]()
        _finish(self._runs[0])
        return {"seconds": time.perf_counter() - start}

    def measure(self, calls: int) -> dict[str, Any]:
        """Has each caller, a thread each, make so many calls one after the other."""
        ready = Barrier(len(self._runs) + 1)

        def caller(run: Any) -> list[float]:
            ready.wait()
            latencies = [_seconds(run) for _ in range(calls)]
            _finish(run)
            return latencies

        with ThreadPoolExecutor(len(self._runs)) as pool:
            callers = [pool.submit(caller, run) for run in self._runs]
            ready.wait()
            start, cpu = time.perf_counter(), time.process_time()
            latencies = [seconds for each in callers for seconds in each.result()]
        return {
            "seconds": time.perf_counter() - start,
            "latencies": latencies,
            "cpu_seconds": time.process_time() - cpu,
            "peak": process.peak_bytes(os.getpid()),
        }

    def close(self) -> None:
        """Disconnects."""
        self._open.close()


def _seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _finish(run: Any) -> None:
    """Waits for calls that are still in flight, where a way leaves some there."""
    if hasattr(run, "finish"):
        run.finish()


def main() -> None:
    """Does what each line says, until there are no more."""
    commands = Commands(*sys.argv[1:])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(commands, name)(*arguments)), flush=True)
    commands.close()


if __name__ == "__main__":
    main()
