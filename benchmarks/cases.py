"""What is measured through the service: cases, each of which gives series."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from figures import KIB, MIB, Series, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AS_IT_COMES, KEPT, NOT_SENT = "as it comes", "kept memory", "self not sent"
UNARY, CHUNKED, PIPELINE = "unary", "chunked", "pipeline"
IN_FLIGHT = "pipeline of one thread"
FLIGHT = "Arrow Flight"
FRAMES, FRAMES_TCP, FRAMES_TLS = "frames", "frames over TCP", "frames with TLS"
FRAMES_IN_FLIGHT = "frames, pipeline of one thread"
FRAMES_WAYS = (FRAMES, FRAMES_TCP, FRAMES_TLS, FRAMES_IN_FLIGHT)
COPIED, IN_PLACE, IN_PROCESS = "shared memory copied", "shared memory in place", "in process"
GRPC_ALONE, COPIES_ALONE = "gRPC alone", "copies alone"
STEP, TEACHER, RESIDENT = "KL step", "teacher resident", "all resident"
PROGRAM_CALLS = 100
PROGRAM = f"program of {PROGRAM_CALLS}"
CALLS = {PROGRAM: PROGRAM_CALLS}
"""Of a way that makes several at a time."""
ALL_WAYS = (AS_IT_COMES, KEPT, NOT_SENT, UNARY, CHUNKED, PIPELINE, COPIED, IN_PLACE)

RESIDENTS = (STEP, TEACHER, RESIDENT)

TENSORS = 4
"""Of a call: three inputs, one output. All are counted, though some way may not send them."""


@dataclass(frozen=True)
class Case:
    """Calls of one kind, made in each of these ways in turn, and by the yardstick."""

    size: int
    callers: int
    ways: tuple[str, ...]
    dtype: str = "float32"
    rounds: int = 5
    seconds: float = 0.3
    """About how long a way is measured in a round; it is one call a caller at least."""

    def text(self) -> str:
        """How the names of its series begin."""
        callers = f"{self.callers} caller{'s' * (self.callers > 1)}"
        dtype = [self.dtype] if self.dtype != "float32" else []
        return ", ".join([size_text(self.size), callers, *dtype])

    def bytes(self, calls: int) -> int:
        """Bytes of the tensors of so many calls."""
        return TENSORS * self.size * calls


class Sample(NamedTuple):
    """What a way took in one round."""

    calls: int
    seconds: float
    latencies: list[float]
    client_cpu: float
    server_cpu: float


class Quantity(NamedTuple):
    """What is read from a sample."""

    name: str
    better: str
    unit: str
    of: Callable[[Case, Sample], float]


def _gigabytes(case: Case, sample: Sample) -> float:
    return case.bytes(sample.calls) / 1e9


P50 = Quantity("p50", "lower", "ms", lambda _, s: median(s.latencies) * 1e3)
TIME = Quantity("time", "lower", "ms", lambda _, s: s.seconds / s.calls * 1e3)
RATE = Quantity("calls a second", "higher", "1/s", lambda _, s: s.calls / s.seconds)
THROUGHPUT = Quantity("throughput", "higher", "GB/s", lambda c, s: _gigabytes(c, s) / s.seconds)
CPU = Quantity(
    "CPU seconds a GB", "lower", "s/GB",
    lambda c, s: (s.client_cpu + s.server_cpu) / _gigabytes(c, s),
)  # fmt: skip
CLIENT_CPU = Quantity(
    "client CPU seconds a GB", "lower", "s/GB", lambda c, s: s.client_cpu / _gigabytes(c, s)
)
SERVER_CPU = Quantity(
    "server CPU seconds a GB", "lower", "s/GB", lambda c, s: s.server_cpu / _gigabytes(c, s)
)


def quantities(case: Case) -> Iterator[Quantity]:
    """What is read from the samples of a case."""
    if case.size < 64 * KIB:
        if case.callers == 1:
            yield P50
        yield RATE
    else:
        yield THROUGHPUT
    if case.size == 16 * MIB:
        yield from (CPU, CLIENT_CPU, SERVER_CPU)


def series_of(case: Case, quantity: Quantity, way: str) -> Series:
    """The series of a way; the client as it comes is not named."""
    name = f"{case.text()}, {quantity.name}"
    if way != AS_IT_COMES:
        name += f", {way}"
    return Series(
        name, quantity.better, quantity.unit, quantity.name, case.size, case.callers, way,
        case.dtype,
    )  # fmt: skip


class Beside(NamedTuple):
    """A way beside another one than the yardstick."""

    quantity: Quantity
    way: str
    other: str

    def series(self, case: Case) -> Series:
        """Of such a ratio."""
        series, other = series_of(case, self.quantity, self.way), self.other
        quantity = f"{self.quantity.name} / {other}"
        return replace(series, name=f"{series.name} / {other}", quantity=quantity)


def besides(case: Case) -> list[Beside]:
    """Those of a case."""
    speed = RATE if case.size < 64 * KIB else THROUGHPUT
    all_of_them = (
        Beside(TIME, IN_PLACE, IN_PROCESS),
        Beside(RATE, TEACHER, STEP),
        *(Beside(speed, way, FLIGHT) for way in (KEPT, IN_FLIGHT, *FRAMES_WAYS)),
    )
    return [each for each in all_of_them if {each.way, each.other} <= set(case.ways)]


def service_series(case: Case) -> Iterator[Series]:
    """All series of a case."""
    for quantity in quantities(case):
        for way in (*case.ways, "yardstick"):
            if way != IN_PROCESS:
                yield series_of(case, quantity, way)
    for beside in besides(case):
        yield beside.series(case)


def quick_cases() -> list[Case]:
    """For the goals, in about two and a half minutes."""
    large = (AS_IT_COMES, KEPT, NOT_SENT, COPIED, COPIES_ALONE, IN_PLACE, IN_PROCESS, *RESIDENTS)
    small = (FRAMES, FRAMES_TLS, FRAMES_IN_FLIGHT, FLIGHT)
    one = (AS_IT_COMES, PIPELINE, PROGRAM, GRPC_ALONE, FRAMES, FRAMES_TLS, FLIGHT)
    other = (FRAMES, FRAMES_TCP, FLIGHT)
    return [
        Case(KIB, 1, one, rounds=9),
        Case(KIB, 8, (AS_IT_COMES, IN_FLIGHT, PROGRAM, *small), rounds=9, seconds=0.4),
        Case(KIB, 32, (AS_IT_COMES, IN_FLIGHT, *small), rounds=9, seconds=0.4),
        Case(64 * KIB, 1, (AS_IT_COMES, GRPC_ALONE, FRAMES, FLIGHT), rounds=7),
        Case(64 * KIB, 8, (FRAMES, FLIGHT), rounds=7),
        Case(MIB, 1, (AS_IT_COMES, *other), rounds=7),
        Case(MIB, 4, (AS_IT_COMES, IN_FLIGHT, *other), rounds=7, seconds=0.4),
        Case(16 * MIB, 1, (*large, *other)),
        Case(16 * MIB, 4, (AS_IT_COMES, KEPT, *other), seconds=1.0),
        Case(256 * MIB, 1, (AS_IT_COMES, KEPT), rounds=3),
    ]


def ways_at(size: int) -> tuple[str, ...]:
    """All of them; programs where calls are small, many in flight where they are not large."""
    ways = ALL_WAYS
    ways += (PROGRAM,) if size < 64 * KIB else ()
    ways += (IN_FLIGHT,) if size <= MIB else ()
    ways += FRAMES_WAYS[: len(FRAMES_WAYS) - (size > MIB)]
    return (*ways, FLIGHT)


def full_cases() -> list[Case]:
    """Every way at every size and number of callers; three dtypes at 16 MiB.

    256 MiB with one caller only: the yardstick holds a request several times, which for several
    callers is more than a machine of 24 GiB has.
    """
    sizes = (KIB, 64 * KIB, MIB, 16 * MIB)
    every = [
        Case(size, callers, ways_at(size), rounds=5 if size == 16 * MIB else 9)
        for size in sizes
        for callers in (4, 8, 32)
    ]
    every += [Case(size, 1, (*ways_at(size), GRPC_ALONE), rounds=9) for size in sizes[:-1]]
    every += [
        Case(16 * MIB, 1, (*ways_at(16 * MIB), COPIES_ALONE, IN_PROCESS, *RESIDENTS), rounds=9)
    ]
    dtypes = (AS_IT_COMES, KEPT)
    every += [Case(16 * MIB, 1, dtypes, dtype) for dtype in ("float16", "bfloat16")]
    return [*every, Case(256 * MIB, 1, ALL_WAYS)]
