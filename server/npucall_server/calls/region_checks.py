"""Checks of calls whose inputs or outputs are in memory that the caller shares with the server."""

from __future__ import annotations

from npucall.declare.prepare import Prepared
from npucall.errors import TensorLayoutError
from npucall.places import RegionPart, clashes
from npucall.programs import Program


def is_addressed_with(call: Prepared, name: str) -> bool:
    """Whether a formula or a kernel uses the values of an input as addresses."""
    operator = call.operator
    parameter = name.partition("[")[0]  # of a list, one of its tensors
    return name in call.inputs and (operator.values is not None or parameter in operator.as_is)


def names_regions(program: Program) -> bool:
    """Whether all of its bytes are in regions, so that its message says all but these."""
    return all(
        isinstance(place, RegionPart)
        for step in program.steps
        for place in (*step.storage, *step.output_places.values())
    )


def check_length(call: Prepared, name: str, place: RegionPart) -> None:
    """Raises TensorLayoutError if an output's place is shorter or longer than the output."""
    size = call.outputs[name].storage_bytes
    if place.length != size:
        raise TensorLayoutError(
            f"{name}: expected a place of {size} bytes, found {place.length}", parameter=name
        )


def check_apart(program: Program) -> None:
    """Raises TensorLayoutError if an output's place shares bytes with any other place."""
    places: dict[str, RegionPart] = {}
    storages: dict[str, RegionPart] = {}
    for number, step in enumerate(program.steps):
        prefix = f"step {number}, " if len(program.steps) > 1 else ""
        for name, place in step.output_places.items():
            if isinstance(place, RegionPart):
                places[prefix + name] = place
        for name, source in zip(step.call.stored, step.storage, strict=True):
            if isinstance(source, RegionPart):
                storages[prefix + name] = source
    for clash in clashes(places, storages) if places else ():
        raise TensorLayoutError(
            f"{clash.place}: expected a place of its own, found that it shares bytes with "
            f"{'the place' if clash.other_is_place else 'the storage'} of {clash.other}",
            parameter=clash.place,
        )
