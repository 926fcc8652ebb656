"""The goals: every row of the table of goals, by the name of the series that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cases import (
    FLIGHT,
    FRAMES,
    FRAMES_IN_FLIGHT,
    FRAMES_TCP,
    FRAMES_TLS,
    IN_FLIGHT,
    KEPT,
    PROGRAM,
    RESIDENT,
    STEP,
    TEACHER,
)
from imports import IMPORTED
from most_used import USED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from figures import Figure, Series


@dataclass(frozen=True)
class Goal:
    """What a ratio must be, and what it shall become; None where nothing is asked."""

    name: str
    better: str
    must: float | None
    aim: float | None
    unit: str
    kept: bool = False
    """Holds for a client that keeps memory; the others for the client as it comes."""


HIGHER, LOWER = "higher", "lower"
FORWARDS = (
    ("Mean, float32, 1048576", 0.9, 1.2),
    ("Mean over 0, float32, 1024x1024", None, 0.9),
    ("Mean over 1, float32, 1024x1024", 0.9, 1.2),
    ("Matmul, float32, 512x512", 0.9, None),
    ("Matmul, float32, 1024x1024", 0.9, None),
    *(
        (f"{work}, {dtype}, {shape}", 1.5, None)
        for dtype in ("float16", "bfloat16")
        for work, shape in (
            ("Mean", "1048576"),
            ("ReduceSum over 0", "1024x1024"),
            ("L1Loss", "1048576"),
            ("Add", "4194304"),
        )
    ),
    ("Add, float32, 4194304", None, 1.0),
)
"""Of forward operators: what is measured, the must and the aim."""
LAYERS = (
    ("Convolution 3x3, 8x64x56x56", 5.0, 3.0),
    ("attention, 2x8x1024x64", 6.0, 3.0),
    ("LayerNorm, 4096x1024", 4.0, 2.0),
    ("RmsNorm, 4096x1024", 4.0, 2.0),
    ("GroupNorm, 32 groups of 8x256x56x56", 4.0, 2.0),
    ("Embedding, 32768x512", 4.0, 2.0),
    ("MaxPool2d 3x3, 8x64x112x112", 5.0, 3.0),
    ("AvgPool2d 3x3, 8x64x112x112", 5.0, 3.0),
    ("AdaptiveAvgPool2d 1x1, 8x512x28x28", 5.0, 3.0),
    *((each.name, 4.0, None) for each in USED),
)
"""Of layers, forward and backward."""
FRAMES_MEASURED = (
    (FRAMES, "1 KiB, 1 caller, calls a second", 5.0, 8.0),
    (FRAMES, "1 KiB, 8 callers, calls a second", 5.0, 8.0),
    (FRAMES, "1 KiB, 32 callers, calls a second", 4.0, 7.0),
    (FRAMES_TLS, "1 KiB, 1 caller, calls a second", 3.5, 4.5),
    (FRAMES_TLS, "1 KiB, 8 callers, calls a second", 3.5, 4.5),
    (FRAMES_TLS, "1 KiB, 32 callers, calls a second", 2.8, 4.0),
    (FRAMES_IN_FLIGHT, "1 KiB, 8 callers, calls a second", 8.0, 12.0),
    (FRAMES_IN_FLIGHT, "1 KiB, 32 callers, calls a second", 8.0, 12.0),
    (FRAMES, "64 KiB, 1 caller, throughput", 6.0, 8.0),
    (FRAMES, "64 KiB, 8 callers, throughput", 3.0, 4.0),
    (FRAMES, "1 MiB, 1 caller, throughput", 10.0, 20.0),
    (FRAMES, "1 MiB, 4 callers, throughput", 7.0, 15.0),
    (FRAMES_TCP, "1 MiB, 1 caller, throughput", 4.0, 6.0),
    (FRAMES_TCP, "1 MiB, 4 callers, throughput", 3.0, 4.5),
    (FRAMES, "16 MiB, 1 caller, throughput", 30.0, 40.0),
    (FRAMES, "16 MiB, 4 callers, throughput", 25.0, 40.0),
    (FRAMES_TCP, "16 MiB, 1 caller, throughput", 10.0, 14.0),
    (FRAMES_TCP, "16 MiB, 4 callers, throughput", 9.0, 13.0),
)
"""Of the client's other carrier: how calls travel, what is measured, the must and the aim."""


