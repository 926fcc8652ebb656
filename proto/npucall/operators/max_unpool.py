"""Planes of zeros get numbers where indices say, and the gradient of that."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from textwrap import fill
from typing import Any

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Operator,
    Output,
    Parameter,
    Sample,
    at_once,
    operator,
    rules,
)
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.families import formula_of
from npucall.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    DType,
)
from npucall.errors import AttributeValueError
from npucall.operators._labels import check_labels
from npucall.operators._windows import PLANES, VOLUMES, WORDS
from npucall.operators.adaptive_avg_pool2d import pooled
from npucall.operators.max_pool2d_with_indices_backward import in_planes
from npucall.products import A2, A3, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

NEW = (A2, A3, ASCEND_950)
COPIED = (FLOAT, FLOAT16, INT8, UINT8, INT16, INT32, INT64)
TEXT = {PLANES: "(N, C, H, W) or (C, H, W)", VOLUMES: "(N, C, D, H, W) or (C, D, H, W)"}
ARRAYS = (
    Attribute("stride", Kind.INT_ARRAY, "steps of the windows; nothing is done with it"),
    Attribute("padding", Kind.INT_ARRAY, "cells beyond the edges; nothing is done with it"),
)


def _each_plane(facts: Facts, plane: int, count: int, shape: Shape, compute: Any) -> None:
    """Computes planes of a shape, several at once if they are short."""
    facts.each(cut(shape[:-count], max(BLOCK // max(plane, 1), 1)), compute)


def _filled(facts: Facts, given: Mapping[str, Any], name: str, count: int) -> AnyArray:
    shape, numbers = facts.shapes["pooled"], given["self"]
    plane = prod(shape[-count:])
    out = facts.output(name, shape)

    def fill(lead: tuple[slice, ...]) -> None:
        own = facts.read(numbers, lead)
        some = prod(own.shape[:-count])
        target = np.zeros((some, plane), own.dtype)
        places = _places(facts, given, lead, plane).reshape(some, -1)
        target[np.arange(some)[:, np.newaxis], places] = own.reshape(some, -1)
        out[lead] = target.reshape(*own.shape[:-count], *shape[-count:])

    _each_plane(facts, plane, count, shape, fill)
    return out


def _places(
    facts: Facts, given: Mapping[str, Any], lead: tuple[slice, ...], plane: int
) -> AnyArray:
    places = facts.read(given["indices"], lead).astype(np.int64)
    check_labels("indices", places, plane)
    return places


def _taken(facts: Facts, given: Mapping[str, Any], name: str, count: int) -> AnyArray:
    shape = facts.shapes["self"]
    out = facts.output(name, shape)
    plane = max(prod(facts.shapes[each][-count:]) for each in ("self", "grad_output"))

    def take(lead: tuple[slice, ...]) -> None:
        gradient = facts.read(given["grad_output"], lead)
        some = prod(gradient.shape[:-count])
        gradient = gradient.reshape(some, -1)
        places = _places(facts, given, lead, gradient.shape[1])
        found = np.take_along_axis(gradient, places.reshape(some, -1), 1)
        out[lead] = found.reshape(places.shape)

    _each_plane(facts, plane, count, shape, take)
    return out


def holds(facts: Facts, count: int, whole: str) -> int:
    """Of planes that are longer than a block."""
    plane, own = (prod(facts.shapes[name][-count:]) for name in (whole, "self"))
    return 8 * plane + 32 * own if max(plane, own) > BLOCK else 0


def _array(name: str, least: int, count: int) -> rules.Rule:
    words = f"{WORDS[count]} numbers" + f" of {least} or more" * (least > -1)
    return rules.value_fits(
        words,
        name,
        lambda value: len(value) == count and (least < 0 or min(value) >= least),
    )


def _sizes(count: int) -> tuple[rules.Rule, ...]:
    """Elements, and as many places as there are numbers."""
    return (
        rules.requires(
            "extents of 1 or more; the first may be 0",
            "self",
            holds=lambda draft: 0 not in draft.shape("self")[1:],
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        _array("output_size", 1, count),
        *([_array("stride", 1, count), _array("padding", -1, count)] if count == VOLUMES else []),
        rules.requires(
            "as many places as there are numbers",
            "output_size",
            holds=lambda draft: (
                prod(draft.attribute("output_size")) >= prod(draft.shape("self")[-count:])
            ),
            found=lambda draft: draft.attribute("output_size"),
            error=AttributeValueError,
        ),
    )


def _without_gaps(name: str) -> rules.Rule:
    return rules.requires(
        "no gaps",
        name,
        holds=lambda draft: all(spec.row_major for _, spec in draft.tensors((name,))),
        found=lambda draft: [spec.strides for _, spec in draft.tensors((name,))],
    )


def _forward_checks(name: str, count: int) -> tuple[rules.Rule, ...]:
    flat = count == PLANES
    return (
        rules.present("self", "indices", *_arrays(count), name),
        *([] if flat else [_without_gaps(name)]),
        rules.supported("self"),
        rules.same_dtype(name, as_="self"),
        rules.dtype_in("indices", INT32, INT64),
        rules.rank_is("self", count + 1, count + 2),
        rules.same_shape("indices", "self"),
        *_sizes(count),
        POOLED,
        rules.same_shape(name, "pooled", "what output_size says"),
        rules.succeed_if_empty("self"),
    )


POOLED = rules.shape_of("self", into="pooled", make=pooled)
OF_PLANES = rules.same_shape("grad_output", "pooled", "what output_size says")


def _backward_checks(count: int) -> tuple[rules.Rule, ...]:
    present = rules.present("grad_output", "self", "indices", *_arrays(count), "out")
    shapes = (
        rules.rank_is("self", count + 1, count + 2),
        rules.same_rank("grad_output", as_="self"),
        rules.same_shape("indices", "self"),
        rules.same_shape("out", "self"),
    )
    supported = rules.supported("grad_output", "self", "out")
    if count == VOLUMES:
        return (
            present,
            _without_gaps("out"),
            supported,
            rules.same_dtype("self", "out", as_="grad_output"),
            rules.dtype_in("indices", INT64),
            *shapes,
            *_sizes(count),
            POOLED,
            OF_PLANES,
            rules.succeed_if_empty("grad_output"),
        )
    return (
        present,
        supported,
        rules.castable("grad_output", to="out"),
        rules.same_dtype("self", as_="grad_output"),
        rules.dtype_in("indices", INT32, INT64),
        *shapes,
        _array("output_size", -1, count),
        POOLED,
        OF_PLANES,
        rules.requires(
            "gradients, since there are numbers",
            "grad_output",
            holds=lambda draft: 0 in draft.shape("self") or 0 not in draft.shape("grad_output"),
            found=lambda draft: f"shape {draft.shape('grad_output')}",
        ),
        rules.succeed_if_empty("self"),
    )


def _arrays(count: int) -> tuple[str, ...]:
    return ("output_size", *(each.name for each in ARRAYS if count == VOLUMES))


def declared(
    count: int, products: Mapping[Product, tuple[DType, ...]], *, backward: bool = False
) -> Operator[..., Any]:
    """An operator of the family."""
    name = f"aclnnMaxUnpool{count}d{'Backward' if backward else ''}"
    output = "out_ref" if count == VOLUMES and not backward else "out"
    whole = "grad_output" if backward else "pooled"
    planes = f"planes, {TEXT[count]}"
    new = Output(output, "gradient of the numbers", "self", "grad_output")
    parameters: tuple[Parameter, ...] = (
        *([Input("grad_output", f"gradients of the {planes}")] if backward else []),
        Input("self", "the numbers" if backward else f"numbers, {TEXT[count]}", read=not backward),
        Input("indices", "where they stand in their planes", as_is=True),
        Attribute("output_size", Kind.INT_ARRAY, "extents of the planes"),
        *(ARRAYS if count == VOLUMES else ()),
        new if backward else Output(output, f"the {planes}", "pooled", "self"),
    )
    compute = _taken if backward else _filled
    before = (2,) * count
    shapes: dict[str, Shape] = {"self": (1, 2, *before), "indices": (1, 2, *before)}
    if backward:
        shapes["grad_output"] = (1, 2, *(3,) * count)
    given = {each: [1] * count for each in _arrays(count)} | {"output_size": [3] * count}
    return operator(
        name,
        *parameters,
        products=products,
        checks=_backward_checks(count) if backward else _forward_checks(output, count),
        kernel_dtype=rules.dtype_of("grad_output" if backward else "self"),
        over=at_once(widen=False, holds=lambda facts, _: holds(facts, count, whole)),
        values=in_planes(whole, count),
        sample=Sample(
            shapes,
            {"indices": INT64},
            given,
            dense=(output,) if count == VOLUMES else (),
        ),
        area="convolution and pooling",
        torch=f"nn.functional.max_unpool{count}d",
        source=f"ops-nn index: page {name}, its checks [src:max-unpool]",
    )(
        formula_of(
            name,
            parameters,
            {"stride": (1,) * count, "padding": (0,) * count},
            lambda facts, call: compute(facts, call, output, count),
            _text(count, backward=backward),
        )
    )


def _text(count: int, *, backward: bool) -> str:
    """The docstring of an operator."""
    title = "Planes of ``output_size`` that are 0 but where ``indices`` put numbers of ``self``."
    formula = (
        "``out[n, c][indices[n, c, i]] = self[n, c, i]``, planes taken as rows. Of numbers with "
        "the same index the last one stays; a device does not say which."
    )
    if backward:
        title = f"Gradient of ``max_unpool{count}d`` with respect to its numbers."
        formula = (
            "Each number gets the gradient of the place that its index names. Nothing is "
            "computed, so every number keeps its bits."
        )
    refused = "An index outside the planes is refused (161002) when the call runs; a device does "
    gaps = " A result with gaps is refused." if count == VOLUMES else ""
    parts = (f"{formula} {refused}not look.{gaps}", f"As ``max_unpool{count}d`` in torch.")
    return "\n\n".join([title, *(fill(part, 96) for part in parts)])


NUMBERS = dict.fromkeys(NEW, (*COPIED, DOUBLE))
FLAT = (*COPIED, BOOL)

max_unpool2d = declared(PLANES, NUMBERS)
max_unpool3d = declared(VOLUMES, NUMBERS)
max_unpool2d_backward = declared(
    PLANES, {**dict.fromkeys(NEW, FLAT), ASCEND_910: FLAT}, backward=True
)
max_unpool3d_backward = declared(VOLUMES, NUMBERS, backward=True)
