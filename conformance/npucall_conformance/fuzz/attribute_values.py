"""Values of attributes: the statement's, numbers between them, and those that its setups have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from npucall.tensors import Shape
    from npucall_conformance.fuzz.draws import Draws
    from npucall_conformance.stating.parts import Attributes
    from npucall_conformance.stating.statement import Statement

_PARTS = 16
"""The range from the smallest of an attribute's values to the largest has so many parts."""


def attributes(draw: Draws, statement: Statement, base: Shape, product: str) -> dict[str, Any]:
    """Every attribute of the statement; some may have the values of one of its setups."""
    chosen = {
        name: _value(draw, [value(base) if callable(value) else value for value in values])
        for name, values in statement.attributes.items()
    }
    special = _special(statement, product)
    return {**chosen, **draw.pick(special)} if special and draw.seldom(4) else chosen


def _value(draw: Draws, values: list[Any]) -> Any:
    """One of the values; for numbers also one between them, or next to one."""
    number = draw.pick(values)
    plain = all(type(value) in (int, float) for value in values)
    how = draw.pick(("listed", "between", "between", "next to"))
    if not plain or min(values) == max(values) or how == "listed":
        return number
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        return low + draw.number(0, min(high - low, _PARTS))
    if how == "between":
        return low + (high - low) * draw.number(0, _PARTS) / _PARTS
    towards = np.float32(high if number == low else low)
    return float(np.nextafter(np.float32(number), towards))


def _special(statement: Statement, product: str) -> list[Attributes]:
    """Attributes of setups that give nothing else."""
    return [
        setup.attributes
        for setup in (*statement.reductions, *statement.edges)
        if setup.attributes
        and not (setup.shapes or setup.values or setup.dtypes or setup.base or setup.only)
        and (not setup.products or product in setup.products)
    ]
