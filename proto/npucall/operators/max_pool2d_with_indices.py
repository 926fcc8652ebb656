"""Largest number of each window, and where it stands."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut, shared_block
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
_MOST = 4
"""Blocks that are computed as one."""
_NONE = 255
"""No cell of a window."""


def _rows(elements: int, axes: tuple[windows.Windows, ...]) -> int:
    """Rows of windows in a block of planes of so many elements."""
    *outer, height, _ = axes
    layers = prod(max(axis.stride, axis.reach) for axis in outer)
    return max(shared_block(elements, _MOST) // (layers * height.stride * _wide(axes)), 1)


def _wide(axes: tuple[windows.Windows, ...]) -> int:
    """Numbers in a row of a plane with its padding."""
    return axes[-1].size + 2 * axes[-1].padding + axes[-1].reach


def holds(facts: Facts, attributes: Mapping[str, Any], count: int = windows.PLANES) -> int:
    """Of wide planes a row of windows."""
    shape = facts.shapes["self"]
    given = {name: attributes[name] for name in windows.NAMES}
    axes = windows.axes(shape, given, attributes["ceil_mode"], count)
    needed = prod(axis.reach for axis in axes[:-1]) * _wide(axes)
    return 16 * needed + 32 * axes[-1].windows if needed > BLOCK else 0


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
        rules.format_in("self", *windows.FORMATS[windows.PLANES]),
        rules.rank_is("self", 3, 4),
        *windows.checks(),
        windows.elements(3),
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
    shape = facts.shapes["windows"]
    out = facts.output("out", shape)
    before = len(shape) - len(axes)

    def pool(block: tuple[slice, ...]) -> None:
        cells = (*block[before:], slice(0, shape[-1]))
        begins = [
            np.arange(piece.start, piece.stop) * axis.stride - axis.padding
            for axis, piece in zip(axes, cells, strict=True)
        ]
        found = _pooled(_padded(facts, planes, block[:before], begins, axes), begins, axes)
        count = [piece.stop - piece.start for piece in block]
        out[block], indices[block] = (each.reshape(*count, shape[-1]) for each in found)

    facts.each(cut(shape[:-1], _rows(prod(planes.shape), axes)), pool)
    return out


def _padded(
    facts: Facts,
    planes: Array,
    lead: tuple[slice, ...],
    begins: Sequence[AnyArray],
    axes: tuple[windows.Windows, ...],
) -> AnyArray:
    """What windows that begin there have of some planes, with -inf beyond the edges."""
    reads, edges, extents = [], [slice(None)], [prod(each.stop - each.start for each in lead)]
    for axis, begin in zip(axes, begins, strict=True):
        first, stop = int(begin[0]), int(begin[-1]) + axis.reach
        reads.append(slice(max(first, 0), min(stop, axis.size)))
        edges.append(slice(reads[-1].start - first, reads[-1].stop - first))
        extents.append(stop - first)
    padded = np.full(extents, -np.inf, facts.dtype)
    inside = padded[tuple(edges)]
    inside[...] = facts.read(planes, (*lead, *reads)).reshape(inside.shape)
    return padded


def _pooled(
    padded: AnyArray, begins: Sequence[AnyArray], axes: tuple[windows.Windows, ...]
) -> tuple[AnyArray, AnyArray]:
    """The largest numbers of the windows that begin there, and where they stand."""
    sizes = [axis.size for axis in axes]
    inside = _places(map(_inside, axes, begins), sizes)
    steps = list(product(*(range(axis.kernel) for axis in axes)))
    cells = [
        [step * axis.dilation for axis, step in zip(axes, each, strict=True)] for each in steps
    ]
    reads = [
        tuple(
            slice(cell, cell + int(begin[-1] - begin[0]) + 1, axis.stride)
            for axis, begin, cell in zip(axes, begins, each, strict=True)
        )
        for each in cells
    ]
    if len(steps) < _NONE and not (np.isnan(padded) | (padded == 0) & np.signbit(padded)).any():
        best, which = _first_of_largest([padded[(slice(None), *read)] for read in reads])
        table = np.array([_places(map(np.asarray, each), sizes) for each in cells])
        places = table[which]
        places += _places(begins, sizes)
        np.copyto(places, inside, where=np.isneginf(best))
        return best, places
    places = np.broadcast_to(inside, (len(padded), *inside.shape)).copy()
    best = np.full(places.shape, -np.inf, padded.dtype)
    for each, read in zip(cells, reads, strict=True):
        window = padded[(slice(None), *read)]
        taken = ~(window <= best)  # NaN is taken, and after it NaN alone
        taken &= ~np.isnan(best) | np.isnan(window)
        np.copyto(places, _places(map(np.add, begins, each), sizes), where=taken)
        np.copyto(best, window, where=taken)
    return best, places


def _first_of_largest(cells: Sequence[AnyArray]) -> tuple[AnyArray, AnyArray]:
    """The largest of numbers that are not NaN, and which is the first that is as large."""
    best: AnyArray = reduce(np.maximum, cells)
    which = np.full(best.shape, _NONE, np.uint8)
    for number, each in enumerate(cells):
        other = (each != best).view(np.uint8)
        np.negative(other, out=other)  # all bits where it is another number
        other |= np.uint8(number)
        np.minimum(which, other, out=which)
    return best, which


def _places(cells: Iterable[AnyArray], sizes: Sequence[int]) -> AnyArray:
    """Where cells stand in a plane of these sizes, from where they stand along each axis."""
    return reduce(
        lambda before, axis: np.add.outer(before * axis[1], axis[0]),
        zip(cells, sizes, strict=True),
        np.zeros((), np.int64),
    )


def _inside(axis: windows.Windows, begins: AnyArray) -> AnyArray:
    """Where the first cell stands that is no padding, of windows that begin there."""
    steps = np.maximum(-(begins // axis.dilation), 0)
    found: AnyArray = begins + steps * axis.dilation
    return found
