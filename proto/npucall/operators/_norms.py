"""Layer normalisation: what it and its relatives check, and its formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, AnyArray, Array
from npucall.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from npucall.operators._numerics import row_sums
from npucall.operators._rows import (
    Sums,
    each_rows,
    flat,
    gradient,
    numbers_of,
    one_a_row,
    place_of,
    statistics,
)
from npucall.tensors import Shape

MOST = 8
"""Dimensions of a tensor."""
single = rules.dtype_from("the operator", into="single", make=lambda _: FLOAT)
"""Finds FLOAT for outputs that have it whatever the inputs have."""
of_weight = rules.dtype_from(
    "weight",
    into="of_weight",
    make=lambda draft: draft.dtype("input" if draft.absent("weight") else "weight"),
)
"""Finds the dtype of the sums that are gradients of weight and bias."""


Read: TypeAlias = "Callable[[tuple[slice, ...]], AnyArray]"
"""Reads rows by their places among all rows; what comes is not changed."""


def forward(
    facts: Facts,
    x: Array | Read,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    outputs: tuple[str, str, str] = ("out", "mean_out", "rstd_out"),
    then: Callable[[tuple[slice, ...], AnyArray], None] | None = None,
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """The normal form of rows, with the factors and addends of their elements; mean and rstd.

    A norm without a mean has no name for it. ``then`` gets each block of the normal form before it
    is written, and may change it.
    """
    rows, length = facts.shapes["rows"], facts.count("row")
    read = x if callable(x) else partial(facts.read, x)
    out = facts.output(outputs[0], rows + facts.shapes["row"])
    factor, addend = (flat(facts, each) for each in (weight, bias))
    found = {name: np.empty(prod(rows), facts.dtype) for name in outputs[1:]}

    def compute(index: tuple[slice, ...]) -> None:
        block = read(index)
        result, *each = statistics(block.reshape(-1, length), eps, centred=bool(outputs[1]))
        if factor is not None:
            result *= factor
        place = None
        if addend is not None:
            place = None if then else place_of(facts, outputs[0], index, result.shape)
            np.add(result, addend, out=result if place is None else place)
        if place is None:
            result = result.reshape(block.shape)
            if then:
                then(index, result)
            out[index] = result
        for kept, numbers in zip(found.values(), each, strict=True):
            kept[numbers_of(rows, index)] = numbers[:, 0]

    each_rows(facts, rows, length, compute)
    mean, rstd = (
        found[name].reshape(facts.output(name, facts.shapes["ones"]).shape)
        if name in facts.asked
        else None
        for name in outputs[1:]
    )
    return out, mean, rstd


def gradients(
    facts: Facts,
    grad: Array,
    x: Array | Read,
    mean: Array | None,
    rstd: Array,
    weight: Array | None,
    outputs: tuple[str, str, str],
    then: Callable[[tuple[slice, ...], AnyArray], None] | None = None,
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """The gradients of rows, weight and bias, of those outputs that are asked for.

    ``then`` gets each block of the first before it is written, and may change it.
    """
    read = x if callable(x) else partial(facts.read, x)
    rows, length = facts.shapes["rows"], facts.count("row")
    asked = [name in facts.asked for name in outputs]
    out = facts.output(outputs[0], rows + facts.shapes["row"]) if asked[0] else None
    factor, sums = flat(facts, weight), Sums(length, (asked[1], asked[2]))

    def compute(index: tuple[slice, ...]) -> list[AnyArray | None]:
        block = read(index)
        upstream = facts.read(grad, index).reshape(-1, length)
        normal, scale = block.reshape(-1, length), one_a_row(facts, rstd, rows, index)
        normal = normal * scale if mean is None else normal - one_a_row(facts, mean, rows, index)
        if mean is not None:
            normal *= scale
        products = upstream * normal
        part = sums.part(upstream, products)
        if out is not None:
            of_rows = (
                row_sums(products, factor),
                None if mean is None else row_sums(upstream, factor),
            )
            d = upstream if factor is None else np.multiply(upstream, factor, out=products)
            place = None if then else place_of(facts, outputs[0], index, d.shape)
            result = gradient(d, normal, scale, of_rows, place)
            if place is None:
                result = result.reshape(block.shape)
                if then:
                    then(index, result)
                out[index] = result
        return part

    each_rows(facts, rows, length, compute, sums.add)
    return out, *sums.shaped(facts.shapes["row"])


def _given(
    text: str,
    names: tuple[str, ...],
    fits: Callable[[Draft, str], bool],
    found: Callable[[Draft, str], object] = lambda draft, name: f"shape {draft.shape(name)}",
    error: type[ArgumentError] = ShapeError,
) -> tuple[rules.Rule, ...]:
    """A rule for each of these tensors, of those that the call gives."""

    def rule(name: str) -> rules.Rule:
        return rules.requires(
            text,
            name,
            holds=lambda draft: draft.tensor(name) is None or fits(draft, name),
            found=lambda draft: found(draft, name),
            error=error,
        )

    return tuple(map(rule, names))


def no_zero(*names: str) -> tuple[rules.Rule, ...]:
    """None of them has an extent of 0."""
    return _given("elements", names, lambda draft, name: 0 not in draft.shape(name))


def rows_of_gamma(x: str) -> tuple[rules.Rule, ...]:
    """Finds the rows of ``x`` if gamma has the shape of one: ``row``, ``rows`` and ``ones``."""

    def before(draft: Draft) -> Shape:
        shape = draft.shape(x)
        return shape[: len(shape) - len(draft.shape("gamma"))]

    return (
        rules.shape_of("gamma", into="row", make=lambda draft: draft.shape("gamma")),
        rules.shape_of(x, into="rows", make=before),
        rules.shape_of(
            x, into="ones", make=lambda draft: before(draft) + (1,) * len(draft.shape("gamma"))
        ),
    )


def gamma_fits(x: str) -> rules.Rule:
    """Gamma has no more dimensions than ``x``."""
    return rules.requires(
        f"at most the dimensions of {x}",
        "gamma",
        holds=lambda draft: len(draft.shape("gamma")) <= len(draft.shape(x)),
        found=lambda draft: len(draft.shape("gamma")),
    )


def gamma_is_tail(x: str) -> rules.Rule:
    """The extents of gamma are the last of ``x``."""
    return rules.requires(
        f"the last extents of {x}",
        "gamma",
        holds=lambda draft: draft.shape(x)[-len(draft.shape("gamma")) :] == draft.shape("gamma"),
        found=lambda draft: draft.shape("gamma"),
    )


def one_for_each_row(*names: str) -> tuple[rules.Rule, ...]:
    """Each has as many elements as there are rows, in any shape."""
    return _given(
        "one element for each row",
        names,
        lambda draft, name: prod(draft.shape(name)) == prod(draft.shape("rows")),
    )


def tail(draft: Draft) -> Shape:
    """The extents that are normalised."""
    extents: Shape = draft.attribute("normalized_shape")
    return extents


def lead(draft: Draft) -> Shape:
    """The extents of input before those."""
    shape = draft.shape("input")
    return shape[: len(shape) - len(tail(draft))]


def ones_behind(draft: Draft) -> Shape:
    """The shape of what there is one of for each row: extents of 1 where it is normalised."""
    return lead(draft) + (1,) * len(tail(draft))


def normalized_tail(*more: str, ranks: tuple[str, ...] = ()) -> tuple[rules.Rule, ...]:
    """The normalised extents are the last of input, and those of the tensors in ``more``.

    ``ranks``: those whose numbers of dimensions are looked at before.
    """
    return (
        rules.requires(
            "at least one extent",
            "normalized_shape",
            holds=lambda draft: len(tail(draft)) > 0,
            found=tail,
            error=AttributeValueError,
        ),
        rules.requires(
            "as many dimensions as normalized_shape has extents",
            "input",
            holds=lambda draft: len(draft.shape("input")) >= len(tail(draft)),
            found=lambda draft: len(draft.shape("input")),
        ),
        *_given(
            "as many dimensions as normalized_shape has extents",
            ranks,
            lambda draft, name: len(draft.shape(name)) == len(tail(draft)),
            found=lambda draft, name: len(draft.shape(name)),
        ),
        rules.requires(
            "the last extents of input",
            "normalized_shape",
            holds=lambda draft: draft.shape("input")[-len(tail(draft)) :] == tail(draft),
            found=tail,
            error=AttributeValueError,
        ),
        rules.shape_of("normalized_shape", into="row", make=tail),
        *(rules.same_shape(name, "row", "what normalized_shape says") for name in more),
        rules.shape_of("input", into="rows", make=lead),
    )


def float_or(own: str, *names: str) -> tuple[rules.Rule, ...]:
    """Each is FLOAT, or has the dtype of ``own``."""
    return _given(
        f"FLOAT, or the dtype of {own}",
        names,
        lambda draft, name: draft.dtype(name) in (FLOAT, draft.dtype(own)),
        found=lambda draft, name: draft.dtype(name),
        error=DTypeError,
    )
