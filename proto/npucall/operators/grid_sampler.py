"""Planes sampled at the places of a grid, and the gradients of that."""

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
from npucall.declare.cuts import BLOCK
from npucall.declare.declaration import Unwritten
from npucall.declare.draft import Draft
from npucall.declare.families import formula_of, snake
from npucall.dtypes import DOUBLE, FLOATS, HALF_AND_SINGLE, DType
from npucall.errors import AttributeValueError
from npucall.operators._masks import mask_of
from npucall.operators._sampling import BICUBIC, Grid
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Format, Shape

GRADIENTS = ("input_grad", "grid_grad")
SWITCHES = (
    Attribute("interpolation_mode", Kind.INT64, "0 bilinear, 1 nearest, 2 bicubic"),
    Attribute("padding_mode", Kind.INT64, "beyond the ends: 0 zeros, 1 the end, 2 reflection"),
    Attribute("align_corners", Kind.BOOL, "whether -1 and 1 are the middles of the end cells"),
)
DEFAULTS: dict[str, Any] = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}
NEW = (A2, A3, ASCEND_950)
FLAT = 2
_FORMATS = (Format.ND, Format.NCDHW)
_MASKED = (
    "What ``output_mask`` switches off must be given too. It is 0; a device leaves it as it was."
)
_PLACES = (
    "The number g of an axis of n cells is the place (g + 1) n / 2 - 1/2, or with "
    "``align_corners`` (g + 1) (n - 1) / 2. There is a sum of the two cells beside it along "
    "each axis, by their distance (bilinear), or the nearest cell, of two the even one."
)
_ENDS = (
    "Beyond the ends are zeros, or the place moves to the end, or it is reflected at the ends, "
    "which are the edges of the end cells, or with ``align_corners`` their middles. A number "
    "that is NaN is a place far before the first cell."
)
_CUBIC = (
    "Or it is a sum of the four cells around it along each axis (bicubic), by their distance d: "
    "1.25 d^3 - 2.25 d^2 + 1 up to 1, and -0.75 (d^3 - 5 d^2 + 8 d - 4) up to 2. Then the cells "
    "are moved or reflected, not the place."
)


def declared(
    axes: int, products: Mapping[Product, tuple[DType, ...]], *, backward: bool
) -> Operator[..., Any]:
    """The sampler of planes with so many axes, or its gradient."""
    name = f"aclnnGridSampler{axes}D{'Backward' * backward}"
    parameters: tuple[Parameter, ...] = (
        *[Input("grad_output", "gradient of what was sampled")][:backward],
        Input("input", "planes, (N, C, ...)"),
        Input("grid", f"for each place {axes} numbers from -1 to 1, that of the last axis first"),
        *SWITCHES,
        *(_gradients() if backward else [Output("out", "what is there", "sampled", "input")]),
    )

    defaults = {**DEFAULTS, **({"output_mask": (True, True)} if backward else {})}

    def formula(facts: Facts, call: Mapping[str, Any]) -> Any:
        grid = Grid(facts, call)
        if not backward:
            return grid.sampled()
        made = (grid.gradient_of_planes, grid.gradient_of_grid)
        zeros = (np.broadcast_to(facts.dtype.type(0), call[of].shape) for of in ("input", "grid"))
        each = zip(call["output_mask"], made, GRADIENTS, zeros, strict=True)
        return tuple(make(name) if asked else zero for asked, make, name, zero in each)

    return operator(
        name,
        *parameters,
        area="images",
        torch="nn.functional.grid_sample",
        products=products,
        checks=_checks(axes, backward=backward),
        kernel_dtype=rules.dtype_of("input"),
        over=at_once(holds=_holds if backward else None, computes=_computes),
        sample=_sample(axes, backward=backward),
        unwritten={name: _unasked(place) for place, name in enumerate(GRADIENTS) if backward},
        source=f"ops-cv image: page {name}, its checks [src:grid-sampler]",
    )(formula_of(name, parameters, defaults, formula, _text(axes, backward=backward)))


def _gradients() -> tuple[Parameter, ...]:
    mask = Attribute("output_mask", Kind.BOOL_ARRAY, "which of the two gradients are computed")
    shapes = zip(GRADIENTS, ("input", "grid"), strict=True)
    outputs = (
        Output(name, f"gradient of {of}; 0 if it is not computed", of, "input")
        for name, of in shapes
    )
    return (mask, *outputs)


def _unasked(place: int) -> Unwritten:
    """The gradient that ``output_mask`` switches off."""
    return lambda call: None if call.attributes["output_mask"][place] else 0.0


def _holds(facts: Facts, _: Mapping[str, Any]) -> int:
    """The sums of a plane that is longer than a block."""
    plane = prod(facts.shapes["input"][2:])
    return DOUBLE.itemsize * plane if plane > BLOCK else 0


