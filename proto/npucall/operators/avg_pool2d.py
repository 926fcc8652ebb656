"""Average of each window."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _averages as averages
from npucall.operators import _windows as windows
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

WINDOWS = (
    Attribute("kernel_size", Kind.INT_ARRAY, "extents of a window, (h, w) or one for both"),
    Attribute("stride", Kind.INT_ARRAY, "its steps; none: kernel_size"),
    Attribute("padding", Kind.INT_ARRAY, "cells beyond both edges, which are 0"),
    Attribute("ceil_mode", Kind.BOOL, "whether the number of windows is rounded up"),
    Attribute("count_include_pad", Kind.BOOL, "whether those cells are counted"),
    Attribute("divisor_override", Kind.INT64, "what sums are divided by; 0: the number of cells"),
    Attribute("cube_math_type", Kind.INT8, "of the device's matrix unit"),
)
PRODUCTS = {
    **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
}


def axes(
    shape: Shape, given: Mapping[str, Any], product: Product | None, count: int = windows.PLANES
) -> averages.Axes:
    """The axes of planes of a shape."""
    sizes = {name: given[name] for name in windows.NAMES[:3]}
    clipped = product not in (ASCEND_910, ASCEND_310P)
    first, *others = (
        averages.pooling(axis, padded=given["count_include_pad"], clipped=clipped)
        for axis in windows.axes(shape, sizes, given["ceil_mode"], count)
    )
    if divisor := given["divisor_override"]:
        return (
            replace(first, divisors=lambda places: np.full(len(places), divisor)),
            *(replace(axis, divisors=np.ones_like) for axis in others),
        )
    return first, *others


def cost(facts: Facts, given: Mapping[str, Any], count: int = windows.PLANES) -> int:
    """Numbers that are added up."""
    shape = facts.shapes["self"]
    return averages.cost(prod(shape[:-count]), axes(shape, given, facts.product, count))


@operator(
    "aclnnAvgPool2d",
    Input("self", "planes, (N, C, H, W) or (C, H, W)"),
    *WINDOWS,
    Output("out", "the averages", shape="windows", dtype="self", format="self"),
    products=PRODUCTS,
    formats_by_rank=True,
    checks=(
        rules.present("self", *windows.NAMES[:3], "out"),
        rules.supported("self", "out"),
        rules.same_dtype("out", as_="self"),
        rules.format_of_rank("self", "out"),
        windows.values("kernel_size", 1),
        windows.values("stride", 1),
        windows.values("padding", 0),
        rules.rank_is("self", 3, 4),
        rules.same_rank("out", as_="self"),
        windows.elements(3),
        windows.length("kernel_size", 1),
        windows.length("padding", 1),
        windows.length("stride", 0),
        windows.half_padding(),
        *windows.found(),
        rules.same_shape("out", "windows", "that of the windows"),
        rules.one_of("cube_math_type", *range(5)),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(computes=cost),
    sample=Sample(
        {"self": (1, 2, 3, 3)}, attributes={"kernel_size": [2], "stride": [1], "padding": [0]}
    ),
    area="convolution and pooling",
    torch="nn.functional.avg_pool2d",
    source="ops-nn pooling/avg_pool2d: page aclnnAvgPool2d, its checks",
)
def avg_pool2d(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
    cube_math_type: int = 0,
) -> AnyArray:
    """Average of each window of ``self``.

    Window (y, x) has the cells (y s - p + i, x s - p + j), s and p being ``stride`` and ``padding``
    of each axis; cells beyond the edges are 0. The sum of a window is divided by
    ``divisor_override``, if that is not 0, else by the number of its cells: of those within the
    planes alone, or with ``count_include_pad`` also of those within the padding. A window that
    ``ceil_mode`` lets go beyond the padding has fewer of these; but on Ascend910 and Ascend310P
    all of its cells count then.

    Sums of up to 32 numbers along an axis are taken in float32, longer ones in float64, that of a
    whole plane in float32, piece by piece; the quotient is rounded once. ``cube_math_type`` changes
    nothing here.

    As ``avg_pool2d`` in torch, where a divisor of 0 is None.
    """
    del cube_math_type
    given: dict[str, Any] = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    given |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    given |= {"divisor_override": divisor_override}
    return averages.average(facts, self, "out", axes(self.shape, given, facts.product))
