"""Images, and what else has axes of space, get other extents; and the gradients of that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, NamedTuple

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
from npucall.declare.draft import Draft
from npucall.declare.families import formula_of, snake
from npucall.dtypes import DOUBLE, FLOAT16, FLOATS, HALF_AND_SINGLE, UINT8, AnyArray, DType
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators import _interpolation as interpolation
from npucall.operators._interpolation import Stretch, nearest, nearest_exact
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

MOST = 50
"""The largest scale, where a device looks."""
TEXTS: Mapping[interpolation.Mode, str] = {
    nearest: """
        Cell o of an axis is the cell at floor(f o) of the axis before, f being size / new size,
        or 1 / scale if a scale is positive, in float32. With as many cells as before it is cell o,
        with twice as many cell o / 2, whatever the scale.
        """,
    nearest_exact: """
        Cell o of an axis is the cell at floor(f (o + 1/2)) of the axis before, in which its middle
        lies; f is size / new size, or 1 / scale if a scale is positive, in float32.
        """,
}


class _Row(NamedTuple):
    """An operator of the family."""

    name: str
    mode: interpolation.Mode
    products: Mapping[Product, tuple[DType, ...]]
    given: str = "self"
    output: str = "out"
    scaled: bool = True
    """Whether calls have scales."""
    rank_first: bool = False
    """Whether dimensions are checked before dtypes."""
    limited: bool = False
    """Whether more than ``MOST`` times as many cells are refused."""
    signed: bool = True
    """Whether negative scales are taken for none."""
    free: int = 2
    """How many of the first axes may have no extent: images, channels."""

    @property
    def axes(self) -> int:
        """How many axes are resized."""
        (count,) = re.findall(r"(\d)d", self.name)
        return int(count)

    @property
    def backward(self) -> bool:
        """Whether it is a gradient."""
        return self.name.endswith(("Backward", "Grad"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """The attributes that are extents."""
        return ("output_size", "input_size")[: 1 + self.backward]

    @property
    def scales(self) -> tuple[str, ...]:
        """The attributes that are scales."""
        names = ("scales",) if self.axes == 1 else ("scales_d", "scales_h", "scales_w")
        return names[-self.axes :] if self.scaled else ()

    def found(self, before: Shape, given: Mapping[str, Any]) -> tuple[Stretch, ...]:
        """The axes of a call, from the shape of its planes."""
        scales = [given[name] for name in self.scales] or [0.0] * self.axes
        cells = zip(before[-self.axes :], given["output_size"], scales, strict=True)
        return tuple(Stretch(*each) for each in cells)


def declared(name: str, *parts: Any, **more: Any) -> Operator[..., Any]:
    """The operator of a row."""
    row = _Row(f"aclnn{name}", *parts, **more)
    new = "gradient of the planes" if row.backward else "the new planes"
    parameters: tuple[Parameter, ...] = (
        Input(row.given, "gradient of the new planes" if row.backward else "planes, (N, C, ...)"),
        Attribute("output_size", Kind.INT_ARRAY, "extents of the new planes"),
        *[Attribute("input_size", Kind.INT_ARRAY, "shape of the planes")][: row.backward],
        *(Attribute(each, Kind.DOUBLE, "new by old extent; 0: as they are") for each in row.scales),
        Output(row.output, new, "before" if row.backward else "after", row.given, format=row.given),
    )
    compute = interpolation.gradient if row.backward else interpolation.resized

    def formula(facts: Facts, call: Mapping[str, Any]) -> AnyArray:
        axes = row.found(facts.shapes["before"], call)
        return compute(facts, call[row.given], row.mode, axes, row.output)

    return operator(
        row.name,
        *parameters,
        products=row.products,
        checks=_checks(row),
        kernel_dtype=rules.dtype_of(row.given),
        over=at_once(
            holds=lambda facts, given: interpolation.holds(
                row.found(facts.shapes["before"], given), 1, backward=row.backward
            )
        ),
        sample=_sample(row),
        area="images",
        torch="nn.functional.interpolate",
        source=f"ops-cv image: page {row.name}, its checks [src:upsample]",
        formats_by_rank=True,
    )(formula_of(row.name, parameters, dict.fromkeys(row.scales, 0.0), formula, _text(row)))


def _text(row: _Row) -> str:
    """The docstring of an operator."""
    axes = f"along {row.axes} axes" if row.axes > 1 else "along an axis"
    title = f"Planes with other extents {axes}, of the nearest cells."
    if row.backward:
        forward = row.name.removesuffix("Backward").removeprefix("aclnn")
        title = f"Gradient of ``{forward}``: each cell gets the sum of what was taken from it."
    rest = "Sums are taken in float32. " if row.backward else "Nothing is rounded. "
    private = "_" if "Exact" in row.name else ""
    return (
        f"{title}\n\n{cleandoc(TEXTS[row.mode])}\n\n{rest}Channels are the second axis; a "
        f"format that has them last is refused.\n\nAs ``aten.{private}{snake(row.name)}`` in torch."
    )


def _sample(row: _Row) -> Sample:
    before, after = (1, 2, *(3,) * row.axes), (1, 2, *(2,) * row.axes)
    sizes: dict[str, Any] = {"output_size": [2] * row.axes}
    if row.backward:
        sizes["input_size"] = [*before]
    return Sample({row.given: after if row.backward else before}, attributes=sizes)


def _checks(row: _Row) -> tuple[rules.Rule, ...]:
    """Null, dtype, dimensions, formats, extents, scales, shapes, in nearly this order."""
    dtypes = (rules.supported(row.given), rules.same_dtype(row.output, as_=row.given))
    rank = rules.rank_is(row.given, row.axes + 2)
    return (
        rules.present(row.given, *row.sizes, row.output),
        *((rank, *_lengths(row), *dtypes) if row.rank_first else (*dtypes, rank, *_lengths(row))),
        rules.format_of_rank(row.given, row.output),
        *(rules.not_negative(each) for each in row.scales if not row.signed),
        *_extents(row),
        *(
            [rules.same_shape(row.given, "after", "that of input_size with output_size")]
            if row.backward
            else ()
        ),
        rules.same_shape(row.output, "before" if row.backward else "after"),
        *([_limit(row)] if row.limited else ()),
        rules.succeed_if_empty(row.given),
    )


def _lengths(row: _Row) -> tuple[rules.Rule, ...]:
    def has(count: int, name: str) -> rules.Rule:
        return rules.value_fits(f"{count} numbers", name, lambda value: len(value) == count)

    return tuple(map(has, (row.axes, row.axes + 2), row.sizes))


def _extents(row: _Row) -> tuple[rules.Rule, ...]:
    """That there are cells; finds the shapes ``before`` and ``after``."""

    def before(draft: Draft) -> Shape:
        return draft.attribute("input_size") if row.backward else draft.shape(row.given)

    def after(draft: Draft) -> Shape:
        return (*before(draft)[:2], *draft.attribute("output_size"))

    name = "input_size" if row.backward else row.given
    free = ("", "; images may be 0", "; images and channels may be 0")[row.free]
    return (
        rules.requires(
            f"numbers of 1 or more{free}",
            name,
            holds=lambda draft: min(before(draft)[row.free :]) > 0,
            found=before,
            error=AttributeValueError if row.backward else ShapeError,
        ),
        rules.value_fits("numbers of 1 or more", "output_size", lambda value: min(value) > 0),
        rules.shape_of(name, into="before", make=before),
        rules.shape_of(name, into="after", make=after),
    )


def _limit(row: _Row) -> rules.Rule:
    def scales(draft: Draft) -> list[float]:
        given = {name: draft.attribute(name) for name in (*row.scales, "output_size")}
        return [1 / axis.factor() for axis in row.found(draft.shape("before"), given)]

    return rules.requires(
        f"at most {MOST} times as many cells",
        *row.scales,
        *row.sizes,
        holds=lambda draft: max(scales(draft)) <= MOST,
        found=scales,
        error=AttributeValueError,
    )


WITH_DOUBLE = (*FLOATS, DOUBLE)
NEW = (A2, A3, ASCEND_950)
HALF = dict.fromkeys((ASCEND_910, ASCEND_310P), (FLOAT16,))
COPIED = {
    **dict.fromkeys(NEW, (*WITH_DOUBLE, UINT8)),
    **dict.fromkeys((ASCEND_910, ASCEND_310P), (*HALF_AND_SINGLE, DOUBLE, UINT8)),
}
COPIED_3D = {
    **dict.fromkeys((A2, A3), WITH_DOUBLE),
    ASCEND_950: (*WITH_DOUBLE, UINT8),
    ASCEND_910: (*HALF_AND_SINGLE, DOUBLE),
    ASCEND_310P: HALF_AND_SINGLE,
}
EXACT = {**dict.fromkeys(NEW, FLOATS), ASCEND_310P: HALF_AND_SINGLE}
ADDED = dict.fromkeys(NEW, FLOATS)
ADDED_1D = {**dict.fromkeys(NEW, WITH_DOUBLE), **HALF}
ADDED_3D = {**dict.fromkeys(NEW, WITH_DOUBLE), ASCEND_910: (*HALF_AND_SINGLE, DOUBLE)}
OUT, OUTPUT = ("grad_out", "out"), ("grad_output", "out")
IN: tuple[str, str] = ("grad_out", "grad_input")
EXACTLY: dict[str, Any] = {"signed": False, "limited": True}

upsample_nearest1d = declared("UpsampleNearest1d", nearest, COPIED, scaled=False, free=1)
upsample_nearest2d = declared("UpsampleNearest2d", nearest, COPIED, scaled=False, free=1)
upsample_nearest3d = declared("UpsampleNearest3d", nearest, COPIED_3D, free=1)
upsample_nearest_exact1d = declared("UpsampleNearestExact1d", nearest_exact, EXACT, free=0)
upsample_nearest_exact2d = declared("UpsampleNearestExact2d", nearest_exact, EXACT)
upsample_nearest_exact3d = declared("UpsampleNearestExact3d", nearest_exact, EXACT, free=1)
upsample_nearest1d_backward = declared(
    "UpsampleNearest1dBackward", nearest, ADDED_1D, *OUT, rank_first=True
)
upsample_nearest2d_backward = declared("UpsampleNearest2dBackward", nearest, {**ADDED, **HALF}, *IN)
upsample_nearest3d_backward = declared("UpsampleNearest3dBackward", nearest, ADDED_3D, *IN)
upsample_nearest_exact1d_backward = declared(
    "UpsampleNearestExact1dBackward", nearest_exact, ADDED, *OUTPUT, **EXACTLY, free=0
)
upsample_nearest_exact2d_backward = declared(
    "UpsampleNearestExact2dBackward", nearest_exact, ADDED, *OUTPUT, **EXACTLY
)
upsample_nearest_exact3d_backward = declared(
    "UpsampleNearestExact3dBackward", nearest_exact, ADDED, *IN, limited=True
)
