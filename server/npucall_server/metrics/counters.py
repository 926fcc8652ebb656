"""Counts calls. The numbers are only added up when somebody asks."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from npucall_server.metrics import declared
from npucall_server.metrics.declared import BOUNDS_NS, Metric
from npucall_server.telemetry.log import Record

_MOST_UNCOUNTED = 256
"""Calls that wait to be counted. Counting many at a time costs less."""
_RUN = frozenset({"Execute", "ExecuteStream"})


class Buckets(NamedTuple):
    """A histogram: the number of calls in each bucket, and the seconds of all calls."""

    counts: tuple[int, ...]
    seconds: float


class MetricSample(NamedTuple):
    """A value of a metric. The values of its labels are in the order of the labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Buckets


class _Histogram:
    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.total_ns = 0

    def observe(self, nanoseconds: int) -> None:
        self.counts[bisect_left(BOUNDS_NS, nanoseconds)] += 1
        self.total_ns += nanoseconds

    def read(self) -> Buckets:
        return Buckets(tuple(self.counts), self.total_ns / 1e9)


class _Times:
    """Times of the calls of one operator that ran."""

    __slots__ = ("call", "copy_in", "copy_out", "plan", "queue", "run")

    def __init__(self) -> None:
        self.call, self.queue, self.run = _Histogram(), _Histogram(), _Histogram()
        self.plan, self.copy_in, self.copy_out = _Histogram(), _Histogram(), _Histogram()

    def observe(self, record: Record) -> None:
        self.call.observe(record.total_ns)
        self.queue.observe(record.queue_ns)
        self.run.observe(record.run_ns)
        if record.plan_ns:  # a device that has these phases
            self.plan.observe(record.plan_ns)
            self.copy_in.observe(record.copy_in_ns)
            self.copy_out.observe(record.copy_out_ns)

    def samples(self, operator: str) -> Iterator[MetricSample]:
        yield MetricSample(declared.CALL_SECONDS, (operator,), self.call.read())
        for phase in ("queue", "run", "plan", "copy_in", "copy_out"):
            read = getattr(self, phase).read()
            if any(read.counts):
                yield MetricSample(declared.PHASE_SECONDS, (operator, phase), read)


class _Sums:
    """Sums over the calls of one tenant, operator, method and carrier."""

    __slots__ = ("device_ns", "reasons", "request_bytes", "response_bytes", "times")

    def __init__(self, times: _Times) -> None:
        self.reasons: dict[str, int] = {}
        self.request_bytes = self.response_bytes = self.device_ns = 0
        self.times = times


class Counters:
    """Counts from any thread.

    ``operators``: the names that get their own series. The contract and the settings bound the
    numbers of methods, reasons and tenants.
    """

    def __init__(self, operators: Iterable[str]) -> None:
        self._operators = frozenset(operators)
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str, str, str], _Sums] = {}
        self._times: dict[str, _Times] = {}
        self._uncounted: deque[Record] = deque()

    def called(self, record: Record) -> None:
        """A call has been answered.

        Several calls are counted together, at the latest when somebody asks.
        """
        self._uncounted.append(record)
        if len(self._uncounted) >= _MOST_UNCOUNTED:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Counts the calls that wait. Called with the lock."""
        while self._uncounted:
            record = self._uncounted.popleft()
            operator = record.operator if record.operator in self._operators else ""
            reason = record.reason
            key = record.method, operator, record.tenant, record.carrier
            sums = self._sums.get(key) or self._new(key)
            sums.reasons[reason] = sums.reasons.get(reason, 0) + 1
            sums.request_bytes += record.request_bytes
            sums.response_bytes += record.response_bytes
            sums.device_ns += record.device_ns
            if reason == "OK" and record.method in _RUN:
                sums.times.observe(record)

    def samples(self) -> list[MetricSample]:
        """All that has been counted."""
        with self._lock:
            self._count()
            totals = [
                MetricSample(declared.CALLS, (*key, reason), count)
                for key, sums in self._sums.items()
                for reason, count in sums.reasons.items()
            ]
            times = [
                sample
                for operator, times in self._times.items()
                if any(times.call.counts)
                for sample in times.samples(operator)
            ]
            return [*totals, *self._amounts(), *times]

    def _amounts(self) -> Iterator[MetricSample]:
        """The sums that are not by method."""
        amounts: dict[tuple[str, str], list[int]] = {}
        for (_, operator, tenant, _), sums in self._sums.items():
            amount = amounts.setdefault((operator, tenant), [0, 0, 0])
            for index, more in enumerate((sums.request_bytes, sums.response_bytes, sums.device_ns)):
                amount[index] += more
        for labels, (request_bytes, response_bytes, device_ns) in amounts.items():
            yield MetricSample(declared.REQUEST_BYTES, labels, request_bytes)
            yield MetricSample(declared.RESPONSE_BYTES, labels, response_bytes)
            yield MetricSample(declared.DEVICE_SECONDS, labels, device_ns / 1e9)

    def _new(self, key: tuple[str, str, str, str]) -> _Sums:
        times = self._times.setdefault(key[1], _Times())
        return self._sums.setdefault(key, _Sums(times))
