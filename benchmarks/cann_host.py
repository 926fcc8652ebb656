"""The host's time of a call on a device: in our code and in CANN's."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from cann_boundary import Boundary
from cann_device import opened
from cann_steps import Step, Steps, medians

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WARM_UP = 20


class HostTime(NamedTuple):
    """Microseconds of a call: medians over the calls of a round, then over rounds."""

    whole: float
    """With C functions as they are, nothing exchanged and nothing wrapped."""
    ours: float
    """Without the time in C."""
    in_c: float
    empty: float
    """While every C function returns 0 at once."""
    steps: dict[str, Step]
    functions: dict[str, tuple[float, float]]
    """Of each C function: calls in a call, and microseconds of one."""


def host_time(size: int, rounds: int, calls: int, **settings: object) -> HostTime:
    """Measures KlDivBackward with tensors of that many bytes on a device with these settings."""
    boundary = Boundary()
    with ExitStack() as stack:
        with boundary.watches():
            npu = stack.enter_context(opened(**settings))
            case = npu.kl_div_backward(size)
            npu.run(case)
        stack.callback(boundary.leave)

        def run() -> object:
            return npu.run(case)

        for _ in range(min(_WARM_UP, calls)):
            run()
        measured = [_round(boundary, run, calls) for _ in range(rounds)]
    return HostTime(
        *(statistics.median(values) for values in zip(*(m[:4] for m in measured), strict=True)),
        medians([m.steps for m in measured]),
        {
            name: (statistics.median(m.functions[name][0] for m in measured), 
                   statistics.median(m.functions[name][1] for m in measured))
            for name in measured[0].functions
        },
    )


def _round(boundary: Boundary, run: Callable[[], object], calls: int) -> HostTime:
    boundary.leave()
    whole = statistics.median(_nanoseconds(run) for _ in range(calls))
    boundary.empty()
    empty = statistics.median(_nanoseconds(run) for _ in range(calls))
    boundary.time()
    ...