def _computes(facts: Facts, given: Mapping[str, Any]) -> int:
    """Every corner of every place."""
    cells = (2, 1, 4)[given["interpolation_mode"]]
    axes = len(facts.shapes["input"]) - 2
    return facts.count("sampled") * int(cells**axes)


def _sample(axes: int, *, backward: bool) -> Sample:
    items = (1, *(2,) * axes)
    shapes = {"input": (1, 2, *(3,) * axes), "grid": (*items, axes)}
    if backward:
        shapes["grad_output"] = (1, 2, *items[1:])
    return Sample(shapes)


def _checks(axes: int, *, backward: bool) -> tuple[rules.Rule, ...]:
    """Null, dtypes, formats, modes, dimensions, extents; bicubic planes last."""
    given = ("grad_output", "input", "grid")[not backward :]
    outputs = GRADIENTS if backward else ("out",)
    made = given[0] if backward else "out"
    flat = axes == FLAT
    modes = (
        rules.one_of("interpolation_mode", *range(2 + flat)),
        rules.one_of("padding_mode", 0, 1, 2),
    )
    return (
        *([rules.present("output_mask")] if backward else ()),
        rules.present(*given, *outputs),
        rules.same_dtype(*(name for name in (*given, *outputs) if name != "input"), as_="input"),
        rules.supported("input"),
        *([] if flat else [rules.format_in(name, *_FORMATS) for name in ("input", made)]),
        *(modes if flat else modes[::-1]),
        *(rules.rank_is(name, axes + 2) for name in ("input", "grid", made)),
        rules.same_extent("input", 0, "number of items", grid=0),
        rules.shape_of("grid", into="sampled", make=_sampled),
        rules.same_shape(made, "sampled", "that of the grid, with the channels of input"),
        rules.requires(
            "planes with cells",
            "input",
            holds=lambda draft: 0 not in draft.shape("input")[2:],
            found=lambda draft: f"shape {draft.shape('input')}",
        ),
        rules.requires(
            f"{axes} numbers of each place",
            "grid",
            holds=lambda draft: draft.shape("grid")[-1] == axes,
            found=lambda draft: f"shape {draft.shape('grid')}",
        ),
        *(
            (*map(rules.same_shape, GRADIENTS, given[1:]), mask_of(len(GRADIENTS)))
            if backward
            else ()
        ),
        rules.succeed_if_empty(*given),
        *([_BICUBIC] if flat and not backward else ()),
    )


def _sampled(draft: Draft) -> Shape:
    return (*draft.shape("input")[:2], *draft.shape("grid")[1:-1])


_BICUBIC = rules.requires(
    "0 or 1 of DOUBLE, and on products before Atlas A2",
    "interpolation_mode",
    holds=lambda draft: (
        draft.attribute("interpolation_mode") != BICUBIC
        or (draft.product in NEW and draft.dtype("input") is not DOUBLE)
    ),
    found=lambda draft: draft.attribute("interpolation_mode"),
    error=AttributeValueError,
)


def _text(axes: int, *, backward: bool) -> str:
    """The docstring of an operator."""
    forward = snake(f"GridSampler{axes}D")
    title = f"Planes of {axes} axes, sampled at the places that a grid names."
    if backward:
        title = f"Gradients of ``{forward}`` with respect to its planes and its grid."
    parts = [
        _PLACES,
        _ENDS,
        *[_CUBIC][: axes == FLAT],
    ]
    parts.append(
        "Places and weights are computed in float64; sums are taken in "
        + ("float64" if backward else "float32")
        + ", and rounded once. A format that has channels last is refused."
    )
    if backward:
        parts.append(_MASKED)
    parts.append(f"As ``aten.{forward.replace('2d', '_2d').replace('3d', '_3d')}"
                 f"{'_backward' * backward}`` in torch.")  # fmt: skip
    return "\n\n".join([title, *(fill(part, 96) for part in parts)])


WITH_DOUBLE, OLDER = (*FLOATS, DOUBLE), (*HALF_AND_SINGLE, DOUBLE)
SAMPLED = {
    **dict.fromkeys(NEW, WITH_DOUBLE),
    **dict.fromkeys((ASCEND_910, ASCEND_310P, ASCEND_310B), OLDER),
}
IN_SPACE = {**dict.fromkeys(NEW, WITH_DOUBLE), ASCEND_910: OLDER}
BACK = {**dict.fromkeys(NEW, WITH_DOUBLE), ASCEND_910: HALF_AND_SINGLE}
BACK_IN_SPACE = {**dict.fromkeys((A2, A3), FLOATS), ASCEND_950: WITH_DOUBLE, ASCEND_910: OLDER}

grid_sampler2d = declared(2, SAMPLED, backward=False)
grid_sampler3d = declared(3, IN_SPACE, backward=False)
grid_sampler2d_backward = declared(2, BACK, backward=True)
grid_sampler3d_backward = declared(3, BACK_IN_SPACE, backward=True)
