"""The truth: every operator as scalar loops over Python's floats, written from operators.md alone.

Every output element keeps its terms, so that a test can judge an error by their size where they
cancel each other. Nothing here is vectorised, and nothing of npucall is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

Shape = tuple[int, ...]
Index = tuple[int, ...]
Parts = list[float]
"""One element of the broadcast shape, as the summands of its formula."""


@dataclass
class Truth:
    """The outputs in float64, and what they were summed from."""

    shape: Shape
    elements: dict[Index, list[Parts]] = field(default_factory=dict)

    def values(self) -> NDArray[np.float64]:
        return self._array(sum)

    def sizes(self) -> NDArray[np.float64]:
        """The sum of the absolute values of all terms."""
        return self._array(lambda parts: sum(abs(part) for part in parts))

    def of_terms(self, measure: Callable[[float], float]) -> NDArray[np.float64]:
        """The sum of a measure over the summed elements."""
        return self._array(lambda parts: measure(sum(parts)))

    def _array(self, of: Callable[[Parts], float]) -> NDArray[np.float64]:
        result = np.zeros(self.shape)
        for index, summed in self.elements.items():
            result[index] = sum(of(parts) for parts in summed)
        return result


def broadcast(*shapes: Shape) -> Shape:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent != 1), 1)
        for extents in zip(*padded, strict=True)
    )


def indices(shape: Shape) -> Iterator[Index]:
    return product(*(range(extent) for extent in shape))


def at(index: Index, shape: Shape) -> Index:
    """Where the element of a broadcast shape comes from in a smaller one."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if extent == 1 else i for i, extent in zip(tail, shape, strict=True))


def _loop(
    tensors: tuple[Any, Any, Any], space: Shape, output: Shape, element: Callable[..., Parts]
) -> Truth:
    truth = Truth(output)
    for index in indices(space):
        values = (float(tensor[at(index, tensor.shape)]) for tensor in tensors)
        truth.elements.setdefault(at(index, output), []).append(element(*values))
    return truth


def kl_backward(g: Any, s: Any, t: Any, reduction: int, log_target: bool) -> Truth:
    """1.1: -(t * g) * c, or with e^t, summed to the shape of self."""
    space = broadcast(s.shape, t.shape)
    c = _kl_scale(space, reduction)

    def element(g: float, _: float, t: float) -> Parts:
        return [-((_exp(t) if log_target else t) * g) * c]

    return _loop((g, s, t), space, s.shape, element)


def kl_target_builtin(g: Any, s: Any, t: Any, reduction: int, log_target: bool) -> Truth:
    """1.2.1: with g' = g * c, (g' ln t - g' s) + g' t / t, summed to the shape of target."""
    space = broadcast(s.shape, t.shape)
    c = _kl_scale(space, reduction)

    def element(g: float, s: float, t: float) -> Parts:
        g *= c
        if log_target:
            return [g * t * _exp(t), -g * s * _exp(t), g * _exp(t)]
        return [g * _ln(t), -g * s, g * t / t if t else math.nan]

    return _loop((g, s, t), space, t.shape, element)


def kl_target_community(g: Any, s: Any, t: Any, reduction: int, log_target: bool) -> Truth:
    """1.2.2: mean divides by the element count of the broadcast shape."""
    count = math.prod(broadcast(g.shape, s.shape, t.shape))
    return _kl_target_masked(g, s, t, 1 / count if reduction == 1 else 1.0, log_target)


def kl_target_documented(g: Any, s: Any, t: Any, reduction: int, log_target: bool) -> Truth:
    """1.2: as community, but mean divides by target.size(0) as passed, 1 for rank 0."""
    first = t.shape[0] if t.shape else 1
    return _kl_target_masked(g, s, t, 1 / first if reduction == 1 else 1.0, log_target)


def _kl_target_masked(g: Any, s: Any, t: Any, c: float, log_target: bool) -> Truth:
    space = broadcast(g.shape, s.shape, t.shape)

    def element(g: float, s: float, t: float) -> Parts:
        if log_target:
            return [g * t * _exp(t) * c, g * _exp(t) * c, -g * s * _exp(t) * c]
        return [g * _ln(t) * c, g * c, -g * s * c] if t else [0.0]

    return _loop((g, s, t), space, space, element)


def l1_backward(g: Any, s: Any, t: Any, reduction: int, _: bool) -> Truth:
    """1.3: sign(self - target) * g * c on the shape of all three; nothing is summed."""
    space = broadcast(g.shape, s.shape, t.shape)
    c = 1 / math.prod(space) if reduction == 1 else 1.0

    def element(g: float, s: float, t: float) -> Parts:
        return [((s > t) - (s < t)) * (g * c)]

    return _loop((g, s, t), space, space, element)


def _kl_scale(space: Shape, reduction: int) -> float:
    if reduction == 1:
        return 1 / math.prod(space)
    return 1 / space[0] if reduction == 3 and space else 1.0


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else x if math.isnan(x) else math.inf


def _ln(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan
