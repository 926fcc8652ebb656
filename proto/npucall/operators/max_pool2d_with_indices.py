"""Largest number of each window, and where it stands."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import FLOATS, INT32, INT64, AnyArray, Array
from npucall.operators import _windows as windows
from npucall.products import A2, A3, ASCEND_950

WINDOWS = (
    Attribute("kernel_size", Kind.INT_ARRAY, "extents of a window, (h, w) or one for both"),
    Attribute("stride", Kind.INT_ARRAY, "its steps; none: kernel_size"),
    Attribute("padding", Kind.INT_ARRAY, "cells beyond both edges, which are -inf"),
    Attribute("dilation", Kind.INT_ARRAY, "how far apart its cells are"),
    Attribute("ceil_mode", Kind.BOOL, "whether the number of windows is rounded up"),
)


def _rows(height: windows.Windows, width: windows.Windows) -> int:
    """Rows of windows in a block."""
    return max(BLOCK // (height.stride * (width.size + 2 * width.padding + width.reach)), 1)


def holds(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """Of wide planes a row of windows."""
    shape = facts.shapes["self"]
    given = {name: attributes[name] for name in windows.NAMES}
    height, width = windows.axes(shape, given, attributes["ceil_mode"])
    needed = height.reach * (width.size + 2 * width.padding + width.reach)
    return 16 * needed + 32 * width.windows if needed > BLOCK else 0


@operator(
    "aclnnMaxPool2dWithIndices",
    Input("self", "planes, (N, C, H, W) or (C, H, W)"),
    *WINDOWS,
    Output("out", "the largest numbers", shape="windows", dtype="self", format="self"),
    Output("indices", "where they stand", "windows", "places", as_is=True, format="self"),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=(
        rules.present("self", *windows.NAMES, "out", "indices"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        rules.dtype_in("indices", INT32, INT64),
        rules.same_format("out", "self"),
        rules.format_in("self", *windows.FORMATS),
        rules.rank_is("self", 3, 4),
        *windows.checks(),
        windows.elements,
        *windows.found(),
        rules.same_shape("out", "windows", "that of the windows"),
        rules.same_shape("indices", "windows", "that of the windows"),
        rules.dtype_from("indices", into="places", make=lambda _: INT32),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=holds),
    sample=Sample(
        {"self": (1, 2, 3, 3)},
        attributes={"kernel_size": [2], "stride": [1], "padding": [0], "dilation": [1]},
    ),
    area="convolution and pooling",
    torch="nn.functional.max_pool2d",
    source="ops-nn pooling/max_pool3d_with_argmax_v2: page aclnnMaxPool2dWithIndices, its checks",
)
def max_pool2d_with_indices(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Largest number of each window of ``self``, and where it stands in its plane.

    Window (y, x) has the cells (y s - p + i d, x s - p + j d), s, p and d being ``stride``,
    ``padding`` and ``dilation`` of each axis; cells beyond the edges are -inf. ``indices`` has row
    * W + column of the largest one: of equal numbers the first. NaN is larger than every number,
    and the last one counts. Nothing is rounded; Atlas A2 and A3 take a dilation of 1 alone.

    As ``aten.max_pool2d_with_indices`` in torch. ``indices`` are INT32 unless the call gives them,
    since the gradient on Atlas A2 and A3 takes no others.
    """
    given = dict(zip(windows.NAMES, (kernel_size, stride, padding, dilation), strict=True))
    indices = facts.output("indices", facts.shapes["windows"])
    return pooled(facts, self, windows.axes(self.shape, given, ceil_mode), indices), indices


def pooled(
    facts: Facts, planes: Array, axes: tuple[windows.Windows, ...], indices: AnyArray
) -> AnyArray:
    """Writes the largest numbers to ``out``, and where they stand to an array of their shape."""
    height, width = axes
    shape = facts.shapes["windows"]
    out = facts.output("out", shape)

    def pool(block: tuple[slice, ...]) -> None:
        *lead, rows = block
        found = _pooled(facts, planes, tuple(lead), rows, height, width)
        count = [piece.stop - piece.start for piece in block]
        out[block], indices[block] = (each.reshape(*count, width.windows) for each in found)

    facts.each(cut(shape[:-1], _rows(height, width)), pool)
    return out


def _pooled(
    facts: Facts,
    planes: Array,
    lead: tuple[slice, ...],
    rows: slice,
    height: windows.Windows,
    width: windows.Windows,
) -> tuple[AnyArray, AnyArray]:
    """The largest numbers of some rows of windows, and where they stand."""
    top = rows.start * height.stride - height.padding
    tall = (rows.stop - rows.start - 1) * height.stride + height.reach
    wide = (width.windows - 1) * width.stride + width.reach
    count = prod(piece.stop - piece.start for piece in lead)
    padded = np.full((count, tall, wide), -np.inf, facts.dtype)
    first, last = max(top, 0), min(top + tall, height.size)
    right = min(wide - width.padding, width.size)
    numbers = facts.read(planes, (*lead, slice(first, last), slice(0, right)))
    edge = slice(width.padding, width.padding + right)
    padded[:, first - top : last - top, edge] = numbers.reshape(count, last - first, right)
    row = np.arange(rows.start, rows.stop) * height.stride - height.padding
    column = np.arange(width.windows) * width.stride - width.padding
    inside = _inside(height, row)[:, np.newaxis] * width.size + _inside(width, column)
    places = np.broadcast_to(inside, (count, *inside.shape)).copy()
    best = np.full(places.shape, -np.inf, facts.dtype)
    for i in range(height.kernel):
        own = (row + i * height.dilation)[:, np.newaxis] * width.size
        for j in range(width.kernel):
            window = padded[
                :,
                i * height.dilation : i * height.dilation + tall - height.reach + 1 : height.stride,
                j * width.dilation : j * width.dilation + wide - width.reach + 1 : width.stride,
            ]
            taken = ~(window <= best)  # NaN is taken, and after it NaN alone
            taken &= ~np.isnan(best) | np.isnan(window)
            np.copyto(places, own + (column + j * width.dilation), where=taken)
            np.copyto(best, window, where=taken)
    return best, places


def _inside(axis: windows.Windows, begins: AnyArray) -> AnyArray:
    """Where the first cell stands that is no padding, of windows that begin there."""
    steps = np.maximum(-(begins // axis.dilation), 0)
    found: AnyArray = begins + steps * axis.dilation
    return found
