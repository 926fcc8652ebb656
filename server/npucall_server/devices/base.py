"""What a device has to implement. Nothing outside ``devices`` knows which device it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeGuard

from npucall.compute import helpers as sharing
from npucall.compute.evaluate import NO_TARGETS
from npucall.errors import DeviceError, DeviceLostError
from npucall.texts import retry_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.compute.pieces import Piece
    from npucall.declare.catalogue import Catalogue
    from npucall.declare.declaration import Operator
    from npucall.declare.prepare import Prepared
    from npucall.dtypes import DType
    from npucall.errors import NpucallError
    from npucall.places import StepOutput
    from npucall.products import Product
    from npucall.programs import Program
    from npucall.tensors import Buffer


class NoDeviceError(Exception):
    """The device, or what it needs, is not there."""


class BrokenDeviceError(DeviceError):
    """The device will not work again in this process. The server exits; a new one may work."""


def device_lost(retry_after: float | None = None) -> DeviceLostError:
    """What a call raises that comes after the device broke."""
    what = "repeat the call" if retry_after is None else retry_in(retry_after)
    return DeviceLostError(
        f"another call broke the device, and the server restarts; {what}",
        retry_after=retry_after,
    )


class Turn(sharing.Turn, Protocol):
    """The right to occupy the device: ``with turn(): ...``, once or several times a call."""

    @property
    def owner(self) -> str:
        """Who the call is for. What one owner left in a device's memory no other one gets."""

    def check(self) -> None:
        """Raises DeadlineError or CancelledError if nobody waits for the call any more."""


class Pieces(Protocol):
    """The inputs of a call as they come: an iterator that waits for each piece."""

    @property
    def waited_ns(self) -> int:
        """How long it has waited."""

    def __iter__(self) -> Iterator[Piece]:
        """The pieces, in order."""

    def computed(self, outputs: Sequence[Buffer], elements: int) -> None:
        """Wants to hear how many elements of each output will not change any more."""


class RunPieces(Protocol):
    """Computes a call from its pieces."""

    def __call__(self, pieces: Pieces, turn: Turn, /) -> Ran:
        """Occupies the device only while it holds a turn, and waits for pieces without one."""


class Phases(NamedTuple):
    """Where a call's time on a device went, in ns; copies and run by the device's own clock."""

    copy_in_ns: int
    plan_ns: int
    run_ns: int
    copy_out_ns: int


class Ran(NamedTuple):
    """What a call gave."""

    outputs: list[Buffer | Resident]
    """A storage for each output, in order; for one that had a target just that."""
    phases: Phases | None = None
    """None on a device that is no hardware."""


class Resident(Protocol):
    """Bytes in the device's memory that outlive calls: what a handle holds."""

    @property
    def nbytes(self) -> int:
        """How many."""

    def write(self, offset: int, data: Buffer) -> None:
        """Copies bytes into it, before any call reads it."""

    def read(self, offset: int, length: int) -> Buffer:
        """A copy of a part of it, or a view that stays as it is."""

    def free(self) -> None:
        """Gives the memory back, once no work that was given to the device uses it any more."""


class ResidentPart:
    """A part of resident bytes: a storage that lies on the device already."""

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
    """A call of a program."""

    call: Prepared
    storages: Mapping[str, Source | StepOutput]
    """By name; a ``StepOutput`` is what an earlier step of the same program gave."""
    targets: Mapping[str, Target] = NO_TARGETS
    """Memory for outputs, by name."""
    discarded: frozenset[str] = frozenset()
    """Outputs that nobody asks for, but later steps."""


class RanProgram(NamedTuple):
    """What a program gave."""

    outputs: list[list[Buffer | Resident | None]]
    """Of each step a storage for each output, in order; None for what was discarded."""
    phases: Phases | None = None
    """Of all steps together; None on a device that is no hardware."""


@dataclass(frozen=True)
class DeviceFacts:
    """What a device and its software say of themselves; what they do not tell is empty or None."""

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
    """Why its product is a guess, where it is."""


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
        """How many turns there are at a time."""

    @property
    def catalogue(self) -> Catalogue:
        """Every operator that it knows. Its ``runnable`` refuses what the device cannot run."""

    @property
    def default_variant(self) -> str:
        """The variant that runs if a call names none and its operator has several."""

    def unavailable_because(self, operator: Operator[..., object]) -> str:
        """Why it cannot run an operator of its catalogue; empty if it can."""

    def plan(self, call: Prepared, turn: Turn) -> int:
        """Bytes of workspace that the call needs."""

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Source],
        turn: Turn,
        targets: Mapping[str, Target] = NO_TARGETS,
    ) -> Ran:
        """Computes the call. Occupies the device only while it holds a turn.

        ``targets`` is writable memory for outputs, by name, as long as their storage. It shares
        none with other storages; it may be the one that was sent for the output itself. An error
        leaves anything in it.
        """

    def run_program(self, steps: Sequence[Step], turn: Turn) -> RanProgram:
        """Computes the steps in their order, with a turn taken anew after every few ms.

        What the first step raises that fails has its number as ``details["step"]``; then anything
        may stand in the targets of all.
        """

    def program_bytes(self, steps: Sequence[Step]) -> int:
        """Most bytes of device memory that a program holds at a time, its targets among them."""

    def allocate(self, nbytes: int, dtype: DType | None = None) -> Resident:
        """Memory for a handle, of anything: who gets it writes all of it. Raises OutOfMemoryError.

        ``dtype``: of the elements that will be written into it, from its start on, if that is
        known. Of integers a device may remember the range, so that it need not read them back
        where values are checked before a kernel runs.

        A device that computes a call into it clears what the call does not provably write.
        """

    @property
    def memory_for_handles(self) -> int:
        """Bytes of its own memory that handles may hold, unless a setting says otherwise.

        0: handles hold host memory, which counts in ``memory_limit``.
        """

    def working_bytes(self, call: Prepared | Program) -> int:
        """Bytes of host memory that ``run`` takes for a call beside its storages, at the most.

        Without what the device keeps, or takes for each of its lanes, whatever the calls are.
        """

    def piecewise(self, call: Prepared) -> RunPieces | None:
        """What computes the call as its bytes come; None where they have to be there first."""

    def facts(self) -> DeviceFacts | None:
        """What it says of itself now; None for a device that is no hardware."""

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        """From now on ``lost`` hears, in any thread, that the device will not work any more."""

    def close(self) -> None:
        """Gives everything back, once no call is left."""
