"""A small caller beside one that sends a gibibyte a call: how slow its slowest calls get.

Beside that stands how slow they get while as many processes do nothing but copy memory as the large
caller and the server keep busy: what cores that others use cost, whatever a server does. And how
slow they get where the server was started with short chunks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

from cases import AS_IT_COMES, TENSORS
from figures import KIB, MIB, Series, compared, size_text
from workers import Worker, running_servers

from npucall_client.testing import running_server

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


class _Callers(NamedTuple):
    """A process each, of one server."""

    small: Worker
    large: Worker


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
    chunk_bytes: int = 256 * KIB
    """Of the other server, which gets one large call a round: it takes twice as long there."""

    def text(self) -> str:
        """How the name of its series begins."""
        return (
            f"{size_text(self.small)}, 1 caller beside calls of {self.large * TENSORS // MIB} MiB"
        )

    def series(self) -> list[Series]:
        """How many times as long its slowest calls take as alone, and as beside the copying."""
        names = (
            f"{P99} / alone",
            f"{P99} / beside {_COPYING} processes that copy",
            f"chunks of {size_text(self.chunk_bytes)}, {P99} / alone",
        )
        return [
            Series(
                f"{self.text()}, {name}", "lower", "ms", P99, self.small, 1, AS_IT_COMES, "float32"
            )
            for name in names
        ]

    def figures(self) -> Iterator[Figure]:
        """Measures in turn: alone, beside a large caller of each server, beside the copying."""
        with (
            running_servers() as servers,
            running_server("--chunk-bytes", str(self.chunk_bytes)) as other,
            self._callers(servers.ours.target) as callers,
            self._callers(other.target) as callers_of_other,
        ):
            alone, beside, beside_short, copying = [], [], [], []
            for _ in range(self.rounds):
                alone.append(self._p99(callers.small))
                beside.append(_beside(callers, self.large_calls))
                beside_short.append(_beside(callers_of_other, 1))
                with _copying(_COPYING):
                    copying.append(self._p99(callers.small))
        pairs = ((beside, alone), (beside, copying), (beside_short, alone))
        for series, (ours, theirs) in zip(self.series(), pairs, strict=True):
            yield compared(series, ours, theirs)

    @contextmanager
    def _callers(self, target: str) -> Iterator[_Callers]:
        """Both, warmed by a call."""
        with Worker(AS_IT_COMES, target) as small, Worker(AS_IT_COMES, target) as large:
            for worker, size in (small, self.small), (large, self.large):
                worker.ask("check")
                worker.ask("tensors", size, "float32")
                worker.ask("open", 1)
                worker.ask("once")
            yield _Callers(small, large)

    def _p99(self, small: Worker) -> float:
        return _p99(small.ask("measure", self.calls)["latencies"])


def _beside(callers: _Callers, large_calls: int) -> float:
    """Of the small calls while the large ones go on."""
    samples: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(callers.large.ask, "measure", large_calls)
        while not others.done():
            samples += callers.small.ask("measure", 100)["latencies"]
        others.result()  # raises where it failed
    return _p99(samples)


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
