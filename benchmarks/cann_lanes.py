"""The same calls on few and on many lanes: what goes on at once, and how much that gains."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cann_device import opened
from cann_timeline import Overlap, event_clock, overlap_of, spans_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_device import Simulated
    from cann_timeline import Span

CALLS, APART_SECONDS, SIZE = 8, 0.04, 16 << 20
BYTES_PER_SECOND, KERNEL_MICROSECONDS = 10**9, 50_000


class Lanes(NamedTuple):
    """Calls on so many lanes: medians over rounds."""

    count: int
    overlap: Overlap
    gain: float
    """The time on the first number of lanes divided by the time on this one, in the same round."""
    spans: Sequence[Span]
    """Of the last round."""


def lanes_in_turn(simulated: Simulated, rounds: int, counts: Sequence[int]) -> list[Lanes]:
    """Rounds of the same calls on each of these numbers of lanes."""
    arrivals = [APART_SECONDS * call for call in range(CALLS)]
    time_of = event_clock(simulated.runtime)
    with ExitStack() as stack:
        npus = {n: stack.enter_context(opened(i, lanes=n)) for i, n in enumerate(counts)}
        cases = {n: npu.kl_div_backward(SIZE) for n, npu in npus.items()}

        def run() -> dict[int, list[Span]]:
            return {n: spans_of(npus[n], cases[n], arrivals, time_of) for n in counts}

        run()  # every lane has its memory then
        set_delays = simulated.control.set_delays
        set_delays(kernel_us=KERNEL_MICROSECONDS, bytes_per_second=BYTES_PER_SECOND)
        stack.callback(set_delays)
        measured = [run() for _ in range(rounds)]
    return [_lanes(n, counts[0], measured) for n in counts]


def _lanes(count: int, first: int, rounds: Sequence[Mapping[int, Sequence[Span]]]) -> Lanes:
    overlaps = [overlap_of(each[count]) for each in rounds]
    to_compare = [overlap_of(each[first]).wall for each in rounds]
    gains = [other / overlap.wall for other, overlap in zip(to_compare, overlaps, strict=True)]
    middle = Overlap(*(median(values) for values in zip(*overlaps, strict=True)))
    return Lanes(count, middle, median(gains), rounds[-1][count])
