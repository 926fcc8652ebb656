"""The host's time of a call on a device: in our code and in CANN's."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cann_boundary import Boundary
from cann_device import opened
from cann_steps import Step, Steps, medians

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WARM_UP = 20


class CFunction(NamedTuple):
    """What a call spends in a C function."""

    calls: float
    microseconds: float
    """Of one call of the function."""


class HostTime(NamedTuple):
    """Microseconds of a call: medians of a round's calls; then of rounds."""

    whole: float
    """With C functions as they are, nothing exchanged and nothing wrapped."""
    ours: float
    """Without the time in C."""
    in_c: float
    empty: float
    """While every C function returns 0 at once."""
    steps: dict[str, Step]
    """With what their wrappers take."""
    functions: dict[str, CFunction]


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
        return _median([_round(boundary, run, calls) for _ in range(rounds)])


class ProgramTime(NamedTuple):
    """Microseconds of a step of a program: medians of a round's programs; then of rounds."""

    whole: float
    ours: float
    in_c: float
    empty: float


def program_time(size: int, steps: int, rounds: int, programs: int) -> ProgramTime:
    """Measures a chain of KlDivBackward, each of whose steps takes what the one before gave."""
    boundary = Boundary()
    with ExitStack() as stack:
        with boundary.watches():
            npu = stack.enter_context(opened())
            chain = npu.chain(npu.kl_div_backward(size), steps)
            npu.run_program(chain)
        stack.callback(boundary.leave)

        def run() -> object:
            return npu.run_program(chain)

        for _ in range(min(_WARM_UP, programs)):
            run()
        found = [_program_round(boundary, run, programs) for _ in range(rounds)]
    return ProgramTime(*(median(values) / steps for values in zip(*found, strict=True)))


def _program_round(boundary: Boundary, run: Callable[[], object], programs: int) -> ProgramTime:
    boundary.leave()
    whole = [_spent(boundary, run)[0] for _ in range(programs)]
    boundary.empty()
    empty = [_spent(boundary, run)[0] for _ in range(programs)]
    boundary.time()
    timed = [_spent(boundary, run) for _ in range(programs)]
    ours, in_c = median(all_ - c for all_, c in timed), median(c for _, c in timed)
    return ProgramTime(median(whole), ours, in_c, median(empty))


def _round(boundary: Boundary, run: Callable[[], object], calls: int) -> HostTime:
    boundary.leave()
    whole = [_spent(boundary, run)[0] for _ in range(calls)]
    boundary.empty()
    empty = [_spent(boundary, run)[0] for _ in range(calls)]
    boundary.time()
    before = boundary.spent()
    timed = [_spent(boundary, run) for _ in range(calls)]
    after = boundary.spent()
    steps = Steps(boundary.total)
    with steps.noted():
        cut = [steps.of(run) for _ in range(calls)]
    functions = {
        name: CFunction(
            (after[name].calls - before[name].calls) / calls,
            (after[name].nanoseconds - before[name].nanoseconds)
            / (after[name].calls - before[name].calls)
            / 1e3,
        )
        for name in after
        if after[name].calls > before[name].calls
    }
    return HostTime(
        median(whole), median(all_ - c for all_, c in timed), median(c for _, c in timed),
        median(empty), medians(cut), functions,
    )  # fmt: skip


def _spent(boundary: Boundary, run: Callable[[], object]) -> tuple[float, float]:
    """Microseconds of a call, and of these in C."""
    in_c, start = boundary.total.value, time.perf_counter_ns()
    run()
    end = time.perf_counter_ns()
    return (end - start) / 1e3, (boundary.total.value - in_c) / 1e3


def _median(rounds: Sequence[HostTime]) -> HostTime:
    return HostTime(
        *(median(values) for values in zip(*(each[:4] for each in rounds), strict=True)),
        steps=medians([each.steps for each in rounds]),
        functions={
            name: CFunction(
                median(each.functions[name].calls for each in rounds),
                median(each.functions[name].microseconds for each in rounds),
            )
            for name in rounds[0].functions
        },
    )
