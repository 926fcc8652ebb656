"""What a device has to implement. Code outside ``devices`` does not know which device it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard

from npucall.compute import helpers
from npucall.compute.evaluate import NO_TARGETS
from npucall.compute.pieces import Piece
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared
from npucall.dtypes import DType
from npucall.errors import DeviceError, DeviceLostError, NpucallError
from npucall.places import StepOutput
from npucall.products import Product
from npucall.programs import Program
from npucall.tensors import Buffer
from npucall.texts import retry_in


class NoDeviceError(Exception):
    """The device is missing, or something that it needs."""


class BrokenDeviceError(DeviceError):
    """The device will not work again in this process. The server exits; a new one may work."""


def device_lost(retry_after: float | None = None) -> DeviceLostError:
    """The error of a call that comes after the device broke."""
    what = "repeat the call" if retry_after is None else retry_in(retry_after)
    return DeviceLostError(
        f"another call broke the device, and the server restarts; {what}",
        retry_after=retry_after,
    )


class DeviceTurn(helpers.Turn, Protocol):
    """The right to occupy the device: ``with turn(): ...``, once or several times a call."""

    @property
    def owner(self) -> str:
        """Who the call is for. No owner can read what another one left in the device's memory."""

    def check(self) -> None:
        """Raises DeadlineError or CancelledError if the caller no longer waits for the call."""


class Pieces(Protocol):
    """The inputs of a call while they arrive: an iterator that waits for each piece."""

    @property
    def waited_ns(self) -> int:
        """How long it has waited."""

    def __iter__(self) -> Iterator[Piece]:
        """The pieces, in order."""

    def computed(self, outputs: Sequence[Buffer], elements: int) -> None:
        """Is told how many elements of each output are final."""


class Phases(NamedTuple):
    """How long each part of a call took, in ns. The device's own clock times copies and run."""

    copy_in_ns: int
    plan_ns: int
    run_ns: int
    copy_out_ns: int


Outputs: TypeAlias = "list[list[Buffer | Resident | None]]"
"""For each step a storage for each output, in order. If an output had a target, its storage is the
target. A discarded output has None."""


class Ran(NamedTuple):
    """The result of a run."""

    outputs: Outputs
    phases: Phases | None = None
    """Of all steps together; None if the device is not hardware."""


class Resident(Protocol):
    """The bytes of a handle: they stay in the device's memory after a call has ended."""

    @property
    def nbytes(self) -> int:
        """How many."""

    def write(self, offset: int, data: Buffer) -> None:
        """Copies bytes into it, before any call reads it."""

    def read(self, offset: int, length: int) -> Buffer:
        """A copy of a part of it, or a view that stays as it is."""

    def free(self) -> None:
        """Gives the memory back when no queued work uses it any more."""


class ResidentPart:
    """A part of resident bytes: a storage that is already on the device."""

    __slots__ = ("length", "memory", "offset")

    def __init__(self, memory: Resident, offset: int, length: int) -> None:
        self.memory, self.offset, self.length = memory, offset, length

    def __len__(self) -> int:
        return self.length


Source: TypeAlias = "Buffer | ResidentPart"
"""Where a device finds a storage of a call."""
Target: TypeAlias = "Buffer | Resident"
"""Where a device writes an output: all of this memory."""


def is_resident(target: object) -> TypeGuard[Resident]:
    """Whether an output's target is the memory of a handle."""
    return target is not None and not isinstance(target, bytes | bytearray | memoryview)


class Step(NamedTuple):
    """A call, or one of a program."""

    call: Prepared
    storages: Mapping[str, Source | StepOutput]
    """By name. A ``StepOutput`` is an output of an earlier step of the same program."""
    targets: Mapping[str, Target] = NO_TARGETS
    """Memory for outputs, by name."""
    discarded: frozenset[str] = frozenset()
    """Outputs that only later steps read: the caller does not get them."""


@dataclass(frozen=True)
class DeviceFacts:
    """What a device and its software say about themselves. An unknown fact is empty or None."""

    cann_version: str = ""
    driver_version: str = ""
    runtime_version: str = ""
    memory_total_bytes: int = 0
    memory_free_bytes: int = 0
    cube_percent: int | None = None
    vector_percent: int | None = None
    aicpu_percent: int | None = None
    healthy: bool | None = None
    product_guess: str = ""
    """Why the product is only a guess; empty if it is known."""


class Device(Protocol):
    """Runs prepared calls, as many at a time as it has lanes."""

    @property
    def name(self) -> str:
        """``cpu`` or ``cann:0``."""

    @property
    def soc(self) -> str:
        """The SoC whose rules hold, for example ``Ascend910B1``."""

    @property
    def product(self) -> Product:
        """Its product."""

    @property
    def lanes(self) -> int:
        """How many turns there can be at the same time."""

    @property
    def catalogue(self) -> Catalogue:
        """Every operator that it knows. Its ``runnable`` refuses what the device cannot run."""

    @property
    def default_variant(self) -> str:
        """The variant that runs if a call names none and its operator has several."""

    def unavailable_because(self, operator: Operator[..., object]) -> str:
        """Why it cannot run an operator of its catalogue; empty if it can."""

    @property
    def runs_in_calling_thread(self) -> bool:
        """Whether a quick call is computed in the thread that asks, without a hop to another."""

    def plan(self, call: Prepared, turn: DeviceTurn) -> int:
        """Bytes of workspace that the call needs."""

    def run(
        self, steps: Sequence[Step], turn: DeviceTurn, pieces: Pieces | None = None
    ) -> tuple[Outputs, Phases | None]:
        """Computes the steps in their order; a call is one step. Answers what ``Ran`` holds.

        Occupies the device only while it holds a turn. Takes a new turn every few ms. If one of
        several steps fails, the error has the step's number as ``details["step"]``.

        ``Step.targets`` is writable memory. Each target is as long as the storage of its output. It
        shares no memory with other storages, but it may be the storage that the caller sent for
        this output. After an error the content of all targets is undefined.

        ``pieces``: the inputs of a call that ``takes_pieces``, while they come. It holds no turn
        while it waits for them.
        """

    def takes_pieces(self, call: Prepared) -> bool:
        """Whether ``run`` can compute the call while its bytes come."""

    def program_bytes(self, steps: Sequence[Step]) -> int:
        """The most device memory that a program holds at a time, in bytes, with its targets."""

    def allocate(self, nbytes: int, dtype: DType | None = None) -> Resident:
        """Memory for a handle. Its content is undefined; the caller must write all of it.

        Raises OutOfMemoryError. ``dtype``: of the elements that will be written, from the start
        on, if it is known. A device may remember the range of integers. Then it need not read
        them back when it checks values before a kernel runs.

        If the device computes a call into this memory, it first clears the parts that the call
        may leave unwritten.
        """

    @property
    def memory_for_handles(self) -> int:
        """How many bytes of its own memory handles may hold, unless a setting says otherwise.

        0: handles are in host memory, which counts in ``memory_limit``.
        """

    def working_bytes(self, call: Prepared | Program) -> int:
        """The most host memory that ``run`` takes for a call in addition to its storages, in bytes.

        Memory that the device takes once, or once for each lane, does not count.
        """

    def facts(self) -> DeviceFacts | None:
        """What it says about itself now; None if the device is not hardware."""

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        """Calls ``lost``, in any thread, when the device will not work any more."""

    def close(self) -> None:
        """Gives everything back. No call may be running."""
