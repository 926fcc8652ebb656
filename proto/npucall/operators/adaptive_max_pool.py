"""Largest numbers of as many windows as are wanted, where they stand, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Operator,
    Output,
    Sample,
    at_once,
    operator,
    rules,
)
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.declare.draft import Draft
from npucall.declare.families import formula_of
from npucall.dtypes import DOUBLE, FLOATS, HALF_AND_SINGLE, INT32, INT64, AnyArray, DType
from npucall.operators import _averages as averages
from npucall.operators._ranges import nth_numbers
from npucall.operators._windows import FORMATS, PLANES, VOLUMES, WORDS
from npucall.operators.adaptive_avg_pool2d import same_lead
from npucall.operators.max_pool2d_with_indices_backward import added_up, holds, in_planes
from npucall.products import A2, A3, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

_MOST = 3
"""Blocks that are computed as one."""
_BITS = 5
_SHORT = 1 << _BITS
"""Numbers of a window along an axis that are compared one after the other, at the most."""
NEW = (A2, A3, ASCEND_950)
PLACES = {PLANES: "row * W + column", VOLUMES: "(layer * H + row) * W + column"}
TEXT = {PLANES: "(N, C, H, W) or (C, H, W)", VOLUMES: "(N, C, D, H, W) or (C, D, H, W)"}


def _largest(best: AnyArray, places: AnyArray, axis: int, count: int) -> tuple[AnyArray, AnyArray]:
    """The largest numbers of windows along an axis, with their places: the first, or a last NaN."""
    shape = (*best.shape[:axis], count, *best.shape[axis + 1 :])
    found = np.empty(shape, best.dtype), np.empty(shape, np.int64)
    windows = averages.adaptive(best.shape[axis], count).windows(np.arange(count))
    for window, (start, stop) in enumerate(zip(*windows, strict=True)):
        piece = (*(slice(None),) * axis, slice(start, stop))
        numbers = best[piece]
        which = np.argmax(numbers, axis, keepdims=True)  # the first NaN, if there is one
        lost = np.isnan(numbers)
        if lost.any():
            last = stop - start - 1 - np.argmax(np.flip(lost, axis), axis, keepdims=True)
            which = np.where(lost.any(axis, keepdims=True), last, which)
        for each, of_all in zip(found, (numbers, places[piece]), strict=True):
            here = (*(slice(None),) * axis, slice(window, window + 1))
            each[here] = np.take_along_axis(of_all, which, axis)
    return found


class _Windows(NamedTuple):
    """Of an axis: where they start, and their first numbers, their second ones, and so on."""

    starts: AnyArray
    steps: Sequence[tuple[Any, Any]]


def _short_windows(sizes: Shape, counts: Shape) -> list[_Windows] | None:
    """Those of each axis; None if there are long ones."""
    pairs = zip(sizes, counts, strict=True)
    every = [averages.adaptive(*pair).windows(np.arange(pair[1])) for pair in pairs]
    if max((each.stops - each.starts).max() for each in every) > _SHORT:
        return None
    return [_Windows(each.starts, list(nth_numbers(each))) for each in every]


def _first_places(planes: AnyArray, every: Sequence[_Windows]) -> AnyArray | None:
    """Where the first one of the largest numbers of each window stands; None if there is NaN.

    An axis after the other, the first one along whole rows. Which number of its window it is takes
    ``_BITS`` for each axis; all of them for one that is not the largest.
    """
    largest, which = planes, None
    for axis, (_, steps) in enumerate(every, 1):
        numbers, lead = largest, (slice(None),) * axis
        largest = _maxima(numbers, steps, axis)
        before = None if which is None else which.astype(np.uint16) << _BITS
        dtype = np.dtype(np.uint8 if before is None else np.uint16)
        which = np.full(largest.shape, np.iinfo(dtype).max, dtype)
        for number, (to, of) in enumerate(steps):
            others = numbers[(*lead, of)] != largest[(*lead, to)]
            found = others.view(np.uint8).astype(dtype, copy=False)
            np.negative(found, out=found)
            found |= dtype.type(number)
            if before is not None:
                found |= before[(*lead, of)]
            which[(*lead, to)] = np.minimum(which[(*lead, to)], found)
    if which is None or np.isnan(largest).any():
        return None
    places = np.zeros(which.shape, np.int64)
    for axis, (starts, _) in enumerate(every, 1):
        places *= planes.shape[axis]
        places += which >> _BITS * (len(every) - axis) & _SHORT - 1
        places += starts.reshape(-1, *(1,) * (len(every) - axis))
    return places


def _maxima(numbers: AnyArray, steps: Sequence[tuple[Any, Any]], axis: int) -> AnyArray:
    """The largest numbers of windows along an axis."""
    lead = (slice(None),) * axis
    found: AnyArray = numbers[(*lead, steps[0][1])].copy()
    for to, of in steps[1:]:
        there = found[(*lead, to)]
        np.maximum(there, numbers[(*lead, of)], out=there)
        if not isinstance(to, slice):
            found[(*lead, to)] = there
    return found


def _pooled(facts: Facts, planes: Any, count: int) -> tuple[AnyArray, AnyArray]:
    shape, sizes = facts.shapes["pooled"], planes.shape[-count:]
    out, indices = (facts.output(name, shape) for name in ("output_out", "indices_out"))
    own = np.arange(prod(sizes)).reshape(sizes)
    short = _short_windows(sizes, shape[-count:])

    def pool(lead: tuple[slice, ...]) -> None:
        numbers = facts.read(planes, lead)
        some = prod(numbers.shape[:-count])
        best = numbers.reshape(some, *sizes)
        places = None if short is None else _first_places(best, short)
        if places is not None:
            places = places.reshape(some, -1)
            best = np.take_along_axis(best.reshape(some, -1), places, 1)
        else:
            places = np.broadcast_to(own, best.shape)
            for axis in range(count, 0, -1):
                best, places = _largest(best, places, axis, shape[axis - count - 1])
        whole = (*numbers.shape[:-count], *shape[-count:])
        out[lead], indices[lead] = best.reshape(whole), places.reshape(whole)

    longest = max(prod(sizes), prod(shape[-count:]))
    limit = shared_block(prod(planes.shape), _MOST)
    facts.each(cut(shape[:-count], max(limit // longest, 1)), pool)
    return out, indices


def _held(facts: Facts, count: int) -> int:
    """Of planes that are longer than a block: their numbers, where they stand, and what is left."""
    own, pooled = (facts.shapes[name][-count:] for name in ("self", "pooled"))
    stages = [prod((*own[:axis], *pooled[axis:])) for axis in range(count + 1)]
    return 20 * stages[-1] + 40 * max(stages[:-1]) if max(stages) > BLOCK else 0


def _wanted(draft: Draft, count: int) -> Shape:
    """The shape of the windows: one number is for all axes, none leaves the planes as they are."""
    lead, own = draft.shape("self")[:-count], draft.shape("self")[-count:]
    size = tuple(draft.attribute("output_size"))
    return (*lead, *(size * count if len(size) == 1 else size or own))


def _size(count: int, *others: int) -> rules.Rule:
    words = f"{WORDS[count]} numbers of 1 or more" + ", or one, or none" * bool(others)
    return rules.value_fits(
        words,
        "output_size",
        lambda value: len(value) in {count, *others} and min(value, default=1) > 0,
    )


def _checks(count: int) -> tuple[rules.Rule, ...]:
    """Null, dtypes, dimensions, formats, extents, sizes, shapes."""
    flat = count == PLANES
    dtypes = (rules.supported("self", "output_out"),)
    ranks = (
        rules.rank_is("self", count + 1, count + 2),
        rules.same_rank("output_out", "indices_out", as_="self"),
    )
    size = [rules.on((ASCEND_950,), _size(VOLUMES, 0, 1)), rules.except_on((ASCEND_950,), SIZE_3D)]
    return (
        rules.present("self", "output_size", "output_out", "indices_out"),
        *(dtypes if flat else ranks),
        *(ranks if flat else dtypes),
        *([rules.dtype_in("indices_out", INT64)] if flat else _indices("indices_out")),
        rules.format_in("self", *FORMATS[count]),
        rules.same_format("output_out", "self"),
        rules.same_dtype("output_out", as_="self"),
        rules.requires(
            "extents of 1 or more; the first may be 0",
            "self",
            holds=lambda draft: 0 not in draft.shape("self")[1:],
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        *([_size(PLANES)] if flat else size),
        rules.shape_of("self", into="pooled", make=lambda draft: _wanted(draft, count)),
        *(
            rules.same_shape(name, "pooled", "what output_size says")
            for name in ("output_out", "indices_out")
        ),
        rules.dtype_from("indices_out", into="places", make=lambda _: INT64 if flat else INT32),
        rules.succeed_if_empty("self"),
    )


def _indices(name: str) -> tuple[rules.Rule, ...]:
    return (
        rules.except_on((ASCEND_950,), rules.dtype_in(name, INT32)),
        rules.on((ASCEND_950,), rules.dtype_in(name, INT32, INT64)),
    )


SIZE_3D = _size(VOLUMES)


def _text(title: str, *parts: str) -> str:
    return "\n\n".join([title, *(fill(part, 96) for part in parts)])


def forward(count: int, products: Mapping[Product, tuple[DType, ...]]) -> Operator[..., Any]:
    """The operator of planes with so many axes."""
    name = f"aclnnAdaptiveMaxPool{count}d"
    text = _text(
        "Largest numbers of ``output_size`` windows of ``self``, and where they stand.",
        "The windows are as equal as they can be: along an axis of n numbers, window i of m has "
        "the numbers from i n / m, rounded down, to before (i + 1) n / m, rounded up. "
        f"``indices_out`` has {PLACES[count]} of the largest one: of equal numbers the first. NaN "
        f"is larger than every number, and the last one counts. Nothing is rounded. {MORE[count]}",
        f"As ``adaptive_max_pool{count}d`` in torch.",
    )
    parameters = (
        Input("self", f"planes, {TEXT[count]}"),
        Attribute("output_size", Kind.INT_ARRAY, "how many windows there are along each axis"),
        Output("output_out", "the largest numbers", "pooled", "self", format="self"),
        Output("indices_out", "where they stand", "pooled", "places", as_is=True),
    )
    return operator(
        name,
        *parameters,
        products=products,
        formats_by_rank=True,
        checks=_checks(count),
        kernel_dtype=rules.dtype_of("self"),
        over=at_once(holds=lambda facts, _: _held(facts, count)),
        sample=Sample({"self": (1, 2, *(3,) * count)}, attributes={"output_size": [2] * count}),
        area="convolution and pooling",
        torch=f"nn.functional.adaptive_max_pool{count}d",
        source=f"ops-nn pooling/adaptive_max_pool{count}d: page {name} [src:adaptive-max-pool]",
    )(formula_of(name, parameters, {}, lambda f, given: _pooled(f, given["self"], count), text))


def backward(count: int) -> Operator[..., Any]:
    """The gradient of the operator."""
    name, flat = f"aclnnAdaptiveMaxPool{count}dBackward", count == PLANES
    text = _text(
        f"Gradient of ``adaptive_max_pool{count}d`` with respect to its planes.",
        "Each number of the planes gets the sum of the gradients of the windows whose ``indices`` "
        "name it. Sums are taken in float64 and rounded once. ``self`` gives the shape alone. An "
        "index outside the planes is refused (161002) when the call runs; a device does not look. "
        "Without gradients ``grad_input`` is 0; a device leaves it as it was.",
        f"As ``aten.adaptive_max_pool{count}d_backward`` in torch.",
    )
    parameters = (
        Input("grad_output", "gradients of the largest numbers"),
        Input("self", f"the planes, {TEXT[count]}", read=False),
        Input("indices", "where the largest numbers stand in their planes", as_is=True),
        Output("grad_input", "gradient of the planes", "self", "self", format="self"),
    )

    def formula(facts: Facts, given: Mapping[str, Any]) -> AnyArray:
        indices = given["indices"]
        return added_up(facts, given["grad_output"], lambda lead: facts.read(indices, lead), count)

    pooled = dict.fromkeys(("grad_output", "indices"), (1, 2, *(2,) * count))
    return operator(
        name,
        *parameters,
        products=dict.fromkeys(NEW, FLOATS),
        checks=(
            rules.present("grad_output", "self", "indices", "grad_input"),
            rules.same_dtype("grad_output", "grad_input", as_="self"),
            rules.supported("self"),
            *([rules.dtype_in("indices", INT32, INT64)] if flat else _indices("indices")),
            rules.same_rank("grad_input", "grad_output", "indices", as_="self"),
            rules.same_shape("indices", "grad_output"),
            rules.same_shape("grad_input", "self"),
            *(rules.same_format(each, "self") for each in ("grad_output", "grad_input", "indices")),
            rules.format_in("self", *FORMATS[count]),
            rules.rank_is("self", count + 1, count + 2),
            same_lead("grad_output", count),
            rules.fill_if_empty("grad_output", fill=lambda _: 0.0, meaning="0"),
            rules.succeed_if_empty("self"),
        ),
        kernel_dtype=rules.dtype_of("self"),
        over=at_once(holds=lambda facts, _: holds(facts, "indices", count)),
        values=in_planes("self", count),
        sample=Sample({"self": (1, 2, *(3,) * count), **pooled}, {"indices": INT32}),
        area="convolution and pooling",
        torch=f"nn.functional.adaptive_max_pool{count}d",
        source=f"ops-nn pooling/adaptive_max_pool3d_grad: page {name} [src:adaptive-max-pool]",
    )(formula_of(name, parameters, {}, formula, text))


MORE = {
    PLANES: "Ascend910 takes no BF16.",
    VOLUMES: "Ascend 950 takes one number of windows for all axes too, or none, which leaves the "
    "planes as they are.",
}
adaptive_max_pool2d = forward(
    PLANES,
    {**dict.fromkeys(NEW, (*FLOATS, DOUBLE)), ASCEND_910: (*HALF_AND_SINGLE, DOUBLE)},
)
adaptive_max_pool3d = forward(VOLUMES, dict.fromkeys(NEW, FLOATS))
adaptive_max_pool2d_backward = backward(PLANES)
adaptive_max_pool3d_backward = backward(VOLUMES)
