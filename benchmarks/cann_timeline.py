"""When each step of each call ran, on which lane: as spans, and as a trace that browsers show.

Steps on the host are timed by wrapping their methods; steps on the device by the events that the
lane records, which on the simulator tell the time of Python's own clock.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from npucall_server.devices.cann import launch as launch_module
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cann_device import Case, Npu

_HOST_STEPS: tuple[tuple[str, Any, str], ...] = (
    ("stage", Transfer, "stage"),
    ("plan", launch_module, "_phase_one"),
    ("collect", Transfer, "collect"),
)
_DEVICE_STEPS = ("copy in", None, "run", "copy out")
"""Between two marks of a lane; nothing lies between the copy and the launch."""


class Span(NamedTuple):
    """A step of a call, in microseconds."""

    lane: int
    call: int
    place: str
    """``host`` or ``device``."""
    step: str
    start: float
    end: float


class Overlap(NamedTuple):
    """How much of some calls went on at once, in milliseconds."""

    wall: float
    """From the first step's start to the last one's end."""
    steps: float
    """The length of all steps."""
    copies_beside_runs: float
    """While one lane ran and another one copied."""


def spans_of(
    npu: Npu, case: Case, arrivals: Sequence[float], time_of: Callable[[int], float]
) -> list[Span]:
    """The spans of calls that come so many seconds after the first one, which starts at 0.

    ``time_of``: microseconds at which an event was passed.
    """
    noted = _Noted(time_of)

    def caller(arrival: float) -> None:
        time.sleep(arrival)
        npu.run(case)

    with noted.while_it_runs(), ThreadPoolExecutor(len(arrivals)) as callers:
        list(callers.map(caller, arrivals))
    first = min(span.start for span in noted.spans)
    return sorted(s._replace(start=s.start - first, end=s.end - first) for s in noted.spans)


def event_clock(runtime: ctypes.CDLL) -> Callable[[int], float]:
    """Microseconds at which an event was passed, asked of libascendcl."""
    get = runtime.aclrtEventGetTimestamp
    get.argtypes = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)

    def time_of(event: int) -> float:
        told = ctypes.c_uint64()
        if (status := get(event, ctypes.byref(told))) != 0:
            raise RuntimeError(f"aclrtEventGetTimestamp: {status}")
        return told.value

    return time_of


def overlap_of(spans: Sequence[Span]) -> Overlap:
    """How much of them went on at once."""
    copies = [span for span in spans if span.step in ("copy in", "copy out")]
    runs = [span for span in spans if span.step == "run"]
    both = [
        (max(copy.start, run.start), min(copy.end, run.end))
        for copy, run in itertools.product(copies, runs)
        if copy.lane != run.lane and copy.start < run.end and run.start < copy.end
    ]
    wall = max(span.end for span in spans) - min(span.start for span in spans)
    steps = sum(span.end - span.start for span in spans)
    return Overlap(wall / 1e3, steps / 1e3, _covered(both) / 1e3)


def trace_of(runs: Mapping[str, Sequence[Span]]) -> dict[str, Any]:
    """Chrome's trace event format: a process for each run, a thread for each lane and place."""
    events: list[dict[str, Any]] = []
    for process, (title, spans) in enumerate(runs.items(), 1):
        events.append(_name("process_name", title, process, 0))
        rows = sorted({(span.lane, -len(span.place), span.place) for span in spans})
        threads = {(lane, place): number for number, (lane, _, place) in enumerate(rows, 1)}
        for (lane, place), thread in threads.items():
            events.append(_name("thread_name", f"lane {lane}: {place}", process, thread))
        events += (
            {
                "name": span.step,
                "cat": span.place,
                "ph": "X",
                "ts": span.start,
                "dur": span.end - span.start,
                "pid": process,
                "tid": threads[span.lane, span.place],
                "args": {"call": span.call, "lane": span.lane},
            }
            for span in spans
        )
    return {"displayTimeUnit": "ms", "traceEvents": events}


class _Noted:
    """The spans of calls while they run."""

    def __init__(self, time_of: Callable[[int], float]) -> None:
        self.spans: list[Span] = []
        self._time_of = time_of
        self._calls = itertools.count(1)
        self._lanes: list[Lane] = []
        self._here = threading.local()  # the lane and the call of this thread

    @contextmanager
    def while_it_runs(self) -> Iterator[None]:
        with ExitStack() as patches:
            patches.enter_context(mock.patch.object(Lane, "go_on", self._run(Lane.go_on)))
            for step, owner, name in _HOST_STEPS:
                timed = self._host_step(step, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, timed))
            yield

    def _run(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(lane: Lane, *arguments: Any) -> Any:
            if lane not in self._lanes:
                self._lanes.append(lane)
            self._here.of = self._lanes.index(lane) + 1, next(self._calls)
            result = run(lane, *arguments)
            events = lane._stopwatch._events  # noqa: SLF001  # no test, but it looks inside as well
            times = [self._time_of(event) for event in events]
            for step, (start, end) in zip(_DEVICE_STEPS, itertools.pairwise(times), strict=True):
                if step is not None:
                    self.spans.append(Span(*self._here.of, "device", step, start, end))
            return result

        return noted

    def _host_step(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            start = time.perf_counter_ns() / 1e3
            try:
                return function(*arguments)
            finally:
                end = time.perf_counter_ns() / 1e3
                self.spans.append(Span(*self._here.of, "host", step, start, end))

        return noted


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """The length of what they cover together."""
    covered, reached = 0.0, 0.0
    for start, end in sorted(intervals):
        covered += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return covered


def _name(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
