"""Special values among those that a domain draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall_conformance.stating.reals import INFINITY, NAN

if TYPE_CHECKING:
    from npucall_conformance.fuzz.draws import Draws
    from npucall_conformance.stating.domains import Domain, Draw
    from npucall_conformance.stating.statement import Statement

NO_NUMBERS = (0.0, -0.0, 1.0, -1.0, NAN, INFINITY, -INFINITY, 0.5, -2.5)
"""Zeros, NaN, infinities."""
EXTREMES = (
    0.0, -0.0, 1.0, -1.0, 2.0**-14, 2.0**-24, 3 * 2.0**-25, 2.0**-11 + 1,
    3 * 2.0**-11 + 1, 2.0**-8 + 1, 3 * 2.0**-8 + 1, 65504.0, 300.0, 12.0, 89.0, -104.0, 3e4, -3e4,
)  # fmt: skip
"""Ends of FLOAT16 and its subnormal numbers; ties of FLOAT16 and BF16; what exponentials overflow
beyond. Not in one call with infinities: where a factor is so small that it becomes 0 in float32,
its product with them is NaN. None so small that the product of a few becomes 0 in float32 on the
way to a number: what is left then depends on the order of steps."""

_MARKS, _PLACES = 6, 60
_FEW = 40
"""Of an edge's numbers."""
_LEAST, _MOST = 1e-2, 8.0
"""Sizes of numbers that are not extreme."""
_POWERS = (0, 0, 2, -12, -30)
"""Of 2, by which all of a tensor's other numbers are multiplied."""


@dataclass(frozen=True)
class Sprinkled:
    """A domain with some special elements; all others are multiplied."""

    domain: Domain
    marks: tuple[tuple[int, float], ...]
    """Positions among the elements, which wrap around at the end, and the values there."""
    power: int = 0
    """All others are multiplied by 2 to that power."""

    def __call__(self, draw: Draw) -> Any:
        """The numbers."""
        found = np.array(self.domain(draw), np.float64) * 2.0**self.power
        flat = found.reshape(-1)
        for place, number in self.marks if flat.size else ():
            flat[place % flat.size] = number
        return flat.reshape(found.shape)


def sprinkled(draw: Draws, statement: Statement) -> Statement:
    """The statement with special values in inputs that have no dtypes of their own."""
    inputs = []
    extreme = draw.flag()
    for each in statement.inputs:
        domain = each.domain
        if not each.dtypes and draw.flag():
            power = draw.pick(_POWERS) if extreme else 0
            special = _special(statement, each.name, extreme=extreme)
            marks = draw.several(_MARKS, partial(_mark, draw, special))
            domain = Sprinkled(each.domain, marks, power)
        inputs.append(replace(each, domain=domain))
    return replace(statement, inputs=tuple(inputs))


def _mark(draw: Draws, numbers: tuple[float, ...]) -> tuple[int, float]:
    return draw.number(0, _PLACES), draw.pick(numbers)


@cache
def _special(statement: Statement, name: str, *, extreme: bool) -> tuple[float, ...]:
    """Values that are special everywhere, and an input's values in the statement's edges."""
    found = dict.fromkeys(EXTREMES if extreme else NO_NUMBERS)
    for setup in statement.edges:
        values = np.asarray(setup.values.get(name, ()), np.float64).reshape(-1)
        found |= dict.fromkeys(
            number
            for number in values[:_FEW].tolist()
            if _LEAST < abs(number) < _MOST or (not extreme and not abs(number) < INFINITY)
        )
    return tuple(found)
