"""Elements of a tensor that a list of indices names, replaced or added to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    Values,
    at_once,
    operator,
    rules,
)
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault, refuses
from npucall.dtypes import BF16, BOOL, DOUBLE, FLOATS, INT32, INT64, AnyArray, Array
from npucall.errors import PARAM_INVALID, ArgumentError, DTypeError, ShapeError
from npucall.operators import _arithmetic as arithmetic
from npucall.operators._rows import numbers_of
from npucall.operators._scatter import HELD, OF_TARGET, Sorted
from npucall.products import A2, A3, ASCEND_910, ASCEND_950
from npucall.tensors import Shape, broadcast

TAKEN = (*FLOATS, DOUBLE, *arithmetic.INTEGERS, BOOL)
OF_PLACE = 8
"""Bytes of a number of a place along an axis."""


def axes_of(shapes: Sequence[Shape], masks: Sequence[bool]) -> list[tuple[int, ...]]:
    """The axes that each index takes: a mask as many as it has; none is taken by ``:``."""
    found, axis = [], 0
    for shape, is_mask in zip(shapes, masks, strict=True):
        count = len(shape) if is_mask and 0 not in shape else 1
        found.append(() if 0 in shape else tuple(range(axis, axis + count)))
        axis += count
    return found


def given(draft: Draft) -> Iterator[tuple[str, Shape, bool, tuple[int, ...]]]:
    """Name, shape and axes of each index, and whether it is a mask."""
    specs = dict(draft.tensors(("indices",)))
    shapes, masks = [s.shape for s in specs.values()], [s.dtype is BOOL for s in specs.values()]
    yield from zip(specs, shapes, masks, axes_of(shapes, masks), strict=True)


def wrong_dtypes(draft: Draft) -> Iterator[Fault]:
    """Indices with elements that are none."""
    for name, spec in draft.tensors(("indices",)):
        if spec.elements and spec.dtype not in (INT32, INT64, BOOL):
            yield name, "INT32, INT64 or BOOL", spec.dtype


def wrong_masks(draft: Draft) -> Iterator[Fault]:
    """Masks whose shape is not that of the axes that they take."""
    extents = draft.shape("self_ref")
    for name, shape, is_mask, axes in given(draft):
        under = extents[axes[0] : axes[-1] + 1] if axes else ()
        if is_mask and 0 not in shape and (shape != under or not shape):
            yield name, f"shape {under}, that of the axes it stands on", shape


def too_many(draft: Draft) -> Iterator[Fault]:
    """More indices than axes, of which masks take several."""
    count, rank = len(draft.lists["indices"]), len(draft.shape("self_ref"))
    axes = sum(max(len(own), 1) for *_, own in given(draft))
    if max(count, axes) > rank:
        yield "indices", f"indices of at most {rank} axes", f"{count} of {axes} axes"


def indexed(shape: Shape, taken: Sequence[int], chosen: Shape) -> tuple[Shape, int]:
    """The shape of what is indexed, and where the indices' own dimensions begin in it."""
    others = tuple(n for axis, n in enumerate(shape) if axis not in taken)
    together = list(taken) == list(range(taken[0], taken[-1] + 1)) if taken else True
    start = taken[0] if taken and together else 0
    return (*others[:start], *chosen, *others[start:]), start


def together(draft: Draft) -> Iterator[Fault]:
    """Indices that do not broadcast, and values that do not; with masks their numbers decide."""
    every = [each for each in given(draft) if each[3]]
    whole = tuple(name for name, _, is_mask, _ in every if not is_mask)
    common = broadcast(*(shape for _, shape, is_mask, _ in every if not is_mask))
    if common is None:
        yield whole, "shapes that broadcast to one", [draft.shape(name) for name in whole]
        return
    masks = [prod(shape) for _, shape, is_mask, _ in every if is_mask]
    draft.found_shapes["masks"] = tuple(masks)
    draft.found_shapes["places"] = (prod(common) * max((1, *masks)),)
    taken = [axis for *_, axes in every for axis in axes]
    draft.found_shapes["taken"] = tuple(draft.shape("self_ref")[axis] for axis in taken)
    result, _ = indexed(draft.shape("self_ref"), taken, common)
    if not masks and broadcast(draft.shape("values"), result) != result:
        yield (
            "values",
            f"a shape that broadcasts to {result}, what is indexed",
            draft.shape("values"),
        )


