"""Outputs that a kernel does not write completely: which bytes are there before it runs.

npucall decides which bytes the other elements get [src:left-open]. If they are zeros, the device
clears the memory. All other bytes go to the device with the inputs; so does the storage that a call
sends for such an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npucall.declare.prepare import Prepared, once_a_call
from npucall.dtypes import AnyArray
from npucall.tensors import view


@once_a_call
def sent_outputs(call: Prepared) -> frozenset[str]:
    """The outputs whose bytes go to the device before a call runs."""
    begun = {name for name, what in call.unwritten.items() if not _is_zero(what)}
    return frozenset({*call.stored, *begun} & call.outputs.keys())


def begun(call: Prepared, storages: Mapping[str, Any]) -> Mapping[str, Any]:
    """The storages of a call, and those of its ``sent_outputs``, as they are before it runs.

    A storage with gaps that is already on the device stays there: see ``set_in``.
    """
    names = sent_outputs(call) & call.unwritten.keys() if call.unwritten else ()
    return {**storages, **{name: _begun(call, name, storages.get(name)) for name in names}}


def set_in(call: Prepared, name: str, storage: AnyArray) -> None:
    """Sets the elements of an output that the kernel may leave, in the bytes of its storage."""
    view(call.outputs[name], storage.data)[...] = call.unwritten[name]


def _begun(call: Prepared, name: str, sent: object) -> object:
    spec = call.outputs[name]
    if spec.bytes == spec.storage_bytes:
        sent = None  # without gaps nothing of it stays
    if sent is not None and not isinstance(sent, bytes | bytearray | memoryview):
        return sent
    storage = np.zeros(spec.storage_bytes, np.uint8)
    if sent is not None:
        storage[:] = np.frombuffer(sent, np.uint8)
    set_in(call, name, storage)
    return storage.data


def _is_zero(what: object) -> bool:
    return isinstance(what, float) and what == 0.0
