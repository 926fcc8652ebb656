"""Images, and what else has axes of space, get other extents; and the gradients of that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from textwrap import fill
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
from npucall.operators._interpolation import (
    Stretch,
    cubic,
    linear,
    nearest,
    nearest_by_extents,
    nearest_exact,
    smooth_cubic,
    smooth_linear,
)
from npucall.operators._weighted_sums import summed
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

_SCALE = "f is size / new size, or 1 / scale if a scale is positive"
_UNLIKE = ", which leaves an axis of the same extent as it is, whatever the scale."
TEXTS: Mapping[interpolation.Mode, tuple[str, str]] = {
    nearest: (
        "the nearest cells",
        """
        Cell o of an axis is the cell at floor(f o) of the axis before, in float32.
        """,
    ),
    nearest_by_extents: (
        "the nearest cells",
        """
        Cell o of an axis is the cell at floor(f o) of the axis before, in float32. With as many
        cells as before it is cell o, with twice as many cell o / 2, whatever the scale.
        """,
    ),
    nearest_exact: (
        "the nearest cells, by their middles",
        """
        Cell o of an axis is the cell at floor(f (o + 1/2)) of the axis before, in float32: the one
        in which its middle lies.
        """,
    ),
    linear: (
        "the cells beside each",
        """
        Cell o of an axis lies at p = f (o + 1/2) - 1/2 of the axis before, at least at 0, or with
        ``align_corners`` at f o. It is (1 - t) x[i] + t x[i + 1], p being i + t. Beyond the end is
        the last cell. With as many cells as before it is cell o, whatever the scale.
        """,
    ),
    cubic: (
        "four cells around each",
        """
        Cell o of an axis lies at f (o + 1/2) - 1/2 of the axis before, or with ``align_corners`` at
        f o. Four cells around it have weights by their distance d: 1.25 d^3 - 2.25 d^2 + 1 up to 1,
        and -0.75 (d^3 - 5 d^2 + 8 d - 4) up to 2. Beyond the ends are the first and the last cell.
        """,
    ),
    smooth_linear: (
        "all cells that each lies over",
        """
        Cell o of an axis lies at f (o + 1/2) of the axis before. The cells there have weights
        1 - d / max(f, 1) by the distance d of their middles, as far as these are positive, divided
        by their sum; where there is none, it is 0.
        """,
    ),
    smooth_cubic: (
        "all cells that each lies over, and some beside",
        """
        Cell o of an axis lies at f (o + 1/2) of the axis before. The cells there have weights by
        the distance of their middles, d max(f, 1): 1.5 d^3 - 2.5 d^2 + 1 up to d = 1, and
        -0.5 (d^3 - 5 d^2 + 8 d - 4) up to 2, divided by their sum; where there is none, it is 0.
        """,
    ),
}
"""What a mode takes, and its formula."""


class _Row(NamedTuple):
    """An operator of the family."""

    name: str
    mode: interpolation.Mode
    products: Mapping[Product, tuple[DType, ...]]
    given: str = "self"
    output: str = "out"
    scaled: bool = True
    """Whether calls have scales."""
    dtypes_after: int = 0
    """What is checked before dtypes: nothing, dimensions, or extents too."""
    most: int = 0
    """More than so many times as many cells are refused, where a device looks."""
    everywhere: bool = True
    """Whether all products refuse that, not Atlas A2 and A3 alone."""
    constant: int = 0
    """How many of the attributes that no arrays are declared const: one is ``align_corners``."""
    by_extents: bool = False
    """Whether scales are not looked at."""
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
        return bool(re.search("Backward|Grad", self.name))

    @property
    def sizes(self) -> tuple[str, ...]:
        """The attributes that are extents."""
        return ("output_size", "input_size")[: 1 + self.backward]

    @property
    def scales(self) -> tuple[str, ...]:
        """The attributes that are scales."""
        names = ("scales_d", "scales_h", "scales_w")[-self.axes :]
        if self.axes == 1:
            names = ("scale",) if self.name == "aclnnUpsampleLinear1d" else ("scales",)
        return names if self.scaled else ()

    @property
    def aligns(self) -> bool:
        """Whether a call may align the corners."""
        return self.mode not in (nearest, nearest_by_extents, nearest_exact)

    @property
    def aten(self) -> str:
        """The operator of torch."""
        private = "_" if re.search("Exact|AA", self.name) else ""
        return private + snake(self.name).removesuffix("_v2").replace("_aa_grad", "_aa_backward")

    def found(self, before: Shape, given: Mapping[str, Any]) -> tuple[Stretch, ...]:
        """The axes of a call, from the shape of its planes."""
        scales = [0.0 if self.by_extents else given[name] for name in self.scales]
        cells = zip(before[2:], given["output_size"], scales or [0.0] * self.axes, strict=True)
        return tuple(Stretch(*each, self.aligns and given["align_corners"]) for each in cells)


def declared(name: str, *parts: Any, **more: Any) -> Operator[..., Any]:
    """The operator of a row."""
    row = _Row(f"aclnn{name}", *parts, **more)
    new = "gradient of the planes" if row.backward else "the new planes"
    parameters: tuple[Parameter, ...] = (
        Input(row.given, "gradient of the new planes" if row.backward else "planes, (N, C, ...)"),
        Attribute("output_size", Kind.INT_ARRAY, "extents of the new planes"),
        *[Attribute("input_size", Kind.INT_ARRAY, "shape of the planes")][: row.backward],
        *_switches(row),
        Output(row.output, new, "before" if row.backward else "after", row.given, format=row.given),
    )

    def formula(facts: Facts, call: Mapping[str, Any]) -> AnyArray:
        axes = row.found(facts.shapes["before"], call)
        sums = [row.mode(axis) for axis in axes]
        if row.backward:
            sums = [each.transposed(axis.size) for each, axis in zip(sums, axes, strict=True)]
        return summed(facts, call[row.given], sums, row.output)

    return operator(
        row.name,
        *parameters,
        products=row.products,
        checks=_checks(row),
        kernel_dtype=rules.dtype_of(row.given),
        over=at_once(
            holds=lambda facts, given: interpolation.holds(
                row.mode, row.found(facts.shapes["before"], given), backward=row.backward
            )
        ),
        sample=_sample(row),
        area="images",
        torch="nn.functional.interpolate",
        source=f"ops-cv image: page {row.name}, its checks [src:upsample]",
        formats_by_rank=True,
    )(formula_of(row.name, parameters, _defaults(row), formula, _text(row)))


def _defaults(row: _Row) -> dict[str, Any]:
    return {each.name: False if each.kind is Kind.BOOL else 0.0 for each in _switches(row)}


def _switches(row: _Row) -> Iterator[Attribute]:
    """The attributes that are no arrays."""
    if row.aligns:
        text = "whether the first and last cells lie on each other"
        yield Attribute("align_corners", Kind.BOOL, text, const=row.constant > 0)
    for name in row.scales:
        text = "new by old extent; 0: as they are"
        yield Attribute(name, Kind.DOUBLE, text, const=row.constant > 1)


def _text(row: _Row) -> str:
    """The docstring of an operator."""
    taken, formula = TEXTS[row.mode]
    title = f"Planes with other extents along {row.axes} axes, of {taken}."
    if row.backward:
        forward = snake(re.sub("Backward.*|Grad", "", row.name))
        title = f"Gradient of ``{forward}``, which is of {taken}."
    if row.axes == 1:
        title = title.replace("1 axes", "an axis")
    even = "; with ``align_corners`` (size - 1) / (new size - 1)" if row.aligns else ""
    notes = ["Sums are taken in float32, of 64 terms or more in float64, and rounded once."]
    if not row.aligns and not row.backward:
        notes = ["Nothing is rounded."]
    if row.by_extents:
        notes.append("Scales are not looked at.")
    notes.append("Channels are the second axis; a format that has them last is refused.")
    parts = (
        f"{cleandoc(formula)} Here {_SCALE}{even}.",
        " ".join(notes),
        f"As ``aten.{row.aten}`` in torch.",
    )
    return "\n\n".join([title, *(fill(part, 96) for part in parts)])


def _sample(row: _Row) -> Sample:
    before, after = (1, 2, *(3,) * row.axes), (1, 2, *(2,) * row.axes)
    sizes: dict[str, Any] = {"output_size": [2] * row.axes}
    if row.backward:
        sizes["input_size"] = [*before]
    return Sample({row.given: after if row.backward else before}, attributes=sizes)


def _checks(row: _Row) -> tuple[rules.Rule, ...]:
    """Null, dtype, dimensions, formats, extents, scales, shapes, in nearly this order."""
    dtypes = (rules.supported(row.given), rules.same_dtype(row.output, as_=row.given))
    early, middle, late = (dtypes if row.dtypes_after == place else () for place in range(3))
    return (
        rules.present(row.given, *row.sizes, row.output),
        *early,
        rules.rank_is(row.given, row.axes + 2),
        *_lengths(row),
        *middle,
        rules.format_of_rank(row.given, row.output),
        *(rules.not_negative(each) for each in row.scales if not row.signed),
        *_extents(row),
        *(
            [rules.same_shape(row.given, "after", "that of input_size with output_size")]
            if row.backward
            else ()
        ),
        rules.same_shape(row.output, "before" if row.backward else "after"),
        *late,
        *([_limit(row)] if row.most else ()),
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
        names = ("align_corners",) if row.aligns else ()
        given = {name: draft.attribute(name) for name in (*row.scales, "output_size", *names)}
        axes = row.found(draft.shape("before"), given)
        return [axis._replace(align=False).factor() ** -1 for axis in axes]

    limit = rules.requires(
        f"at most {row.most} times as many cells",
        *row.scales,
        *row.sizes,
        holds=lambda draft: max(scales(draft)) <= row.most,
        found=scales,
        error=AttributeValueError,
    )
    return limit if row.everywhere else rules.on((A2, A3), limit)


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
EXACTLY: dict[str, Any] = {"signed": False, "most": 50}

upsample_nearest1d = declared("UpsampleNearest1d", nearest, COPIED, scaled=False, free=1)
upsample_nearest2d = declared("UpsampleNearest2d", nearest, COPIED, scaled=False, free=1)
upsample_nearest3d = declared("UpsampleNearest3d", nearest, COPIED_3D, free=1)
upsample_nearest_exact1d = declared("UpsampleNearestExact1d", nearest_exact, EXACT, free=0)
upsample_nearest_exact2d = declared("UpsampleNearestExact2d", nearest_exact, EXACT)
upsample_nearest_exact3d = declared("UpsampleNearestExact3d", nearest_exact, EXACT, free=1)
upsample_nearest1d_backward = declared(
    "UpsampleNearest1dBackward", nearest_by_extents, ADDED_1D, *OUT, dtypes_after=1
)
upsample_nearest2d_backward = declared(
    "UpsampleNearest2dBackward", nearest_by_extents, {**ADDED, **HALF}, *IN
)
upsample_nearest3d_backward = declared(
    "UpsampleNearest3dBackward", nearest_by_extents, ADDED_3D, *IN
)
upsample_nearest_exact1d_backward = declared(
    "UpsampleNearestExact1dBackward", nearest_exact, ADDED, *OUTPUT, **EXACTLY, free=0
)
upsample_nearest_exact2d_backward = declared(
    "UpsampleNearestExact2dBackward", nearest_exact, ADDED, *OUTPUT, **EXACTLY
)
upsample_nearest_exact3d_backward = declared(
    "UpsampleNearestExact3dBackward", nearest_exact, ADDED, *IN, most=50
)

NEW_HALVES = {**ADDED, **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE)}
NEW_910 = {**ADDED, ASCEND_910: HALF_AND_SINGLE}
CUBIC = {**NEW_HALVES, ASCEND_310B: HALF_AND_SINGLE}
TRILINEAR = {
    **dict.fromkeys((A2, A3), WITH_DOUBLE),
    ASCEND_950: FLOATS,
    ASCEND_910: (*HALF_AND_SINGLE, DOUBLE),
    ASCEND_310P: HALF_AND_SINGLE,
}
TRILINEAR_BACK = {product: TRILINEAR[product] for product in TRILINEAR if product is not ASCEND_950}
V1 = {**NEW_HALVES, A2: HALF_AND_SINGLE, A3: HALF_AND_SINGLE}
SMOOTH: dict[str, Any] = {"most": 50, "signed": False}

upsample_linear1d = declared(
    "UpsampleLinear1d", linear, NEW_910, dtypes_after=2, free=1, constant=2
)
upsample_bilinear2d = declared("UpsampleBilinear2d", linear, NEW_HALVES, signed=False, constant=2)
upsample_bicubic2d = declared("UpsampleBicubic2d", cubic, CUBIC, free=1, constant=2)
upsample_trilinear3d = declared("UpsampleTrilinear3d", linear, TRILINEAR, free=1)
upsample_bilinear2d_aa = declared(
    "UpsampleBilinear2dAA", smooth_linear, ADDED, "input", **SMOOTH, everywhere=False, free=0
)
upsample_bicubic2d_aa = declared(
    "UpsampleBicubic2dAA", smooth_cubic, ADDED, "x", most=50, everywhere=False, free=1, constant=2
)
upsample_linear1d_backward = declared(
    "UpsampleLinear1dBackward", linear, NEW_910, *OUT, dtypes_after=1, most=500, everywhere=False
)
upsample_bilinear2d_backward = declared(
    "UpsampleBilinear2dBackward", linear, V1, *OUT, dtypes_after=2, by_extents=True
)
upsample_bilinear2d_backward_v2 = declared(
    "UpsampleBilinear2dBackwardV2", linear, NEW_HALVES, *OUT, dtypes_after=2
)
upsample_bicubic2d_backward = declared(
    "UpsampleBicubic2dBackward", cubic, NEW_910, *IN, dtypes_after=2, constant=1
)
upsample_trilinear3d_backward = declared("UpsampleTrilinear3dBackward", linear, TRILINEAR_BACK, *IN)
upsample_bilinear2d_aa_backward = declared(
    "UpsampleBilinear2dAABackward", smooth_linear, ADDED, *OUTPUT, **SMOOTH, free=0
)
upsample_bicubic2d_aa_grad = declared(
    "UpsampleBicubic2dAAGrad", smooth_cubic, ADDED, *OUTPUT, **SMOOTH, free=0
)
