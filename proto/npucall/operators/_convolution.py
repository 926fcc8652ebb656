"""Convolution in blocks: some positions of some groups of channels at a time.

With a tensor of images ``x`` (N, C, ...), weights ``w`` (O, C / groups, ...), and for each axis of
the image stride s, dilation d and the padding p before it::

    out[n, o, i] = sum over c, k of  w[o, c, k] * x[n, c + group of o, i * s + k * d - p]

The gradient of the images, which is also the transposed convolution, needs no scattering either.
The positions i of one remainder r = i modulo s of each axis are reached by the same k, those with
r + p - k * d divisible by s, and the gradient g of ``out`` is read for them without gaps::

    dx[n, c, r + t * s] = sum over o, k of  w[o, c, k] * g[n, o, t + (r + p - k * d) / s]

So both are one thing: a product of weights with a matrix of what is ``step * t + start[k]`` from
the beginning. The gradient of the weights is that of g with this matrix, summed over positions.
Beyond an image x has zeros, which a weight is multiplied by; beyond g there is nothing to add, also
where a weight is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import cut
from npucall.dtypes import AnyArray, Array
from npucall.tensors import Shape

_MATRIX = 1 << 19
"""Most elements of such a matrix, and of its product, unless one position has more."""
_WEIGHTS = 1 << 13
"""About as many gradients of weights are summed by a thread at a time."""


class Axis(NamedTuple):
    """One axis of the images."""

    stride: int
    dilation: int
    before: int
    after: int
    kernel: int

    def result(self, extent: int) -> int:
        """The extent of a convolution's result; below 1 where the kernel does not fit."""
        free = extent + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        return free // self.stride + 1

    def transposed(self, extent: int, more: int) -> int:
        """The extent of a transposed convolution's result, with so many positions in addition."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (extent - 1) * self.stride - self.before - self.after + reach + more


class Taps(NamedTuple):
    """How positions of one axis of a result read an axis of what is convolved.

    The t-th of these positions reads ``step * t + start`` for each start, and is ``first +
    every * t`` in the result.
    """

    numbers: tuple[int, ...]
    """The elements of the kernel that belong to the starts."""
    starts: tuple[int, ...]
    step: int
    first: int
    every: int
    positions: int


def taps(axis: Axis, count: int) -> list[Taps]:
    """Those of a convolution: all of its positions are alike."""
    numbers = tuple(range(axis.kernel))
    starts = tuple(k * axis.dilation - axis.before for k in numbers)
    return [Taps(numbers, starts, axis.stride, 0, 1, count)]


def taps_back(axis: Axis, count: int) -> list[Taps]:
    """Those of its transpose: one for each remainder of positions by the stride."""
    found = []
    for first in range(min(axis.stride, count)):
        places = [(k, first + axis.before - k * axis.dilation) for k in range(axis.kernel)]
        whole = [(k, place // axis.stride) for k, place in places if place % axis.stride == 0]
        positions = len(range(first, count, axis.stride))
        numbers, starts = tuple(k for k, _ in whole), tuple(start for _, start in whole)
        found.append(Taps(numbers, starts, 1, first, axis.stride, positions))
    return found


@dataclass
class Convolution:
    """The axes and groups of a call, which all of its products share."""

    facts: Facts
    axes: Sequence[Axis]
    groups: int

    def apply(self, images: Array, weights: Array, out: Any, shape: Shape, bias: Any) -> None:
        """Writes the convolution of images; ``bias``: what is added to each channel, or None."""
        alike = [taps(axis, count) for axis, count in zip(self.axes, shape[2:], strict=True)]
        self._write(images, weights, out, shape, alike, bias, transposed=False)

    def apply_back(self, images: Array, weights: Array, out: Any, shape: Shape, bias: Any) -> None:
        """Writes the transposed convolution."""
        kinds = [taps_back(axis, count) for axis, count in zip(self.axes, shape[2:], strict=True)]
        self._write(images, weights, out, shape, kinds, bias, transposed=True)

    def weights_back(self, images: Array, gradient: Array, out: Any, shape: Shape) -> None:
        """Writes the gradient of the weights: ``gradient`` is that of the images' convolution."""
        own, others, kernel = shape[0] // self.groups, shape[1], prod(shape[2:])
        alike = zip(self.axes, gradient.shape[2:], strict=True)
        axes = [kind for axis, count in alike for kind in taps(axis, count)]
        total = np.zeros((self.groups, own, others, kernel), np.float64)
        step = max(1, _WEIGHTS // max(1, own * kernel))
        some = min(self.groups, max(1, step // others)), min(step, others)
        parts = cut((self.groups, others), prod(some))
        each = max(kernel, prod(axis.step for axis in axes))
        size = max(1, _MATRIX // max(prod(some) * each, some[0] * own))
        for image, *places in cut((gradient.shape[0], *gradient.shape[2:]), size):

            def compute(
                part: tuple[slice, ...], image: slice = image, places: Sequence[slice] = places
            ) -> None:
                group, channels = part
                block = self.facts.read(gradient, (image, _channels(group, own), *places))
                block = block.reshape(*_extents(image, group), own, prod(_extents(*places)))
                matrix = self._matrix(images, image, group, places, axes, (others, channels))
                found = np.matmul(matrix, block.swapaxes(-1, -2)).sum(0, np.float64)
                place = total[group, :, channels]
                place += found.swapaxes(-1, -2).reshape(place.shape)

            self.facts.each(parts, compute)
        out[...] = total.reshape(shape)

    def _write(
        self,
        images: Array,
        weights: Array,
        out: Any,
        shape: Shape,
        kinds: Sequence[Sequence[Taps]],
        bias: Any,
        *,
        transposed: bool,
    ) -> None:
        groups = self.groups
        read, written = images.shape[1] // groups, shape[1] // groups
        for axes in product(*kinds):
            chosen = self._chosen(weights, axes, transposed=transposed)
            finite = not transposed or bool(np.isfinite(chosen).all())

            def compute(
                index: tuple[slice, ...],
                axes: Sequence[Taps] = axes,
                chosen: AnyArray = chosen,
                finite: bool = finite,
            ) -> None:
                image, group, *places = index
                matrix = self._matrix(images, image, group, places, axes, (read, slice(0, read)))
                if finite:
                    result = np.matmul(chosen[group], matrix)
                else:
                    inside = _inside(axes, places, images.shape[2:])
                    result = _added_inside(chosen[group], matrix, inside)
                if bias is not None:
                    result += bias[_channels(group, written)].reshape(-1, written, 1)
                where = (
                    slice(
                        axis.first + axis.every * p.start,
                        axis.first + axis.every * (p.stop - 1) + 1,
                        axis.every,
                    )
                    for axis, p in zip(axes, places, strict=True)
                )
                channels = _channels(group, written)
                extents = _extents(image, channels, *places)
                out[(image, channels, *where)] = result.reshape(extents)

            each = max(prod(len(a.numbers) for a in axes), prod(a.step for a in axes))
            size = max(1, _MATRIX // max(1, read * each, written))
            counts = (axis.positions for axis in axes)
            self.facts.each(cut((shape[0], groups, *counts), size), compute)

    def _chosen(self, weights: Array, axes: Sequence[Taps], *, transposed: bool) -> AnyArray:
        """The weights of these taps as a matrix for each group: written by read channels."""
        chosen: Any = np.ix_(*(axis.numbers for axis in axes))
        kernel = self.facts.read(weights, ...)[(slice(None), slice(None), *chosen)]
        outer, inner = kernel.shape[:2]
        kernel = kernel.reshape(self.groups, outer // self.groups, inner, -1)
        if transposed:
            kernel = kernel.swapaxes(1, 2)
        shape = (self.groups, kernel.shape[1], kernel.shape[2] * kernel.shape[3])
        return np.ascontiguousarray(kernel.reshape(shape))

    def _matrix(
        self,
        images: Array,
        image: slice,
        group: slice,
        places: Sequence[slice],
        axes: Sequence[Taps],
        channels: tuple[int, slice],
    ) -> AnyArray:
        """What positions read, tap by tap, 0 beyond the images: a matrix for each image and group.

        ``channels``: how many a group has, and which of them. They are all where there are several
        groups.
        """
        each, some = channels
        reads = [_Read.of(*a) for a in zip(axes, places, images.shape[2:], strict=True)]
        first, last = group.start * each, (group.stop - 1) * each
        index = slice(first + some.start, last + some.stop)
        source = self.facts.read(images, (image, index, *(read.source for read in reads)))
        lead = _extents(image, group, some)
        source = source.reshape(*lead, *source.shape[2:])
        extents = _extents(*places)
        counts = tuple(len(axis.starts) for axis in axes)
        if all(read.is_all for read in reads):
            matrix = source
        else:
            matrix = np.empty((*lead, *counts, *extents), source.dtype)
            for tap in product(*map(range, counts)):
                inside, read = zip(
                    *(r.taps[k] for r, k in zip(reads, tap, strict=True)), strict=True
                )
                target = matrix[(slice(None),) * 3 + tap]
                if _extents(*inside) != extents:
                    target[...] = 0
                target[(..., *inside)] = source[(..., *read)]
        return matrix.reshape(*lead[:2], lead[2] * prod(counts), prod(extents))


class _Read(NamedTuple):
    """What some positions read of one axis."""

    source: slice
    """All that any tap reads."""
    taps: tuple[tuple[slice, slice], ...]
    """For each tap, the positions that are inside, and where in the source they read."""
    is_all: bool
    """One tap reads each element of the source for the position of the same number."""

    @classmethod
    def of(cls, axis: Taps, place: slice, extent: int) -> _Read:
        bounds = []
        for start in axis.starts:
            first = max(place.start, -(start // axis.step))
            last = min(place.stop, -((start - extent) // axis.step))
            bounds.append((start, first, max(first, last)))
        there = [(s, first, last) for s, first, last in bounds if last > first]
        low = min((axis.step * first + s for s, first, _ in there), default=0)
        high = max((axis.step * (last - 1) + s + 1 for s, _, last in there), default=0)
        found = []
        for start, first, last in bounds:
            begin = axis.step * first + start - low
            end = begin + axis.step * (last - 1 - first) + 1
            piece = slice(begin, end, axis.step) if last > first else slice(0, 0)
            within = slice(first - place.start, last - place.start) if last > first else slice(0, 0)
            found.append((within, piece))
        count = place.stop - place.start
        alone = len(found) == 1 and found[0] == (slice(0, count), slice(0, count, 1))
        return cls(slice(low, high), tuple(found), alone)


def _inside(axes: Sequence[Taps], places: Sequence[slice], shape: Shape) -> AnyArray:
    """For each tap, which positions read an image."""
    reads = [_Read.of(*a) for a in zip(axes, places, shape, strict=True)]
    counts, extents = tuple(len(axis.starts) for axis in axes), _extents(*places)
    inside = np.zeros((*counts, *extents), np.bool_)
    for tap in product(*map(range, counts)):
        inside[tap][tuple(r.taps[k][0] for r, k in zip(reads, tap, strict=True))] = True
    return inside.reshape(prod(counts), prod(extents))


def _added_inside(weights: AnyArray, matrix: AnyArray, inside: AnyArray) -> AnyArray:
    """Their product, tap by tap, each added where it reads an image."""
    count, positions = inside.shape
    result = np.zeros((*matrix.shape[:2], weights.shape[1], positions), matrix.dtype)
    for tap in range(count):
        parts = np.matmul(weights[..., tap::count], matrix[:, :, tap::count, inside[tap]])
        result[..., inside[tap]] += parts
    return result


def _channels(group: slice, each: int) -> slice:
    """The channels of groups."""
    return slice(group.start * each, group.stop * each)


def _extents(*places: slice) -> Shape:
    return tuple(place.stop - place.start for place in places)
