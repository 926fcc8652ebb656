"""Domains: they draw the numbers of a parameter.

A domain is called with a ``Draw`` and returns float64 numbers, which are then rounded to the
tensor's dtype. If a tensor depends on others (indices, log-alpha), its domain looks at those drawn
before it: ``draw["self"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from npucall.tensors import Shape
from npucall_conformance.stating.arguments import BATCHMEAN, MEAN
from npucall_conformance.stating.reals import INFINITY, NAN


@dataclass(frozen=True)
class Draw:
    """What a domain may look at."""

    random: Generator
    shape: Shape
    """The shape of the tensor to draw."""
    earlier: Mapping[str, Any]
    """Attributes, and the tensors before this one as float64, by name; None where absent."""
    shapes: Mapping[str, Shape]
    """The shapes of all inputs."""

    def __getitem__(self, name: str) -> Any:
        return self.earlier[name]


_MOST, _FEW = 1024, 16
Domain: TypeAlias = Callable[[Draw], Any]


def normal(scale: float = 1.0, mean: float = 0.0) -> Domain:
    """The normal distribution: gradients, logits, forward inputs."""
    return lambda draw: draw.random.normal(mean, scale, draw.shape)


def upstream(*means: str) -> Domain:
    """Gradients of a loss. If it is a mean, they are so large that each element's share is about 1.

    ``means``: the inputs whose elements, or first extent, a mean divides by. The gradients are at
    most 1024 times the normal size, since FLOAT16 ends at 65504. If there are only a few, none is
    near 0, since every result depends on them.
    """

    def domain(draw: Draw) -> Any:
        shapes = [draw.shapes[name] for name in means if name in draw.shapes]
        code = draw.earlier.get("reduction")
        count = 1
        if code in (MEAN, "mean"):
            count = max(map(prod, shapes))
        elif code == BATCHMEAN:
            count = max(shape[0] if shape else 1 for shape in shapes)
        numbers = draw.random.normal(0, 1, draw.shape)
        if prod(draw.shape) < _FEW:
            numbers = numbers + np.copysign(0.5, numbers)
        return numbers * min(max(count, 1), _MOST)

    return domain


def uniform(low: float, high: float) -> Domain:
    """Evenly between two numbers."""
    return lambda draw: draw.random.uniform(low, high, draw.shape)


def probabilities(low: float = 0.01, high: float = 0.99) -> Domain:
    """Numbers inside (0, 1), by default away from both ends."""
    return uniform(low, high)


def log_probabilities(low: float = 0.001) -> Domain:
    """Logarithms of probabilities."""
    return lambda draw: np.log(draw.random.uniform(low, 1, draw.shape))


def integers(low: int, high: int) -> Domain:
    """Whole numbers from ``low`` to ``high``, both included."""
    return lambda draw: draw.random.integers(low, high, draw.shape, endpoint=True)


def choice(*values: float) -> Domain:
    """One of these: labels of 1 and -1, points where a formula has a corner."""
    return lambda draw: draw.random.choice(np.array(values, np.float64), draw.shape)


def mixed(first: Domain, second: Domain, share: float = 0.25) -> Domain:
    """Draws that share of the elements from ``second``, and the rest from ``first``."""

    def domain(draw: Draw) -> Any:
        picked = draw.random.random(draw.shape) < share
        return np.where(picked, second(draw), first(draw))

    return domain


def near(other: str, share: float = 0.25) -> Domain:
    """Normal, but equal to another tensor in that share of places: for formulas that test equality.

    If the shapes do not broadcast, the numbers are only normal.
    """

    def domain(draw: Draw) -> Any:
        numbers = draw.random.normal(0, 1, draw.shape)
        twin = draw[other]
        if twin is None or twin.shape != draw.shape:
            return numbers
        return np.where(draw.random.random(draw.shape) < share, twin, numbers)

    return domain


def follows(make: Callable[[Draw], Any]) -> Domain:
    """Computed from values that were drawn before: forward outputs, total weights, log-alpha."""
    return lambda draw: np.broadcast_to(np.asarray(make(draw), np.float64), draw.shape)


NO_NUMBERS = (0.0, -0.0, 1.0, -1.0, NAN, INFINITY, -INFINITY, 0.5, -2.5)
"""Zeros, NaN, infinities."""
EXTREMES = (
    0.0, -0.0, 1.0, -1.0, 2.0**-14, 2.0**-24, 3 * 2.0**-25, 2.0**-11 + 1,
    3 * 2.0**-11 + 1, 2.0**-8 + 1, 3 * 2.0**-8 + 1, 65504.0, 300.0, 12.0, 89.0, -86.0, 3e4, -3e4,
)  # fmt: skip
"""Ends of FLOAT16 and its subnormal numbers; ties of FLOAT16 and BF16; what exponentials overflow
beyond. Not in one call with infinities: where a factor is so small that it becomes 0 in float32,
its product with them is NaN. None so small that it, its exponential, or
the product of a few becomes 0 in float32 on the way to a number: what is left then depends on the
order of steps."""
