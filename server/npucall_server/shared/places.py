"""Calls of which storages or outputs are in memory that the caller shares with the server."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING

from npucall.errors import MessageError, TensorLayoutError
from npucall.places import RegionPart, clashes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall.wire.messages import Request
    from npucall_server.shared.regions import Regions


class PlacedCall:
    """The storages of such a call, and the memory for its outputs; kept mapped while this lives.

    The client can write to an input while the call runs. That gives anything in the outputs, and
    must give nothing worse. Most inputs are only computed with, so they are read where they lie.
    What a formula or a kernel *addresses* with must not change once it has been checked: inputs
    that the formula takes as they are, such as labels, and all inputs of an operator that checks
    values before a device runs it, are copied first.

    ``person``: whose call it is. Raises MessageError, TensorLayoutError and SharedMemoryError.
    """

    def __init__(
        self, prepared: Prepared, request: Request, regions: Regions, person: str = ""
    ) -> None:
        names = chain(prepared.stored, repeat("storage"))
        self._storages = prepared.storages(
            [
                regions.view(place, name, person) if isinstance(place, RegionPart) else place
                for place, name in zip(request.storage, names, strict=False)
            ]
        )
        self._outputs, self._places = tuple(prepared.outputs), request.output_places
        shared = {
            name: place
            for name, place in zip(prepared.stored, request.storage, strict=True)
            if isinstance(place, RegionPart)
        }
        self._copied = {name for name in shared if _is_addressed_with(prepared, name)}
        self.targets: dict[str, Buffer] = {
            name: _target(prepared, name, place, regions, person)
            for name, place in request.output_places.items()
        }
        """Memory for outputs, by name."""
        self.target_bytes = sum(map(len, self.targets.values()))
        self.region_bytes = self.target_bytes + sum(
            len(self._storages[name]) for name in shared.keys() - self._copied
        )
        """Of the call that take no other memory than that of their regions."""
        _check_apart(request.output_places, shared)

    def storages(self) -> dict[str, Buffer]:
        """The storages by name, for a run; some of them copied."""
        return {
            name: bytes(storage) if name in self._copied else storage
            for name, storage in self._storages.items()
        }

    def replied(self, outputs: Sequence[Buffer]) -> list[Place]:
        """What the response says of the outputs: their places, or their bytes."""
        return [
            self._places.get(name, output)
            for name, output in zip(self._outputs, outputs, strict=True)
        ]


def _is_addressed_with(prepared: Prepared, name: str) -> bool:
    operator = prepared.operator
    parameter = name.partition("[")[0]  # of a list, one of its tensors
    return name in prepared.inputs and (operator.values is not None or parameter in operator.as_is)


def _target(
    prepared: Prepared, name: str, place: RegionPart, regions: Regions, person: str
) -> memoryview:
    spec = prepared.outputs.get(name)
    if spec is None:
        raise MessageError(
            f"output_places: expected outputs ({', '.join(prepared.outputs)}), found {name!r}"
        )
    if place.length != spec.storage_bytes:
        raise TensorLayoutError(
            f"{name}: expected a place of {spec.storage_bytes} bytes, found {place.length}",
            parameter=name,
        )
    return regions.view(place, name, person)


def _check_apart(places: Mapping[str, RegionPart], storages: Mapping[str, RegionPart]) -> None:
    """Raises TensorLayoutError where an output's place shares bytes with anything else."""
    for clash in clashes(places, storages):
        raise TensorLayoutError(
            f"{clash.place}: expected a place of its own, found that it shares bytes with "
            f"{'the place' if clash.other_is_place else 'the storage'} of {clash.other}",
            parameter=clash.place,
        )
