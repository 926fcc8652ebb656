"""The path of shared memory: tensors do not travel, and outputs are written into the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import InternalError, TooLargeError
from npucall.places import Place, RegionPart
from npucall_client.calls.arguments import BoundCall
from npucall_client.shared.memory import SharedMemory
from npucall_conformance.running.paths.path import (
    AnswerOrError,
    OutOfReachError,
    PathCall,
    ended,
)
from npucall_conformance.running.paths.resources import Resources, request_of
from npucall_conformance.wire import in_message

_UNTOUCHED = 0x5A
"""Every byte of the memory around what a call reads and writes."""
_BETWEEN = 64
"""Bytes between two tensors of a call; the first of them does not begin at the beginning."""


def by_shared_memory(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Inputs are read, and outputs written, in memory that client and server share."""
    with resources.memory_lock:
        return [_run(resources, sample) for sample in samples]


def _run(resources: Resources, sample: PathCall) -> AnswerOrError:
    call, outputs = sample.request(), sample.output_bytes
    memory, whole = _cleared(resources, [*map(len, call.data.values()), *outputs.values()])
    tensors = _placed(memory, call, outputs)
    before = {name: tensors[name].copy() for name in call.storage if name not in outputs}

    def fetch(name: str, place: Place) -> bytes:
        return tensors[name].tobytes() if isinstance(place, RegionPart) else in_message(name, place)

    outcome = resources.server.done(ended(resources.transport.execute(request_of(call)), fetch))
    written = [name for name, array in before.items() if (tensors[name] != array).any()]
    for array in tensors.values():
        array[...] = _UNTOUCHED
    if (whole != _UNTOUCHED).any():
        written.append("the bytes beside the tensors")
    if written:
        text = ", ".join(written)
        return InternalError(f"shared memory: expected {text} left alone, found them written")
    return outcome


def _cleared(resources: Resources, sizes: Sequence[int]) -> tuple[SharedMemory, AnyArray]:
    """Memory with room for tensors of these sizes in bytes, and all of its bytes as an array."""
    try:
        memory = resources.memory(sum(size + 2 * _BETWEEN for size in (*sizes, 0)))
    except TooLargeError as error:
        raise OutOfReachError(str(error)) from error
    whole = memory.empty(memory.nbytes, np.uint8)
    whole[...] = _UNTOUCHED
    memory.clear()
    return memory, whole


def _placed(
    memory: SharedMemory, call: BoundCall, outputs: Mapping[str, int]
) -> dict[str, AnyArray]:
    """Places the storages of a call, and its outputs, in the memory."""
    tensors: dict[str, AnyArray] = {}
    for name, data in call.data.items():
        memory.empty(_BETWEEN, np.uint8)
        tensors[name] = memory.empty(len(data), np.uint8)
        tensors[name][...] = np.frombuffer(data, np.uint8)
        call.storage[name] = tensors[name].data
    for name, size in outputs.items():
        if name not in tensors:
            memory.empty(_BETWEEN, np.uint8)
            tensors[name] = memory.empty(size, np.uint8)
            tensors[name][...] = _UNTOUCHED + 1
        call.targets[name] = tensors[name]
    return tensors
