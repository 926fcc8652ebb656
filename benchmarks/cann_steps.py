"""A call on a device cut into steps: what each takes in our code, and what in CANN's.

The steps are methods of ``devices/cann``, wrapped while a measurement runs. Where a step begins or
ends, its wrapper notes the time and how much time went into C so far; the time in between belongs
to the innermost step that is open. What the wrappers themselves take is the difference to the same
calls without them, and is subtracted in equal parts.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from npucall_server.devices.cann import launch as launch_module
from npucall_server.devices.cann.descriptors import KeptDescriptors
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.launch import Launcher
from npucall_server.devices.cann.stopwatch import Stopwatch
from npucall_server.devices.cann.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from ctypes import c_int64

TO_LANE, FROM_LANE = "turn, to the lane's thread", "back to the caller's thread"
DESCRIPTORS, BETWEEN, PHASE_TWO = "descriptors", "between phases", "phase two"
REST = "memory map, outputs, reply"
_METHODS: tuple[tuple[str, Any, str], ...] = (
    (REST, Lane, "go_on"),  # what of it is in no other step
    ("reserve memory", Transfer, "reserve"),
    ("stage", Transfer, "stage"),
    ("copy in", Transfer, "send"),
    (DESCRIPTORS, KeptDescriptors, "arguments"),
    ("phase one", launch_module, "_phase_one"),
    ("copy out", Transfer, "fetch"),
    ("synchronise", Lane, "_synchronise"),
    ("collect", Transfer, "collect"),
    ("events: record", Stopwatch, "mark"),
    ("events: elapsed", Stopwatch, "between"),
)
STEPS = (
    TO_LANE, "reserve memory", "stage", "copy in", DESCRIPTORS, "phase one", BETWEEN, PHASE_TWO,
    "copy out", "synchronise", "collect", "events: record", "events: elapsed", REST, FROM_LANE,
)  # fmt: skip
"""In the order of a call."""


class Step(NamedTuple):
    """Microseconds of a step in a call."""

    ours: float
    in_c: float
    ends: float = 0
    """Beginnings and ends of wrapped methods that lie in it."""


class Steps:
    """Notes the steps of calls, one call at a time; ``in_c``: nanoseconds in C so far."""

    def __init__(self, in_c: c_int64) -> None:
        self._in_c = in_c
        self._notes: list[tuple[str | None, int, int]] = []
        """A step begins, or (None) the one that began last ends: when, and ``in_c`` then."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Wraps the methods that are steps."""
        with ExitStack() as patches:

            def wrap(owner: Any, name: str, wrapped: Callable[..., Any]) -> None:
                patches.enter_context(mock.patch.object(owner, name, wrapped))

            for step, owner, name in _METHODS:
                wrap(owner, name, self._step(step, getattr(owner, name)))
            wrap(Launcher, "launch", self._launch(Launcher.launch))
            yield

    def of(self, run: Callable[[], object]) -> dict[str, Step]:
        """The steps of one call, with what the wrappers take; run while they are ``noted``."""
        self._notes.clear()
        self._step(TO_LANE, run)()
        spent = {step: [0.0, 0.0, 0.0] for step in STEPS}
        open_steps: list[str] = []
        _, time_before, in_c_before = self._notes[0]
        for step, now, in_c_now in self._notes:
            if open_steps:
                here = spent[open_steps[-1]]
                here[0] += now - time_before - (in_c_now - in_c_before)
                here[1] += in_c_now - in_c_before
                here[2] += 1  # half of the wrapper that begins or ends lies here, half behind
            if step is not None:
                open_steps.append(step)
            elif open_steps.pop() == REST:
                open_steps[-1] = FROM_LANE
            if open_steps:
                spent[open_steps[-1]][2] += 1
            time_before, in_c_before = now, in_c_now
        return {step: Step(ns / 1e3, c / 1e3, ends) for step, (ns, c, ends) in spent.items()}

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
        """Phase two is what of ``launch`` is neither phase one nor the callback between them."""

        def noted(*arguments: Any) -> int:
            *others, before_phase_two = arguments
            return launch(*others, self._step(BETWEEN, before_phase_two))

        return self._step(PHASE_TWO, noted)


def medians(calls: Sequence[dict[str, Step]]) -> dict[str, Step]:
    """The median of each step over calls."""
    return {
        step: Step(*(median(values) for values in zip(*(c[step] for c in calls), strict=True)))
        for step in calls[0]
    }


def without_wrappers(steps: dict[str, Step], ours: float) -> dict[str, Step]:
    """Steps of calls that take ``ours`` in all without wrappers."""
    surplus = sum(step.ours for step in steps.values()) - ours
    of_one = surplus / sum(step.ends for step in steps.values())
    return {
        name: step._replace(ours=max(step.ours - step.ends * of_one, 0.0))
        for name, step in steps.items()
    }
