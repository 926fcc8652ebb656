"""Layouts of any kind: each dimension has a place, a gap and, of inputs, perhaps no step at all."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from npucall.tensors import TensorSpec, row_major
from npucall_conformance.cases.arrangements import Arrangement

if TYPE_CHECKING:
    from npucall.dtypes import DType
    from npucall.tensors import Shape
    from npucall_conformance.cases.arrangements import StorageLayout
    from npucall_conformance.fuzz.draws import Draws

_RANK = 8
"""A layout describes so many dimensions."""
_WINDOW = 5
"""Strides of inputs whose elements share memory in any way are at most this."""
_OF_OUTPUTS = ("dense", "strided")
_OF_INPUTS = ("dense", "strided", "strided", "expanded", "windows")


@dataclass(frozen=True)
class Strided:
    """A layout for tensors of any rank; if a tensor has fewer dimensions, the rest is ignored."""

    places: tuple[int, ...] = ()
    """By dimension: those with larger numbers vary faster; of equal ones the later does."""
    gaps: tuple[int, ...] = ()
    """By dimension: elements that are left out after its elements."""
    expanded: tuple[bool, ...] = ()
    """By dimension: whether it has stride 0. Only inputs may have such dimensions."""
    strides: tuple[int, ...] = ()
    """By dimension: the stride itself, so that elements may share memory. Only for inputs."""
    offset: int = 0
    behind: int = 0
    """Elements of storage after the view."""

    def fits(self, shape: Shape, *, output: bool) -> bool:
        """Whether a tensor of that shape may have it; outputs must not share memory."""
        return not (output and (any(self.expanded) or any(self.strides)) and shape)

    def spec(self, dtype: DType, shape: Shape) -> TensorSpec:
        """The tensor in this layout."""
        strides = self._strides(shape)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if prod(shape) else -1
        storage = (self.offset + reach + 1 + self.behind,)
        spec = TensorSpec(dtype, shape, strides, self.offset, storage)
        return spec.dense() if spec.row_major else spec

    def _strides(self, shape: Shape) -> Shape:
        if any(self.strides):
            return tuple(_at(self.strides, axis) for axis in range(len(shape)))
        if not prod(shape):
            return row_major(shape)
        strides, step = [0] * len(shape), 1
        order = sorted(range(len(shape)), key=lambda axis: (_at(self.places, axis), axis))
        for axis in reversed(order):
            if _at(self.expanded, axis):
                continue
            strides[axis] = step
            step = step * shape[axis] + _at(self.gaps, axis)
        return tuple(strides)


def layout(draw: Draws, *, output: bool) -> StorageLayout:
    """Any layout that an input, or an output, may have; the simplest is dense."""
    kind = draw.pick(_OF_OUTPUTS if output else _OF_INPUTS)
    if kind == "dense":
        return Arrangement.DENSE
    offset, behind = draw.number(0, 5), draw.number(0, 3)
    if kind == "windows":
        return Strided(strides=_numbers(draw, _WINDOW), offset=offset, behind=behind)
    expanded = draw.several(_RANK, draw.flag) if kind == "expanded" else ()
    return Strided(_numbers(draw, _RANK), _numbers(draw, 3), expanded, (), offset, behind)


def _numbers(draw: Draws, most: int) -> tuple[int, ...]:
    return draw.several(_RANK, lambda: draw.number(0, most))


def _at(numbers: tuple[Any, ...], axis: int) -> Any:
    return numbers[axis] if axis < len(numbers) else 0
