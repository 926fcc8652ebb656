"""What of a call lies in memory that the server sees too. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from npucall.regions import RegionPart
from npucall_client import arrays
from npucall_client.arguments import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npucall.dtypes import AnyArray
    from npucall_client.arguments import BoundCall


class Memory(Protocol):
    """Memory that the server knows by an id."""

    @property
    def id(self) -> bytes:
        """The server's name for it."""

    @property
    def start(self) -> int:
        """Its address in this process."""

    @property
    def memory(self) -> AnyArray:
        """Its bytes."""


def place(request: BoundCall, memories: Sequence[Memory]) -> Placement | None:
    """The storages of a call that lie in one of the memories, and the outputs that can be written.

    Those are the caller's own arrays that are, byte for byte, what the output's storage will be,
    and share no byte with anything else of the call. An output whose values the operator reads is
    none of them: a call that is repeated after the server broke off would read what it had written.
    """
    storage = {}
    for name, data in request.storage.items():
        address = arrays.address(np.frombuffer(data, np.uint8))
        if len(data) and (region := _find(memories, address, len(data))):
            storage[name] = region
    written = {}
    for name, target in request.targets.items():
        if name not in request.storage and target.nbytes and target.flags.c_contiguous:
            region = _find(memories, arrays.address(target), target.nbytes)
            if region:
                written[name] = region
    kept = {
        name: storage[name]
        for name in request.targets
        if name in storage and name.partition("[")[0] not in request.updated
    }
    shared = _overlapping([*storage.items(), *written.items()])
    outputs = {name: at for name, at in {**written, **kept}.items() if name not in shared}
    return Placement(storage, outputs) if storage or outputs else None


def ids(shared: Placement) -> set[bytes]:
    """The ids of the memories that a call names."""
    return {region.id for region in (*shared.storage.values(), *shared.outputs.values())}


def _find(memories: Iterable[Memory], address: int, length: int) -> RegionPart | None:
    for memory in memories:
        offset = address - memory.start
        if offset >= 0 and offset + length <= memory.memory.nbytes:
            return RegionPart(memory.id, offset, length)
    return None


def _overlapping(regions: list[tuple[str, RegionPart]]) -> set[str]:
    """The names of those that share a byte with another one."""
    found: set[str] = set()
    last, region_id, end = "", b"", 0
    for name, region in sorted(regions, key=lambda item: item[1]):
        if region.id == region_id and region.offset < end:
            found |= {last, name}
        if region.id != region_id or region.offset + region.length > end:
            last, region_id, end = name, region.id, region.offset + region.length
    return found
