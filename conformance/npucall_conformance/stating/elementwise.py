"""Statements of operators that work element by element, from two functions of single elements.

``scalar(given, g, x, ...)`` takes Python floats, ``vector(given, g, x, ...)`` takes arrays. Both
get every input in order, None for an absent one, and return the element. If terms cancel,
``vector`` returns ``(value, size)``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Reals, Terms, wide
from npucall_conformance.stating.parts import LARGE, In, Out, Setup
from npucall_conformance.stating.statement import Statement


def elementwise(  # noqa: PLR0913  # the parts of a statement
    operator: str,
    *,
    inputs: tuple[In, ...],
    output: Out,
    scalar: Callable[..., float],
    vector: Callable[..., Any],
    space: tuple[str, ...] = (),
    expands: tuple[str, ...] = (),
    factor: Callable[[Arguments], float] | None = None,
    **more: Any,
) -> Statement:
    """The statement of an elementwise operator; ``more`` are fields of ``Statement``.

    space: inputs that broadcast with each other; empty: all shapes are equal.
    expands: inputs that broadcast to that shape, not beyond it.
    factor: for losses: sums are multiplied by it, and nothing is rounded before the sum.
    If the output's shape is smaller, results are summed over the axes that were stretched.
    The cases of the block ``broadcast`` are made from ``space`` and ``expands``.
    """
    names = tuple(each.name for each in inputs)
    over = space or names[:1]

    def loops(given: Arguments) -> Any:
        result = _loop(given, names, over, output.shape_in(given), scalar)
        return result if factor is None else result * factor(given)

    def arrays(given: Arguments) -> Terms:
        arguments = [given[name] for name in names]
        answer = vector(given, *arguments)
        value, size = answer if isinstance(answer, tuple) else (answer, np.abs(answer))
        size = np.where(np.isfinite(size), size, np.abs(value))  # of infinite parts that vanish
        terms = _summed(value, size, given.shape(*over), output.shape_in(given))
        if factor is None:
            return terms
        share = factor(given)
        return Terms(terms.value * share, terms.sizes * share)

    more["broadcast"] = (*broadcast_setups(space, expands), *more.get("broadcast", ()))
    more |= {"space": space if len(space) > 1 else (), "expands": expands}
    more.setdefault("chunked", (1031, 1067))
    more["large"] = (*more.get("large", LARGE), *large_setups(space, expands, output))
    return Statement(operator, inputs, (output,), loops, arrays, **more)


def broadcast_setups(space: tuple[str, ...], expands: tuple[str, ...]) -> tuple[Setup, ...]:
    """Setups in which shapes stretch: one tensor, two that stretch each other, more dimensions."""
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


def large_setups(
    space: tuple[str, ...], expands: tuple[str, ...], output: Out
) -> tuple[Setup, ...]:
    """Setups whose tensors stretch over more than a block; outputs may be summed along that."""
    smaller: dict[str, tuple[Shape, Shape]] = {
        "row": ((331, 307), (307,)),
        "column": ((331, 307), (331, 1)),
        "middle": ((37, 53, 61), (37, 1, 61)),
        "scalar": ((331, 307), ()),
    }
    return tuple(
        Setup(
            f"{name}-{what}-sum" if name == output.shape else f"{name}-{what}",
            base,
            {name: shape},
            absent=("",) if name in space else (),  # what it stretches to is given
        )
        for name in (*expands, *(space if len(space) > 1 else ()))
        for what, (base, shape) in smaller.items()
    )


def capped(values: Any, top: float) -> Any:
    """The numbers; beyond ``top`` they become infinite. Complex numbers stay as they are."""
    if np.iscomplexobj(values):
        return values
    return np.where(np.abs(values) > top, np.copysign(np.inf, values), values)


def _loop(
    given: Arguments,
    names: tuple[str, ...],
    over: tuple[str, ...],
    shape: Shape,
    scalar: Callable[..., float],
) -> Reals:
    """Goes through the broadcast shape one element at a time, without NumPy's arithmetic."""
    space = given.shape(*over)
    sums: list[list[float]] = [[] for _ in range(prod(shape))]
    places = _column(np.arange(prod(shape)).reshape(shape), space)
    columns = [_column(given[name], space) for name in names]
    for place, *elements in zip(places, *columns, strict=True):
        sums[place].append(scalar(given, *elements))
    return np.asarray(wide([reals.total(terms) for terms in sums])).reshape(shape)


def _column(tensor: Any, space: Shape) -> list[Any]:
    """A tensor's element at each place of the broadcast shape; None everywhere if it is absent."""
    if tensor is None:
        return [None] * prod(space)
    column: list[Any] = np.broadcast_to(tensor, space).reshape(-1).tolist()
    return column


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
