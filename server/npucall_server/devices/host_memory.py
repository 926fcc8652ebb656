"""The memory of handles on a device that computes in host memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from npucall import memory
from npucall.compute.evaluate import NO_TARGETS
from npucall.declare.prepare import Prepared
from npucall.errors import OutOfMemoryError
from npucall.tensors import Buffer
from npucall_server.devices.base import ResidentPart, Target


class HostResident:
    """Host memory. Its content is undefined until it is written. Raises OutOfMemoryError."""

    def __init__(self, nbytes: int) -> None:
        try:
            self.memory: Buffer = memoryview(memory.fresh(nbytes))
        except MemoryError as error:
            raise OutOfMemoryError(
                f"the host has no {nbytes} bytes of memory free for the handle"
            ) from error

    @property
    def nbytes(self) -> int:
        """How many."""
        return len(self.memory)

    def write(self, offset: int, data: Buffer) -> None:
        """Copies bytes into it."""
        part = self.view(offset, len(data))
        if len(data):
            np.copyto(np.frombuffer(part, np.uint8), np.frombuffer(data, np.uint8))

    def read(self, offset: int, length: int) -> Buffer:
        """A view: the bytes do not change any more."""
        return self.view(offset, length)

    def view(self, offset: int, length: int) -> Buffer:
        """A part of it. Raises ValueError if the part is not inside."""
        if not 0 <= offset <= offset + length <= len(self.memory):
            raise ValueError(f"{offset} + {length} of {len(self.memory)} bytes")
        return self.memory[offset : offset + length]

    def free(self) -> None:
        """Drops the memory. Calls and answers that still use it have views, which keep it."""
        self.memory = _NOTHING


_NOTHING: Buffer = memoryview(b"")


def in_host_memory(storages: Mapping[str, Any]) -> Mapping[str, Any]:
    """The storages of a call or a step. Each part of a handle becomes a view of its memory."""
    for source in storages.values():
        if type(source) is ResidentPart:
            return {name: _viewed(source) for name, source in storages.items()}
    return storages


def memory_of(targets: Mapping[str, Target]) -> Mapping[str, Buffer]:
    """The targets of a call. Each handle becomes its memory."""
    if not targets:
        return NO_TARGETS
    return {
        name: target.memory if isinstance(target, HostResident) else target  # type: ignore[misc]
        for name, target in targets.items()
    }


def as_asked(
    call: Prepared,
    outputs: Sequence[Buffer | None],
    targets: Mapping[str, Target],
    discarded: Collection[str] = (),
) -> list[Any]:
    """The outputs of a call: the target if there is one, and None for a discarded output."""
    if not targets and not discarded:
        return list(outputs)
    return [
        None if output is None or name in discarded else targets.get(name, output)
        for name, output in zip(call.outputs, outputs, strict=True)
    ]


def _viewed(source: object) -> object:
    if type(source) is not ResidentPart:
        return source
    memory = source.memory
    assert type(memory) is HostResident  # noqa: S101  # what allocate gave
    return memory.view(source.offset, source.length)
