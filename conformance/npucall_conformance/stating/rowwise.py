"""Statements of operators that work on rows along a dimension: softmax, gated halves.

``row(given, g, y, ...)`` takes lists of Python floats and returns a list; ``vector`` takes arrays
whose last axis is the row, and returns the value or ``(value, size)``. Of several outputs both
return a mapping of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.parts import In, Out, Setup
from npucall_conformance.stating.statement import Statement


def rowwise(  # noqa: PLR0913  # the parts of a statement
    operator: str,
    *,
    inputs: tuple[In, ...],
    output: Out | tuple[Out, ...],
    row: Callable[..., Any],
    vector: Callable[..., Any],
    dim: str = "dim",
    **more: Any,
) -> Statement:
    """The statement of an operator over rows along the attribute ``dim``; rank 0 counts as 1.

    Rows of different tensors may differ in length. ``more`` are fields of ``Statement``.
    """
    names = tuple(each.name for each in inputs)
    outputs = output if isinstance(output, tuple) else (output,)

    def by_name(answer: Any) -> Mapping[str, Any]:
        return answer if isinstance(answer, Mapping) else {outputs[0].name: answer}

    def loops(given: Arguments) -> Any:
        shapes = [each.shape_in(given) for each in outputs]
        results = {each.name: np.empty(prod(s)) for each, s in zip(outputs, shapes, strict=True)}
        tensors = [given[name] for name in names]
        flat = [tensor.reshape(-1).tolist() for tensor in tensors]
        written = zip(*(_rows(shape, given[dim]) for shape in shapes), strict=True)
        read = zip(*(_rows(t.shape, given[dim]) for t in tensors), strict=True)
        for targets, sources in zip(written, read, strict=True):
            rows = [[t[i] for i in places] for t, places in zip(flat, sources, strict=True)]
            answer = by_name(row(given, *rows))
            for (name, result), places in zip(results.items(), targets, strict=True):
                result[places] = answer[name]
        return {n: r.reshape(s) for (n, r), s in zip(results.items(), shapes, strict=True)}

    def terms(given: Arguments, shape: Shape, answer: Any) -> Terms:
        value, size = answer if isinstance(answer, tuple) else (answer, np.abs(answer))
        return Terms(*(np.moveaxis(part, -1, given[dim]).reshape(shape) for part in (value, size)))

    def arrays(given: Arguments) -> dict[str, Terms]:
        rows = [np.moveaxis(np.atleast_1d(given[name]), given[dim], -1) for name in names]
        # NumPy adds up in pairs, which is exact enough for DOUBLE, only if elements are adjacent.
        answer = by_name(vector(given, *map(np.ascontiguousarray, rows)))
        return {o.name: terms(given, o.shape_in(given), answer[o.name]) for o in outputs}

    more.setdefault("large", large_setups(dim))
    more.setdefault("chunked", (1074, 1026))
    return Statement(operator, inputs, outputs, loops, arrays, **more)


def large_setups(dim: str) -> tuple[Setup, ...]:
    """Many short rows, few long ones, and rows whose elements lie apart."""
    bases: dict[str, tuple[Shape, int]] = {
        "many-rows": ((50_021, 2), -1),
        "long-rows": ((4, 25_014), -1),
        "one-row": ((100_002,), 0),
        "columns": ((338, 307), 0),
        "long-columns": ((50_022, 2), 0),
        "middle": ((37, 54, 61), 1),
    }
    return tuple(Setup(note, base, attributes={dim: axis}) for note, (base, axis) in bases.items())


def _rows(shape: Shape, dim: int) -> list[list[int]]:
    """The flat positions of each row along a dimension, row after row."""
    places = np.moveaxis(np.arange(prod(shape)).reshape(shape or 1), dim, -1)
    rows: list[list[int]] = places.reshape(-1, places.shape[-1]).tolist()
    return rows
