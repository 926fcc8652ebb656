"""A small caller beside one that sends a gibibyte a call: how slow its slowest calls get.

Beside that stands how slow they get while as many processes do nothing but copy memory as the large
caller and the server keep busy: what cores that others use cost, whatever a server does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from cases import AS_IT_COMES, TENSORS
from figures import KIB, MIB, Series, compared, size_text
from workers import Worker, running_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

P99 = "p99"
_COPYING = 2
_COPY = """
import numpy
source = numpy.ones(1 << 26, numpy.float32)
target = source.copy()
while True:
    numpy.copyto(target, source)
"""
_STARTING_SECONDS = 1.0


@dataclass(frozen=True)
class BesideCase:
    """One caller of small calls, and one of large ones, each a process of its own."""

    rounds: int = 3
    small: int = KIB
    large: int = 256 * MIB
    calls: int = 1000
    """Of the small caller when alone."""
    large_calls: int = 3
    """Of the large one, a round."""

    def text(self) -> str:
        """How the name of its series begins."""
        return (
            f"{size_text(self.small)}, 1 caller beside calls of {self.large * TENSORS // MIB} MiB"
        )

    def series(self) -> list[Series]:
        """How many times as long its slowest calls take as alone, and as beside the copying."""
        return [
            Series(
                f"{self.text()}, {P99} / {other}", "lower", "ms", P99, self.small, 1, AS_IT_COMES,
                "float32",
            )
            for other in ("alone", f"beside {_COPYING} processes that copy")
        ]  # fmt: skip

    def figures(self) -> Iterator[Figure]:
        """Measures in turn: alone, beside the large caller, beside the copying."""
        with (
            running_servers() as servers,
            Worker(AS_IT_COMES, servers.ours.target) as small,
            Worker(AS_IT_COMES, servers.ours.target) as large,
            ThreadPoolExecutor(1) as pool,
        ):
            for worker, size in (small, self.small), (large, self.large):
                worker.ask("check")
                worker.ask("tensors", size, "float32")
                worker.ask("open", 1)
                worker.ask("once")
            alone, beside, copying = [], [], []
            for _ in range(self.rounds):
                alone.append(self._p99(small))
                others = pool.submit(large.ask, "measure", self.large_calls)
                samples: list[float] = []
                while not others.done():
                    samples += small.ask("measure", 100)["latencies"]
                beside.append(_p99(samples))
                with _copying(_COPYING):
                    copying.append(self._p99(small))
        for series, others in zip(self.series(), (alone, copying), strict=True):
            yield compared(series, beside, others)

    def _p99(self, small: Worker) -> float:
        return _p99(small.ask("measure", self.calls)["latencies"])


@contextmanager
def _copying(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", _COPY]) for _ in range(count)]
    time.sleep(_STARTING_SECONDS)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _p99(latencies: list[float]) -> float:
    """In milliseconds."""
    return quantiles(latencies, n=100)[-1] * 1e3
