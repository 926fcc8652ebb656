"""The arrays of a call that lie in memory that the server sees too. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npucall.places import RegionPart, clashes
from npucall_client.calls import arrays
from npucall_client.calls.arguments import BoundCall, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npucall_client.shared.side_socket import Region


def place(call: BoundCall, regions: Sequence[Region]) -> Placement | None:
    """The storages of a call that lie in one of the regions, and the outputs that can be written.

    An output can be written there if the caller's own array is, byte for byte, the output's
    storage, and shares no byte with anything else of the call. This excludes an output whose values
    the operator reads: if the server broke off, a repeat would read what the first try had written.
    """
    storage = {}
    for name, data in call.data.items():
        address = arrays.address(np.frombuffer(data, np.uint8))
        if len(data) and (part := _find(regions, address, len(data))):
            storage[name] = part
    outputs = {
        name: storage[name]
        for name in call.targets
        if name in storage and name.partition("[")[0] not in call.updated
    }
    for name, target in call.targets.items():
        if name not in call.storage and target.nbytes and target.flags.c_contiguous:
            part = _find(regions, arrays.address(target), target.nbytes)
            if part:
                outputs[name] = part
    for clash in list(clashes(outputs, storage)):
        outputs.pop(clash.place, None)
        if clash.other_is_place:
            outputs.pop(clash.other, None)
    return Placement(storage, outputs) if storage or outputs else None


def ids(placement: Placement) -> set[bytes]:
    """The ids of the regions that a call names."""
    return {part.id for part in (*placement.storage.values(), *placement.outputs.values())}


def _find(regions: Iterable[Region], address: int, length: int) -> RegionPart | None:
    for region in regions:
        offset = address - region.start
        if offset >= 0 and offset + length <= region.memory.nbytes:
            return RegionPart(region.id, offset, length)
    return None
