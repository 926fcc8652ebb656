"""Outputs that a kernel does not write completely: which bytes are there before it runs.

npucall decides which bytes the other elements get [src:left-open]. If they are zeros, the device
clears the memory. All other bytes go to the device with the inputs; so does the storage that a call
sends for such an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npucall.declare.prepare import Prepared, once_a_call
from npucall.errors import TensorLayoutError
from npucall.tensors import Buffer, view


@once_a_call
def sent_outputs(call: Prepared) -> frozenset[str]:
    """The outputs whose bytes go to the device before a call runs."""
    begun = {name for name, what in call.unwritten.items() if not _is_zero(what)}
    return frozenset({*call.stored, *begun} & call.outputs.keys())


def begun(call: Prepared, storages: Mapping[str, Any]) -> Mapping[str, Any]:
    """The storages of a call, and those of its ``sent_outputs``, as they are before it runs.

    Raises TensorLayoutError if one of these outputs has gaps and is already on the device.
    """
    names = sent_outputs(call) & call.unwritten.keys() if call.unwritten else ()
    if not names:
        return storages
    return {**storages, **{name: _begun(call, name, storages.get(name)) for name in names}}


def _begun(call: Prepared, name: str, sent: object) -> Buffer:
    spec = call.outputs[name]
    storage = bytearray(spec.storage_bytes)
    if spec.bytes != spec.storage_bytes and sent is not None:
        if not isinstance(sent, bytes | bytearray | memoryview):
            raise TensorLayoutError(
                f"{name}: expected an output without gaps, or its storage with the call, found "
                "gaps in a handle or in the output of a step; the operator leaves some elements "
                "as they were",
                parameter=name,
            )
        storage[:] = sent
    view(spec, storage)[...] = call.unwritten[name]
    return storage


def _is_zero(what: object) -> bool:
    return isinstance(what, float) and what == 0.0
