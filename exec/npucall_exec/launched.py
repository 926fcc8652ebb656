"""Calls that a program has launched, and the bytes of its device's memory that they touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall_exec.calls import PlannedCall, ProgramCalls
from npucall_exec.frames import NOWHERE
from npucall_exec.launches import each

if TYPE_CHECKING:
    from npucall.tensors import TensorSpec
    from npucall_exec.device_memory import Memory

SMALL = 64 << 10
"""Bytes of a tensor that travels with calls; a larger one stays on the server."""


class ByteRange(NamedTuple):
    """Bytes of the device's memory."""

    begin: int
    end: int

    def meets(self, other: ByteRange) -> bool:
        """Whether they have a byte in common."""
        return self.begin < other.end and other.begin < self.end

    def holds(self, other: ByteRange) -> bool:
        """Whether all bytes of the other are among these."""
        return self.begin <= other.begin and other.end <= self.end


class TensorPlace(NamedTuple):
    """A tensor of a launch, and where it is."""

    spec: TensorSpec
    offset: int

    @property
    def is_small(self) -> bool:
        """Whether it travels with calls."""
        return self.spec.storage_bytes <= SMALL

    @property
    def range(self) -> ByteRange:
        """Its bytes; none if it has none."""
        size = self.spec.storage_bytes if self.spec.elements else 0
        return (
            ByteRange(0, 0)
            if self.offset == NOWHERE
            else ByteRange(self.offset, self.offset + size)
        )


@dataclass
class Launch:
    """A call of a program that has been launched."""

    planned: PlannedCall
    offsets: tuple[int, ...]
    saturates: bool

    @cached_property
    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is read and what is written: a place for each tensor."""
        places = iter(self.offsets)
        call = self.planned.call
        return self.planned.split(
            call.with_tensors(lambda spec: TensorPlace(spec, next(places, NOWHERE)))
        )

    @cached_property
    def reads(self) -> list[TensorPlace]:
        """The tensors that are read."""
        return [place for place in each(self.split[0].values()) if isinstance(place, TensorPlace)]

    @cached_property
    def writes(self) -> list[TensorPlace]:
        """Those that are written."""
        return list(each(self.split[1].values()))

    def run(self, calls: ProgramCalls, memory: Memory) -> None:
        """Runs it with tensors of the host."""
        places = iter(self.offsets)
        calls.run(
            self.planned,
            lambda spec: memory.array(spec, next(places, NOWHERE)),
            saturates=self.saturates,
        )

    @property
    def may_stay(self) -> bool:
        """Whether all of its outputs are new: nothing of what was there before stays."""
        prepared = self.planned.prepared
        return (
            prepared is not None
            and not prepared.unwritten
            and not any(output.in_place for output in prepared.operator.outputs)
            and all(place.spec.row_major for place in self.writes)
        )

    def cuts(self, written: Iterable[ByteRange]) -> bool:
        """Whether it needs a part of what earlier calls wrote, or would leave only a part of it."""
        return any(
            done.meets(place.range) and not (done == place.range and place.spec.row_major)
            for place in self.reads
            for done in written
        ) or any(
            done.meets(place.range) and not place.range.holds(done)
            for place in self.writes
            for done in written
        )