@dataclass(frozen=True)
class PlacedIndices:
    """Which elements the indices name."""

    taken: tuple[int, ...]
    """The axes of the tensor that they take; of ``numbers``, those are the places."""
    numbers: AnyArray
    chosen: Shape
    """The shape that the indices broadcast to; ``numbers`` are flat."""
    start: int
    """Where its dimensions begin in the shape of what is indexed."""

    @classmethod
    def of(cls, facts: Facts, indices: Sequence[Any], values: Any) -> "PlacedIndices":
        """Raises ArgumentError for an index that is no place, or where the values do not fit."""
        shape = facts.shapes["self_ref"]
        axes = axes_of([i.shape for i in indices], [i.dtype == np.bool_ for i in indices])
        arrays: list[tuple[int, AnyArray]] = []
        for number, (index, own) in enumerate(zip(indices, axes, strict=True)):
            if own:
                read = facts.read(index, ...)
                found = np.nonzero(read) if read.dtype == np.bool_ else (read,)
                arrays += [
                    (axis, _within(number, p, shape[axis]))
                    for axis, p in zip(own, found, strict=True)
                ]
        taken = tuple(axis for axis, _ in arrays)
        chosen = broadcast(*(array.shape for _, array in arrays))
        if chosen is None:
            raise _unfit("indices", "as many places as masks have", [a.shape for _, a in arrays])
        result, start = indexed(shape, taken, chosen)
        if broadcast(values.shape, result) != result:
            expected = f"a shape that broadcasts to {result}, what is indexed"
            raise _unfit("values", expected, values.shape)
        numbers = np.zeros(chosen, np.int64)
        for axis, array in arrays:
            numbers = numbers * shape[axis] + array
        return cls(taken, numbers.reshape(-1), chosen, start)

    def rows(self, facts: Facts, values: Any, some: AnyArray, rest: Sequence[slice]) -> AnyArray:
        """Values for some of the numbers, as rows; ``rest``: the block of all other axes."""
        places = np.unravel_index(some, self.chosen) if self.chosen else ()
        every = [*rest[: self.start], *places, *rest[self.start :]]
        lead = len(every) - len(values.shape)
        index: list[Any] = [
            piece if extent > 1 else slice(None) if isinstance(piece, slice) else 0
            for extent, piece in zip(values.shape, every[lead:], strict=True)
        ]
        found = facts.read(values, tuple(index))
        arrays = [axis for axis, piece in enumerate(index) if not isinstance(piece, slice)]
        has_rows = any(isinstance(index[axis], np.ndarray) for axis in arrays)
        found = np.moveaxis(found, arrays[0], 0) if has_rows else found[np.newaxis]
        extents = [piece.stop - piece.start for piece in rest]
        missing = (1,) * (len(extents) + 1 - found.ndim)
        found = found.reshape(found.shape[0], *missing, *found.shape[1:])
        return np.broadcast_to(found, (len(some), *extents)).reshape(len(some), prod(extents))


def _within(number: int, places: AnyArray, extent: int) -> AnyArray:
    """Places along an axis, none of them negative."""
    beyond = places[(places < -extent) | (places >= extent)]
    if beyond.size:
        raise _unfit(f"indices[{number}]", f"places from {-extent} to {extent - 1}", beyond.flat[0])
    return np.where(places < 0, places + extent, places).astype(np.int64)


def _unfit(name: str, expected: str, found: object) -> ArgumentError:
    text = f"{name}: expected {expected}, found {found}"
    return ArgumentError(text, parameter=name, aclnn_status=PARAM_INVALID)


def check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """Refuses what the formula refuses."""
    del attributes
    PlacedIndices.of(facts, inputs["indices"], inputs["values"])


def always(facts: Facts) -> range:
    """Places of every axis that is taken; masks must be counted."""
    least = min(facts.shapes.get("taken", ()), default=0)
    return range(0) if facts.shapes.get("masks") else range(-least, least)


