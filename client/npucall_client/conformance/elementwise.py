"""Statements of operators that work element by element, from two functions of single elements.

``scalar(given, g, x, ...)`` takes Python floats, ``vector(given, g, x, ...)`` arrays; both get
every input in order, None for an absent one, and answer the element. ``vector`` answers ``(value,
size)`` where terms cancel.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall_client.conformance import reals
from npucall_client.conformance.given import Given, Terms
from npucall_client.conformance.statement import In, Out, Setup, Statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.tensors import Shape
    from npucall_client.conformance.given import Reals


def elementwise(  # noqa: PLR0913  # the parts of a statement
    operator: str,
    *,
    inputs: tuple[In, ...],
    output: Out,
    scalar: Callable[..., float],
    vector: Callable[..., Any],
    space: tuple[str, ...] = (),
    expands: tuple[str, ...] = (),
    factor: Callable[[Given], float] | None = None,
    **more: Any,
) -> Statement:
    """The statement of an elementwise operator; ``more`` are fields of ``Statement``.

    space: inputs that broadcast with each other; empty: all shapes are equal.
    expands: inputs that broadcast to that shape, not beyond it.
    factor: of losses, what sums are multiplied by; nothing is rounded before the sum then.
    Where the output's shape is smaller, results are summed over the axes that were stretched.
    Cases of the block ``broadcast`` are made from these.
    """
    names = tuple(each.name for each in inputs)
    over = space or names[:1]

    def loops(given: Given) -> Any:
        result = _loop(given, names, over, output.shape_in(given), scalar)
        return result if factor is None else result * factor(given)

    def arrays(given: Given) -> Terms:
        arguments = [given[name] for name in names]
        answer = vector(given, *arguments)
        value, size = answer if isinstance(answer, tuple) else (answer, np.abs(answer))
        terms = _summed(value, size, given.shape(*over), output.shape_in(given))
        if factor is None:
            return terms
        share = factor(given)
        return Terms(terms.value * share, terms.sizes * share)

    more["broadcast"] = (*broadcast_setups(space, expands), *more.get("broadcast", ()))
    return Statement(operator, inputs, (output,), loops, arrays, **more)


def broadcast_setups(space: tuple[str, ...], expands: tuple[str, ...]) -> tuple[Setup, ...]:
    """Shapes that stretch: each tensor alone, pairs that stretch each other, more dimensions."""
    smaller: dict[str, Shape] = {
        "scalar": (), "one": (1,), "row": (4,), "column": (3, 1), "flat": (1, 4)
    }  # fmt: skip
    base = (3, 4)
    setups = [
        Setup(f"{name}-{what}", base, {name: shape})
        for name in (*expands, *(space if len(space) > 1 else ()))
        for what, shape in smaller.items()
    ]
    for name in space if len(space) > 1 else ():
        rest = [other for other in (*space, *expands) if other != name]
        setups += [
            Setup(f"{name}-alone-larger", base, dict.fromkeys(rest, (3, 1))),
            Setup(f"{name}-higher-rank", base, {name: (2, 3, 4)}),
            Setup(
                f"{name}-and-others-stretch", base, {**dict.fromkeys(rest, (1, 4)), name: (3, 1)}
            ),
            Setup(f"{name}-long-sum", (17,), {name: (5, 33, 17)}),
        ]
    if space:
        setups.append(Setup("all-scalar", ()))
    return tuple(setups)


def capped(values: Any, top: float) -> Any:
    """The numbers, those beyond ``top`` as the infinity of their sign."""
    return np.where(np.abs(values) > top, np.copysign(np.inf, values), values)


def _loop(
    given: Given,
    names: tuple[str, ...],
    over: tuple[str, ...],
    shape: Shape,
    scalar: Callable[..., float],
) -> Reals:
    """Goes through the broadcast shape one element at a time, without NumPy's arithmetic."""
    space = _common([given[name].shape for name in over if given[name] is not None])
    tensors = [given[name] for name in names]
    flat = [None if t is None else (t.reshape(-1).tolist(), t.shape) for t in tensors]
    sums: list[list[float]] = [[] for _ in range(prod(shape))]
    for index in product(*map(range, space)):
        elements = [None if t is None else t[0][_position(index, t[1])] for t in flat]
        sums[_position(index, shape)].append(scalar(given, *elements))
    return np.array([reals.total(terms) for terms in sums], np.float64).reshape(shape)


def _common(shapes: list[Shape]) -> Shape:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent != 1), 1)
        for extents in zip(*padded, strict=True)
    )


def _position(index: tuple[int, ...], shape: Shape) -> int:
    """Where the element of a broadcast shape stands in a tensor of a smaller one."""
    position = 0
    for i, extent in zip(index[len(index) - len(shape) :], shape, strict=True):
        position = position * extent + (0 if extent == 1 else i)
    return position


def _summed(value: Any, size: Any, space: Shape, shape: Shape) -> Terms:
    value, size = np.broadcast_to(value, space), np.broadcast_to(size, space)
    if space == shape:
        return Terms(np.array(value), np.array(size))
    aligned = (1,) * (len(space) - len(shape)) + shape
    axes = tuple(
        a for a, (n, m) in enumerate(zip(space, aligned, strict=True)) if m == 1 and n != 1
    )
    return Terms(
        value.sum(axes, keepdims=True).reshape(shape),
        size.sum(axes, keepdims=True).reshape(shape),
        max(prod(space) // max(prod(shape), 1), 1),
    )