def _goals_of_frames() -> Iterator[Goal]:
    """To the yardstick, and to Arrow Flight, which no way of ours may be behind."""
    for way, measured, must, aim in FRAMES_MEASURED:
        unit = "GB/s" if measured.endswith("throughput") else "1/s"
        yield Goal(f"{measured}, {way}", HIGHER, must, aim, unit)
        yield Goal(f"{measured}, {way} / {FLIGHT}", HIGHER, 1.0, None, unit)


GOALS = (
    Goal("1 KiB, 1 caller, p50", LOWER, 1.15, 1.0, "ms"),
    Goal("1 KiB, 1 caller, p50, pipeline", LOWER, None, 0.9, "ms"),
    Goal("1 KiB, 8 callers, calls a second", HIGHER, 0.9, 1.2, "1/s"),
    Goal("1 KiB, 32 callers, calls a second", HIGHER, 0.9, 1.1, "1/s"),
    Goal(f"1 KiB, 1 caller, calls a second, {PROGRAM}", HIGHER, 15.0, 25.0, "1/s"),
    Goal(f"1 KiB, 8 callers, calls a second, {PROGRAM}", HIGHER, 12.0, 20.0, "1/s"),
    Goal(f"1 KiB, 8 callers, calls a second, {IN_FLIGHT}", HIGHER, 2.5, 3.0, "1/s"),
    Goal(f"1 KiB, 32 callers, calls a second, {IN_FLIGHT}", HIGHER, 3.0, 4.0, "1/s"),
    Goal(IMPORTED, LOWER, 1.2, 1.05, "ms"),
    Goal("64 KiB, 1 caller, throughput", HIGHER, 1.2, 1.8, "GB/s"),
    Goal("1 MiB, 1 caller, throughput", HIGHER, 1.5, 2.0, "GB/s"),
    Goal("1 MiB, 4 callers, throughput", HIGHER, 1.5, 2.0, "GB/s"),
    Goal(f"1 MiB, 4 callers, throughput, {IN_FLIGHT}", HIGHER, 2.5, 3.0, "GB/s"),
    Goal("16 MiB, 1 caller, throughput", HIGHER, 5.0, None, "GB/s"),
    Goal("16 MiB, 1 caller, throughput, kept memory", HIGHER, None, 9.0, "GB/s", kept=True),
    Goal("16 MiB, 4 callers, throughput", HIGHER, 4.0, None, "GB/s"),
    Goal("16 MiB, 4 callers, throughput, kept memory", HIGHER, None, 8.0, "GB/s", kept=True),
    Goal("256 MiB, 1 caller, throughput, kept memory", HIGHER, 15.0, 20.0, "GB/s", kept=True),
    Goal("16 MiB, 4 callers, client peak memory", LOWER, 0.4, None, "MiB"),
    Goal("16 MiB, 4 callers, client peak memory, kept memory", LOWER, None, 0.22, "MiB", kept=True),
    Goal("16 MiB, 1 caller, CPU seconds a GB", LOWER, 0.25, None, "s/GB"),
    Goal("16 MiB, 1 caller, CPU seconds a GB, kept memory", LOWER, None, 0.17, "s/GB", kept=True),
    Goal("16 MiB, 1 caller, throughput, shared memory copied", HIGHER, 30.0, 38.0, "GB/s"),
    Goal("16 MiB, 1 caller, throughput, shared memory in place", HIGHER, 100.0, 130.0, "GB/s"),
    Goal("16 MiB, 1 caller, time, shared memory in place / in process", LOWER, None, 1.5, "ms"),
    Goal(f"16 MiB, 1 caller, calls a second, {TEACHER} / {STEP}", HIGHER, 2.0, 3.0, "1/s"),
    Goal(f"16 MiB, 1 caller, throughput, {RESIDENT}", HIGHER, 50.0, 100.0, "GB/s"),
    *_goals_of_frames(),
    Goal("1 KiB, 1 caller beside calls of 1024 MiB, p99 / alone", LOWER, 3.0, None, "ms"),
    Goal("in process, float32, 64 MiB, 1 thread / NumPy", HIGHER, 1.5, None, "ms"),
    Goal("in process, float32, 64 MiB, 1 thread / torch", HIGHER, None, 1.0, "ms"),
    Goal("in process, float32, 64 MiB, 2 threads / NumPy", HIGHER, 2.0, None, "ms"),
    Goal("in process, float32, 64 MiB, 2 threads / torch", HIGHER, None, 1.0, "ms"),
    # Of bfloat16 the table names no number of threads: as many as a device takes here.
    Goal("in process, bfloat16, 64 MiB, 2 threads / NumPy", HIGHER, 3.5, None, "ms"),
    Goal("in process, bfloat16, 64 MiB, 2 threads / torch", HIGHER, None, 0.5, "ms"),
    Goal("in process, float16 with underflow, 1 MiB, 1 thread / NumPy", HIGHER, 10.0, None, "ms"),
    Goal("in process, float16 with underflow, 1 MiB, 1 thread / torch", HIGHER, None, 0.5, "ms"),
    *(Goal(f"in process, {name} / NumPy", HIGHER, must, aim, "ms") for name, must, aim in FORWARDS),
    *(
        Goal(f"in process, {name}, 2 threads, {way} / torch", LOWER, must, aim, "ms")
        for name, must, aim in LAYERS
        for way in ("forward", "backward")
    ),
)
FULL_GOALS = (
    *GOALS,
    Goal(f"16 MiB, 1 caller, throughput, {KEPT} / {FLIGHT}", HIGHER, 0.9, 1.1, "GB/s", kept=True),
    Goal(f"16 MiB, 4 callers, throughput, {KEPT} / {FLIGHT}", HIGHER, 0.9, 1.1, "GB/s", kept=True),
)
"""Those of ``make bench-full``."""
FAR_GOALS = (
    Goal("far link, 1 KiB, round trips", LOWER, 1.3, None, "s"),
    Goal("far link, 16 MiB, time / bytes at the wire's rate", LOWER, 1.1, 0.75, "s"),
    Goal("far link, 20 operators on resident data, a program, round trips", LOWER, 2.5, None, "s"),
    # 64 KiB of 64 MiB.
    Goal(
        "far link, 64 MiB constant, second run, bytes on the wire / bytes",
        LOWER,
        1 / 1024,
        None,
        "bytes",
    ),
)
"""Of ``make bench-far``."""


