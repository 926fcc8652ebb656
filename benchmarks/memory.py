"""Peaks of memory: client and server, each a fresh process a measurement, beside the yardstick's.

A peak is what a process has at most while calls are made, less what it had with the input arrays
made and one small call behind it. So results, messages and whatever is kept count, inputs do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import AS_IT_COMES, KEPT, NOT_SENT, PIPELINE, UNARY
from figures import MIB, Series, compared, size_text
from process import forget_peak, peak_bytes, resident_bytes
from service import in_turn
from workers import Worker, running_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

PEAK = "peak memory"
ENDS = (f"client {PEAK}", f"server {PEAK}")
QUICK_WAYS = (AS_IT_COMES, KEPT)
ALL_WAYS = (*QUICK_WAYS, NOT_SENT, UNARY, PIPELINE)
"""Shared memory is left out: the region is known beforehand, and counts for both processes."""


@dataclass(frozen=True)
class MemoryCase:
    """Calls during which memory is looked at."""

    ways: tuple[str, ...]
    rounds: int = 3
    size: int = 16 * MIB
    callers: int = 4
    calls: int = 2
    """Of each caller."""

    def text(self) -> str:
        """How the names of its series begin."""
        return f"{size_text(self.size)}, {self.callers} callers, {PEAK}"

    def series(self) -> list[Series]:
        """All series: of both ends, for each way and the yardstick."""
        return [self._series(end, way) for end in ENDS for way in (*self.ways, "yardstick")]

    def figures(self) -> Iterator[Figure]:
        """Measures."""
        ways = ("yardstick", *self.ways)
        peaks: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for way in (way for index in range(self.rounds) for way in in_turn(ways, index)):
            peaks[way].append(self._peaks(way))
        for end, name in enumerate(ENDS):
            theirs = [peak[end] for peak in peaks["yardstick"]]
            for way in (*self.ways, "yardstick"):
                ours = [peak[end] for peak in peaks[way]]
                yield compared(self._series(name, way), ours, theirs)

    def _series(self, end: str, way: str) -> Series:
        name = f"{self.text().removesuffix(PEAK)}{end}"
        if way != AS_IT_COMES:
            name += f", {way}"
        return Series(name, "lower", "MiB", end, self.size, self.callers, way, "float32")

    def _peaks(self, way: str) -> tuple[float, float]:
        with running_servers() as servers, Worker(way, servers.of(way).target) as worker:
            pid = servers.of(way).pid
            worker.ask("check")
            client = worker.ask("tensors", self.size, "float32")["resident"]
            server = resident_bytes(pid)
            worker.ask("open", self.callers)
            forget_peak(pid)
            peak = worker.ask("measure", self.calls)["peak"]
            return (peak - client) / MIB, (peak_bytes(pid) - server) / MIB
