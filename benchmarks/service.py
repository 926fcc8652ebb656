"""Cases through the service: every way and the yardstick in turn, in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cases import CALLS, IN_PROCESS, Case, Sample, besides, quantities, series_of
from figures import Figure, compared
from process import cpu_seconds
from workers import Worker, available, running_servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases import Beside
    from workers import Servers

Samples = Mapping[str, "Sequence[Sample]"]


class Bench:
    """The servers, and workers that have been warmed with a call of 16 MiB each."""

    def __init__(self, servers: Servers, workers: ExitStack) -> None:
        self._servers = servers
        self._open = workers
        self._workers: dict[str, Worker] = {}

    def figures(self, case: Case) -> Iterator[Figure]:
        """Measures a case. What is not available here gives figures without numbers."""
        ways = ["yardstick", *filter(available, case.ways)]
        samples = self.samples(case, ways)
        for quantity in quantities(case):
            theirs = [quantity.of(case, sample) for sample in samples["yardstick"]]
            for way in (*case.ways, "yardstick"):
                series = series_of(case, quantity, way)
                if way in samples and way != IN_PROCESS:
                    ours = [quantity.of(case, sample) for sample in samples[way]]
                    yield compared(series, ours, theirs)
                elif way != IN_PROCESS:
                    yield Figure(series)
        for beside in besides(case):
            yield _compared(case, beside, samples)

    def samples(self, case: Case, ways: Sequence[str]) -> Samples:
        workers = {way: self._worker(way) for way in ways}
        calls = {}
        for way, worker in workers.items():
            worker.ask("tensors", case.size, case.dtype)
            worker.ask("open", case.callers)
            calls[way] = _calls(worker, case)
        samples: dict[str, list[Sample]] = {way: [] for way in ways}
        for way in (way for index in range(case.rounds) for way in in_turn(ways, index)):
            samples[way].append(self._sample(way, case, calls[way]))
        for worker in workers.values():
            worker.ask("tensors", 0, case.dtype)
        return samples

    def _sample(self, way: str, case: Case, calls: int) -> Sample:
        worker, pid = self._workers[way], self._servers.of(way).pid
        if way != "yardstick":  # a server of ours gives memory back that was not used for a while
            worker.ask("once")
        before = cpu_seconds(pid)
        answer = worker.ask("measure", calls)
        at_once = CALLS.get(way, 1)
        return Sample(
            calls * case.callers * at_once, answer["seconds"],
            [seconds / at_once for seconds in answer["latencies"]], answer["cpu_seconds"],
            cpu_seconds(pid) - before,
        )  # fmt: skip

    def _worker(self, way: str) -> Worker:
        if way not in self._workers:
            worker = self._open.enter_context(Worker(way, self._servers.of(way).target))
            worker.ask("check")
            worker.ask("warm")
            self._workers[way] = worker
        return self._workers[way]


@contextmanager
def service() -> Iterator[Bench]:
    """Everything that cases need, in processes of their own."""
    with running_servers() as servers, ExitStack() as workers:
        yield Bench(servers, workers)


def _calls(worker: Worker, case: Case) -> int:
    """How many calls of each caller take about the case's seconds."""
    seconds = worker.ask("once")["seconds"]
    if seconds < case.seconds:  # the first one is slow, which matters only to those that are quick
        seconds = worker.ask("once")["seconds"]
    return max(1, round(case.seconds / seconds / case.callers))


def in_turn(ways: Sequence[str], index: int) -> Sequence[str]:
    """Whoever is first in one round is last in the next."""
    return ways[::-1] if index % 2 else ways


def _compared(case: Case, beside: Beside, samples: Samples) -> Figure:
    series = beside.series(case)
    if beside.way not in samples or beside.other not in samples:
        return Figure(series)
    ours, theirs = (
        [beside.quantity.of(case, sample) for sample in samples[way]]
        for way in (beside.way, beside.other)
    )
    return compared(series, ours, theirs)