class Row(NamedTuple):
    """A figure beside its goal, if it has one."""

    figure: Figure
    goal: Goal | None

    def reaches(self, bound: float | None) -> bool:
        """Whether the ratio is at least as good as this; without a ratio it is not."""
        ratio = self.figure.ratio
        if bound is None:
            return True
        if ratio is None:
            return False
        return ratio <= bound if self.figure.series.better == LOWER else ratio >= bound

    @property
    def verdict(self) -> str:
        """In a word or two how the goal fared."""
        if self.goal is None:
            return ""
        if self.figure.ratio is None:
            return "not available"
        if not self.reaches(self.goal.must):
            return "missed"
        if not self.reaches(self.goal.aim):
            return "aim missed" if self.goal.must is None else "reached, aim missed"
        return "reached" if self.goal.aim is None else "aim reached"

    @property
    def must_missed(self) -> bool:
        """Whether what must be is not."""
        return self.goal is not None and not self.reaches(self.goal.must)

    def as_object(self) -> dict[str, object]:
        """As it stands in the JSON file."""
        figure, series = self.figure, self.figure.series
        return {
            "name": series.name,
            "ratio": figure.ratio,
            "better": series.better,
            "must": self.goal and self.goal.must,
            "aim": self.goal and self.goal.aim,
            "absolute": figure.absolute,
            "unit": series.unit,
            "noise": figure.noise,
        }


def rows_of(figures: Iterable[Figure], goals: Sequence[Goal] = GOALS) -> list[Row]:
    """Figures with a goal, in the order of the goals; then the others."""
    by_name = {figure.series.name: figure for figure in figures}
    with_goal = [Row(by_name.pop(goal.name), goal) for goal in goals if goal.name in by_name]
    return with_goal + [Row(figure, None) for figure in by_name.values()]


def faults(planned: Sequence[Series], goals: Sequence[Goal] = GOALS) -> list[str]:
    """What is wrong with a plan: names twice, goals that nothing measures or that say otherwise."""
    by_name = {series.name: series for series in planned}
    found = [
        f"{series.name}: measured twice" for series in planned if by_name[series.name] is not series
    ]
    for goal in goals:
        series = by_name.get(goal.name)
        if series is None:
            found.append(f"{goal.name}: nothing measures it")
        elif (series.better, series.unit) != (goal.better, goal.unit):
            found.append(f"{goal.name}: measured in {series.unit}, {series.better} is better")
        elif goal.kept != (series.way == "kept memory"):
            found.append(f"{goal.name}: measured with another client")
    return found