def held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Numbers of the indices, and of what they name."""
    taken = facts.shapes["taken"]
    of_index = HELD + OF_PLACE * (2 + len(taken))
    return of_index * facts.first("places") + OF_TARGET * prod(taken)


@operator(
    "aclnnIndexPutImpl",
    Output("self_ref", "the tensor; updated", in_place=True),
    Input("indices", "for each axis from the first on: places, a mask, or without elements all",
          many=True, as_is=True),
    Input("values", "what is put there; broadcasts to what is indexed"),
    Attribute("accumulate", Kind.BOOL, "they are added to what is there", const=True),
    Attribute("unsafe", Kind.BOOL, "not looked at: places are always checked", const=True),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), TAKEN),
        ASCEND_910: tuple(each for each in TAKEN if each is not BF16),
    },
    checks=(
        rules.present("self_ref", "values", "indices"),
        rules.supported("self_ref"),
        rules.supported("values"),
        refuses(DTypeError, "indices with elements are INT32, INT64 or BOOL", ("indices",),
                wrong_dtypes),
        rules.same_dtype("values", as_="self_ref"),
        rules.rank_at_most(8, "self_ref"),
        refuses(ShapeError, "indices are of no more axes than self_ref", ("indices",), too_many),
        refuses(ShapeError, "masks have the shape of their axes", ("indices",), wrong_masks),
        rules.succeed_if_empty("self_ref", "values"),
        refuses(ShapeError, "indices broadcast to one shape, values to what is indexed",
                ("indices", "values"), together),
    ),
    kernel_dtype=rules.dtype_of("self_ref"),
    over=at_once(holds=held),
    values=Values(("indices",), check, always),
    sample=Sample({"self_ref": (3, 4), "indices": ((2,), (2,)), "values": (2,)},
                  {"indices": INT64}, {"accumulate": True, "unsafe": False}),
    area="indexing",
    torch="index_put",
    source="ops-nn index/index_put_v2: page aclnnIndexPutImpl, order of its checks",
)  # fmt: skip
def index_put_impl(
    facts: Facts,
    self_ref: Array,
    indices: Sequence[Array],
    values: Array,
    accumulate: bool = False,
    unsafe: bool = False,
) -> AnyArray:
    """``self_ref[indices] = values``, or ``+=`` with ``accumulate``, in place.

    Each index stands on the next axis: places along it, of which negative ones count from the end;
    a mask of BOOL, which takes as many axes as it has; or, of any dtype and without elements, all
    of the axis. Axes behind the last index are whole too. Indices broadcast with each other, and
    their dimensions stand where their axes were if these are together, else in front.

    Values of one element are added in their order, FLOAT16 and BF16 in float32, floats from 64 of
    them on in float64, and rounded once; without ``accumulate`` the last one stays, where a device
    may leave any. A place that is none, and values that do not fit, are refused (161002) when the
    call runs, whatever ``unsafe`` says. The software compares shapes of places with those of their
    axes if there is a mask too; here only those of masks.

    As ``index_put_`` in torch.
    """
    del unsafe
    found = PlacedIndices.of(facts, indices, values)
    shape, taken = facts.shapes["self_ref"], found.taken
    order = (*taken, *(axis for axis in range(len(shape)) if axis not in taken))
    lead = tuple(shape[axis] for axis in taken)
    chosen = Sorted.of(found.numbers, prod(lead))
    out, back = facts.output("self_ref", shape), np.argsort(order)

    def put(block: tuple[slice, ...]) -> None:
        rest, there = block[len(lead) :], tuple(block[axis] for axis in back)
        rows, start = numbers_of(lead, block[: len(lead)]), facts.read(self_ref, there)
        start = start.transpose(order)
        own = start.reshape(rows.stop - rows.start, -1)
        if accumulate:
            own = chosen.added(own, lambda some: found.rows(facts, values, some, rest), rows)
        else:
            own = own.copy()
            last, ends = chosen.counts(rows) > 0, chosen.starts[rows.start + 1 : rows.stop + 1]
            own[last] = found.rows(facts, values, chosen.order[ends[last] - 1], rest)
        out[there] = own.reshape(start.shape).transpose(back)

    facts.each(cut(tuple(shape[axis] for axis in order), BLOCK), put)
    return out
