"""The cells of windows over planes as columns, and the gradient of that.

Window (y, x) of a plane has at (i, j) of its kernel the cell (y s - p + i d, x s - p + j d); beyond
the plane it is 0.
"""

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOATS, AnyArray, Array
from npucall.operators import _windows as windows
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

ARRAYS = ("kernel_size", "dilation", "padding", "stride")
NAMES = (
    Attribute("kernel_size", Kind.INT_ARRAY, "height and width of a window"),
    Attribute("dilation", Kind.INT_ARRAY, "from cell to cell of a window"),
    Attribute("padding", Kind.INT_ARRAY, "zeros above and below, left and right"),
    Attribute("stride", Kind.INT_ARRAY, "from window to window"),
)
ALL = slice(0, 1 << 62)
"""All windows."""
_MOST = 2
"""Blocks that are computed as one."""
SAMPLE = {"kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}


CELLS = rules.requires(
    "planes with cells, of at least one channel",
    "self",
    holds=lambda draft: 0 not in draft.shape("self")[-3:],
    found=lambda draft: f"shape {draft.shape('self')}",
)


def pair(name: str) -> rules.Rule:
    """The attribute has two numbers."""
    return rules.value_fits("2 numbers", name, lambda value: len(value) == 2)  # noqa: PLR2004


def values() -> tuple[rules.Rule, ...]:
    """What the numbers of a window may be."""
    least = {"kernel_size": 1, "stride": 1, "dilation": 1, "padding": 0}
    return tuple(windows.values(name, number) for name, number in least.items())


def axes(plane: Shape, given: Mapping[str, tuple[int, ...]]) -> tuple[windows.Windows, ...]:
    """Both axes of planes."""
    return windows.axes(plane, {name: given[name] for name in ARRAYS}, ceil_mode=False)


def columns(draft: Draft, shape: Shape) -> Shape:
    """The shape of the columns of planes."""
    given = {name: draft.attribute(name) for name in ARRAYS}
    count = prod(max(axis.windows, 0) for axis in axes(shape, given))
    return (*shape[:-3], shape[-3] * prod(given["kernel_size"]), count)


@operator(
    "aclnnIm2col",
    Input("self", "planes, (N, C, H, W) or (C, H, W)"),
    *NAMES,
    Output("out", "(N, C cells, windows)", "columns", "self", const=True),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=(
        rules.present("self", *ARRAYS, "out"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        rules.rank_is("self", 3, 4),
        CELLS,
        *map(pair, ARRAYS),
        *values(),
        rules.shape_of(
            "self", into="columns", make=lambda draft: columns(draft, draft.shape("self"))
        ),
        rules.requires(
            "at least one window on each axis",
            "self",
            "kernel_size",
            holds=lambda draft: 0 not in draft.shape("columns")[-1:],
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        rules.same_shape("out", "columns", "that of the windows"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(widen=False),
    sample=Sample({"self": (1, 2, 3, 3)}, attributes=SAMPLE),
    area="images",
    torch="nn.functional.unfold",
    source="ops-math conversion/im2col: page aclnnIm2col, its checks [src:im2col]",
)
def im2col(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    dilation: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    stride: tuple[int, ...] = (1, 1),
) -> AnyArray:
    """The cells of windows over planes, as columns.

    Window (y, x) of a plane has at (i, j) of its kernel, with padding p, steps s and cells d apart,
    the cell (y s - p + i d, x s - p + j d); beyond the plane it is 0. The windows of a plane are
    the last axis; channels and places of the kernel, row by row, are the axis before. Nothing is
    rounded.

    As ``aten.im2col`` in torch. A device casts to the dtype of ``out``, which here is that of
    ``self``; Ascend 950 has more dtypes, which are not here.
    """
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    height, width = axes(self.shape, given)
    lead, (channels, kernels) = self.shape[:-3], (self.shape[-3], (height.kernel, width.kernel))
    out = facts.output("out", facts.shapes["columns"])
    whole = (channels, *kernels, height.windows, width.windows)

    def compute(block: tuple[slice, ...]) -> None:
        *items, channel, i, j, y, x = block
        cells = np.zeros([piece.stop - piece.start for piece in block], facts.dtype)
        for own_i, own_j in product(range(i.start, i.stop), range(j.start, j.stop)):
            (to_y, ys), (to_x, xs) = _inside(height, own_i, y), _inside(width, own_j, x)
            numbers = facts.read(self, (*items, channel, ys, xs))
            cells[..., own_i - i.start, own_j - j.start, to_y, to_x] = numbers
        rows = slice(_flat(kernels, channel.start, i.start, j.start),
                     _flat(kernels, channel.stop - 1, i.stop - 1, j.stop - 1) + 1)  # fmt: skip
        some = slice(y.start * width.windows + x.start, (y.stop - 1) * width.windows + x.stop)
        shape = [piece.stop - piece.start for piece in (*items, rows, some)]
        out[(*items, rows, some)] = cells.reshape(shape)

    facts.each(cut((*lead, *whole), shared_block(prod((*lead, *whole)), _MOST)), compute)
    return out


def _flat(kernels: tuple[int, int], channel: int, i: int, j: int) -> int:
    """The row of a channel's place in the kernel."""
    return (channel * kernels[0] + i) * kernels[1] + j


def _planes(draft: Draft) -> Shape:
    """The shape of the planes that have columns."""
    *lead, rows, _ = draft.shape("grad_output")
    return (*lead, rows // prod(draft.attribute("kernel_size")), *draft.attribute("input_size"))


def _fits(draft: Draft) -> bool:
    return draft.shape("grad_output") == columns(draft, draft.shape("planes"))


def _holds(facts: Facts, _: Mapping[str, Any]) -> int:
    """The sums of a plane that is longer than a block."""
    plane = prod(facts.shapes["planes"][-2:])
    return 2 * DOUBLE.itemsize * plane if plane > BLOCK else 0


@operator(
    "aclnnIm2colBackward",
    Input("grad_output", "gradient of the columns, (N, C cells, windows)"),
    Attribute("input_size", Kind.INT_ARRAY, "height and width of the planes"),
    *NAMES,
    Output("out", "gradient of the planes, (N, C, H, W)", "planes", "grad_output"),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=(
        rules.present("grad_output", "input_size", *ARRAYS, "out"),
        rules.supported("grad_output", "out"),
        rules.rank_is("grad_output", 2, 3),
        *map(pair, ("input_size", *ARRAYS)),
        *values(),
        windows.values("input_size", 1),
        rules.requires(
            "cells of the kernel for each channel",
            "grad_output",
            "kernel_size",
            holds=lambda d: d.shape("grad_output")[-2] % prod(d.attribute("kernel_size")) == 0,
            found=lambda draft: f"shape {draft.shape('grad_output')}",
        ),
        rules.shape_of("grad_output", into="planes", make=_planes),
        rules.requires(
            "as many columns as there are windows",
            "grad_output",
            holds=_fits,
            found=lambda draft: f"shape {draft.shape('grad_output')}",
        ),
        rules.same_shape("out", "planes", "that of the planes"),
        rules.succeed_if_empty("grad_output"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(holds=_holds),
    sample=Sample({"grad_output": (1, 8, 4)}, attributes={"input_size": [3, 3], **SAMPLE}),
    area="images",
    torch="nn.functional.fold",
    source="ops-cv image/col2im: page aclnnIm2colBackward, its checks [src:im2col]",
)
def im2col_backward(
    facts: Facts,
    grad_output: Array,
    input_size: tuple[int, ...],
    kernel_size: tuple[int, ...],
    dilation: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    stride: tuple[int, ...] = (1, 1),
) -> AnyArray:
    """Gradient of ``im2col``: columns added up to planes.

    Each cell of a plane of ``input_size`` gets the sum of the places in the columns at which
    ``im2col`` has it. Sums are taken in float64 and rounded once. A dtype of ``out`` that is not
    that of the columns is rounded to after that.

    As ``aten.col2im`` in torch.
    """
    del input_size
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    shape = facts.shapes["planes"]
    height, width = axes(shape, given)
    out = facts.output("out", shape)

    def compute(lead: tuple[slice, ...]) -> None:
        *items, channel = lead
        extents = [piece.stop - piece.start for piece in lead]
        total = np.zeros((*extents, *shape[-2:]))
        cells = prod(kernel_size)
        for place in range(cells):
            i, j = divmod(place, width.kernel)
            (y, ys), (x, xs) = _inside(height, i), _inside(width, j)
            rows = slice(channel.start * cells + place, channel.stop * cells, cells)
            some = np.add.outer(
                np.arange(y.start, y.stop) * width.windows, np.arange(x.start, x.stop)
            )
            total[..., ys, xs] += facts.read(grad_output, (*items, rows, some))
        out[lead] = total

    facts.each(cut(shape[:-2], max(BLOCK // prod(shape[-2:]), 1)), compute)
    return out


def _inside(axis: windows.Windows, cell: int, some: slice = ALL) -> tuple[slice, slice]:
    """The windows, of some, whose cell with this number is on the axis, and where these cells are.

    Windows are counted from the first of these.
    """
    start = axis.padding - cell * axis.dilation
    first = max(-(-start // axis.stride), some.start)
    last = max(min((start + axis.size - 1) // axis.stride + 1, axis.windows, some.stop), first)
    begin = first * axis.stride - start
    own = slice(first - some.start, last - some.start)
    return own, slice(begin, begin + (last - first) * axis.stride, axis.stride)
