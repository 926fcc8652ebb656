"""A call on a device cut into steps: what each takes in our code, and what in CANN's.

The steps are methods of ``devices/cann``, wrapped while a measurement runs. Where a step begins or
ends, the wrapper notes the time and how much time was spent in C so far; the time in between
belongs to the innermost step that is open. What a wrapper itself takes is measured with empty
functions, and subtracted.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from npucall_server.devices.cann import lane as lane_module
from npucall_server.devices.cann import launch as launch_module
from npucall_server.devices.cann.descriptors import KeptDescriptors
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.stopwatch import Stopwatch
from npucall_server.devices.cann.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from ctypes import c_int64

REST = "the rest of the lane: layout, outputs, reply"
TO_LANE, FROM_LANE = "turn, to the lane's thread", "back to the caller's thread"
DESCRIPTORS, BETWEEN, PHASE_TWO = "descriptors", "between the phases: workspace, check", "phase two"
_METHODS: tuple[tuple[Any, str, str], ...] = (
    (Lane, "run", REST),
    (Transfer, "reserve", "reserve memory"),
    (Transfer, "stage", "stage: clear, copy to pinned memory"),
    (Transfer, "copy_in", "copy in"),
    (launch_module, "_phase_one", "phase one"),
    (Transfer, "copy_out", "copy out"),
    (Lane, "_synchronise", "synchronise"),
    (Transfer, "collect", "collect the outputs"),
    (Stopwatch, "mark", "events: record"),
    (Stopwatch, "between", "events: time between two"),
)
STEPS = (
    TO_LANE, "reserve memory", DESCRIPTORS, "stage: clear, copy to pinned memory", "copy in",
    "phase one", BETWEEN, PHASE_TWO, "copy out", "synchronise", "collect the outputs",
    "events: record", "events: time between two", REST, FROM_LANE,
)  # fmt: skip
"""In the order of a call."""


class Step(NamedTuple):
    """Microseconds of a step."""

    ours: float
    in_c: float


class Steps:
    """Notes the steps of calls, one call at a time; ``in_c``: the nanoseconds in C so far."""

    def __init__(self, in_c: c_int64) -> None:
        self._in_c = in_c
        self._notes: list[tuple[str | None, int, int]] = []
        """A step begins, or (None) the one that began last ends: when, and ``in_c`` then."""
        self._inside, self._outside = self._own_cost()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Wraps the methods that are steps."""
        with ExitStack() as patches:
            for owner, name, step in _METHODS:
                wrapped = self._step(step, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, wrapped))
            launch = self._launch(lane_module.launch)
            patches.enter_context(mock.patch.object(lane_module, "launch", launch))
            descriptors = self._both_ends(DESCRIPTORS, KeptDescriptors.of)
            patches.enter_context(mock.patch.object(KeptDescriptors, "of", descriptors))
            yield

    def of(self, run: Callable[[], object]) -> dict[str, Step]:
        """The steps of one call; run while they are ``noted``."""
        self._notes.clear()
        self._step(TO_LANE, run)()
        return self._cut()

    def _cut(self) -> dict[str, Step]:
        """The time between two notes belongs to the step that was open."""
        ours, in_c = dict.fromkeys(STEPS, 0.0), dict.fromkeys(STEPS, 0.0)
        open_steps: list[str] = []
        _, time_before, in_c_before = self._notes[0]
        for step, now, in_c_now in self._notes:
            if open_steps:
                in_c[open_steps[-1]] += in_c_now - in_c_before
                ours[open_steps[-1]] += now - time_before - (in_c_now - in_c_before)
            if step is not None:
                if open_steps:
                    ours[open_steps[-1]] -= self._outside
                ours[step] -= self._inside
                open_steps.append(step)
            elif open_steps.pop() == REST:
                open_steps[-1] = FROM_LANE
            time_before, in_c_before = now, in_c_now
        return {step: Step(ours[step] / 1e3, in_c[step] / 1e3) for step in STEPS}

    def _step(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        note, clock, in_c = self._notes.append, time.perf_counter_ns, self._in_c

        def wrapped(*arguments: Any) -> Any:
            note((step, clock(), in_c.value))
            try:
                return function(*arguments)
            finally:
                note((None, clock(), in_c.value))

        return wrapped

    def _launch(self, launch: Callable[..., int]) -> Callable[..., int]:
        """Phase two is what is left of ``launch`` without phase one and the callback."""

        def noted(*arguments: Any) -> int:
            *others, before_phase_two = arguments
            return launch(*others, self._step(BETWEEN, before_phase_two))

        return self._step(PHASE_TWO, noted)

    def _both_ends(
        self, step: str, method: Callable[..., AbstractContextManager[Any]]
    ) -> Callable[..., AbstractContextManager[Any]]:
        """A method with a context manager: its beginning and its end are the step."""

        class Noted:
            def __init__(noted, *arguments: Any) -> None:  # noqa: N805  # two selves
                noted.manager = self._step(step, method)(*arguments)

            def __enter__(noted) -> Any:  # noqa: N805  # likewise
                return self._step(step, noted.manager.__enter__)()

            def __exit__(noted, *error: object) -> Any:  # noqa: N805  # likewise
                return self._step(step, noted.manager.__exit__)(*error)

        return lambda *arguments: Noted(*arguments)

    def _own_cost(self) -> tuple[float, float]:
        """Nanoseconds that wrapping adds inside of a step, and outside of it."""

        def nothing() -> None:
            pass

        wrapped = self._step("", nothing)
        inside, whole, plain = [], [], []
        for _ in range(5000):
            start = time.perf_counter_ns()
            nothing()
            middle = time.perf_counter_ns()
            wrapped()
            end = time.perf_counter_ns()
            plain.append(middle - start)
            whole.append(end - middle)
            (_, first, _), (_, last, _) = self._notes
            inside.append(last - first)
            self._notes.clear()
        within = statistics.median(inside)
        clock = statistics.median(plain)
        return within, statistics.median(whole) - within - clock


def medians(calls: Sequence[dict[str, Step]]) -> dict[str, Step]:
    """The median of each step over calls."""
    return {
        step: Step(
            statistics.median(call[step].ours for call in calls),
            statistics.median(call[step].in_c for call in calls),
        )
        for step in STEPS
    }
