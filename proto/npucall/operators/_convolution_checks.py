"""What Convolution and its gradients take and check alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from npucall.declare import Attribute, Facts, Kind, rules
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Rule
from npucall.dtypes import FLOAT, FLOAT16, DType
from npucall.errors import AttributeValueError
from npucall.operators._convolution import Axis
from npucall.products import ASCEND_310P, ASCEND_910
from npucall.tensors import Shape

ALLOW_LOWER, USE_FLOAT16 = 1, 2
WITHOUT_FLOAT = (ASCEND_910, ASCEND_310P)
"""Products with a matrix unit for FLOAT16 only."""
RANKS = (3, 4, 5)
STRIDE = Attribute("stride", Kind.INT_ARRAY, "steps of the kernel: one for each axis, or for all")
PADDING = Attribute(
    "padding", Kind.INT_ARRAY, "zeros around: for all axes, each of them, or each of their sides"
)
DILATION = Attribute("dilation", Kind.INT_ARRAY, "steps within the kernel, as stride")
TRANSPOSED = Attribute("transposed", Kind.BOOL, "the weights map the output to the input")
OUTPUT_PADDING = Attribute(
    "output_padding", Kind.INT_ARRAY, "positions that a transposed output has in addition"
)
CUBE_MATH_TYPE = Attribute(
    "cube_math_type", Kind.INT8, "0 keep the dtype, 1 allow a lower one, 2 FLOAT16, 3 HF32, 4 FLOAT"
)
_NAMES = ("stride", "padding", "dilation", "output_padding")


def each(numbers: Sequence[int], axes: int) -> tuple[int, ...]:
    """One number for each axis, if there may be one for all."""
    return tuple(numbers) * axes if len(numbers) == 1 else tuple(numbers)


def axes_of(kernel: Shape, attributes: Mapping[str, Any]) -> list[Axis]:
    """The axes of the images; ``kernel`` is the shape of the weights."""
    extents = kernel[2:]
    count = len(extents)
    stride, dilation = (each(attributes[name], count) for name in ("stride", "dilation"))
    padding = each(attributes["padding"], count)
    sides = padding if len(padding) == 2 * count else tuple(p for p in padding for _ in range(2))
    before, after = sides[::2], sides[1::2]
    parts = zip(stride, dilation, before, after, extents, strict=False)  # their numbers are checked
    return [Axis(*part) for part in parts]


def given(draft: Draft) -> dict[str, Any]:
    """The attributes of a call, by name."""
    names = (*_NAMES, "transposed", "groups", "cube_math_type")
    return {name: draft.attribute(name) for name in names}


def result(draft: Draft) -> Shape:
    """The shape of the convolution of the images; an extent below 1 where the kernel is larger."""
    shape, kernel, attributes = draft.shape("input"), draft.shape("weight"), given(draft)
    axes = axes_of(kernel, attributes)
    if not attributes["transposed"]:
        extents = (axis.result(extent) for axis, extent in zip(axes, shape[2:], strict=True))
        return (shape[0], kernel[0], *extents)
    more = each(attributes["output_padding"], len(axes))[: len(axes)]
    places = zip(axes, shape[2:], more, strict=True)
    extents = (axis.transposed(extent, one) for axis, extent, one in places)
    return (shape[0], kernel[1] * attributes["groups"], *extents)


def channels(draft: Draft) -> int:
    """Those of the convolution's result."""
    first, second, *_ = draft.shape("weight")
    return second * draft.attribute("groups") if draft.attribute("transposed") else first


def channels_fit(draft: Draft) -> bool:
    """Whether the images have the channels that the weight takes."""
    first, second, *_ = draft.shape("weight")
    wanted = first if draft.attribute("transposed") else second * draft.attribute("groups")
    return draft.shape("input")[1] == wanted


def transposes(draft: Draft) -> bool:
    """Whether a call is of a transposed convolution."""
    return bool(draft.attribute("transposed"))


def multiplied_in(draft: Draft) -> DType:
    """The dtype of the factors: the promoted one, or FLOAT16 where that is asked for."""
    promotion, kind = draft.dtype("promotion"), draft.attribute("cube_math_type")
    lower = kind == USE_FLOAT16 or (kind == ALLOW_LOWER and draft.product in WITHOUT_FLOAT)
    return FLOAT16 if lower and promotion is FLOAT else promotion


def numbers(name: str, least: int) -> Rule:
    """The least number that may be in an array."""
    return rules.value_fits(
        f"numbers of {least} or more", name, lambda value: all(each >= least for each in value)
    )


def lengths(name: str, sides: bool = False) -> Rule:
    """As many numbers as there are axes, or one; with ``sides`` two for each of up to two."""

    def allowed(draft: Draft) -> tuple[int, ...]:
        axes = len(draft.shape("weight")) - 2
        return 1, axes, *((2 * axes,) if sides and axes < RANKS[1] - 1 else ())

    return rules.requires(
        "a number for all axes or for each" + " or for each of their sides" * sides,
        name,
        holds=lambda draft: len(draft.attribute(name)) in allowed(draft),
        found=lambda draft: draft.attribute(name),
        error=AttributeValueError,
    )


def shaped(text: str, *names: str, fits: Callable[[Draft], bool]) -> Rule:
    """Shapes that fit, of which the message has all."""
    return rules.requires(
        text,
        *names,
        holds=fits,
        found=lambda draft: ", ".join(str(draft.shape(n)) for n in names if draft.tensor(n)),
    )


def multiplies_float() -> Rule:
    """FLOAT is multiplied at a lower precision where the product has no other."""
    return rules.when(
        lambda draft: draft.product in WITHOUT_FLOAT and draft.dtype("promotion") is FLOAT,
        rules.value_fits(
            "1 or 2, since the product multiplies no FLOAT",
            "cube_math_type",
            lambda kind: kind in (ALLOW_LOWER, USE_FLOAT16),
        ),
        "for FLOAT on Ascend910 and Ascend310P",
    )


def held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Bytes of the weights in the dtype of the sums, and of a part of them as a matrix."""
    return 4 * FLOAT.itemsize * prod(facts.shapes["weight"])


def products(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """Products of two numbers that are added up: what a call costs."""
    outer = "result" if "result" in facts.shapes else "grad_output"
    mapped = "input" if attributes["transposed"] else outer
    return prod(facts.shapes[mapped]) * prod(facts.shapes["weight"][1:])
