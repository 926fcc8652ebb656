"""Setups that many statements share: edge values, mixed dtypes, results that are ties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOATS
from npucall.tensors import Shape
from npucall_conformance.stating.parts import Setup

LARGE = (
    Setup("many-rows", (50_021, 2)),
    Setup("long-rows", (2, 50_021)),
    Setup("dimensions", (7, 11, 37, 41)),
)
"""Shapes of tensors that are all alike."""


PAIRS_OF_FLOATS = tuple((a, b) for a in FLOATS for b in FLOATS if a is not b)


def mixed_floats(*inputs: str, output: str = "") -> tuple[Setup, ...]:
    """In turn each input has another float dtype than the rest; then narrower and wider outputs."""
    setups = [
        Setup(dtypes={**dict.fromkeys(inputs, rest), alone: one})
        for alone in inputs
        for one, rest in PAIRS_OF_FLOATS
        if len(inputs) > 1
    ]
    if output:
        setups += [
            Setup(dtypes={**dict.fromkeys(inputs, one), output: other})
            for one, other in PAIRS_OF_FLOATS
        ]
    return tuple(setups)


def crossed(values: Mapping[str, tuple[float, ...]], **more: Any) -> Setup:
    """One call of rank 1 with every combination of the edge values of several parameters."""
    names = list(values)
    rows: list[tuple[float, ...]] = [()]
    for name in names:
        rows = [(*row, value) for row in rows for value in values[name]]
    columns = {name: tuple(row[i] for row in rows) for i, name in enumerate(names)}
    return Setup(base=(len(rows),), values=columns, **more)


def of_reductions(*codes: int) -> tuple[Setup, ...]:
    """Codes of reductions that are accepted, whatever they mean [src:reductions]."""
    return tuple(Setup(attributes={"reduction": code}) for code in codes)


def immense(numbers: Mapping[str, float], *, alone: bool = False, **attributes: Any) -> Setup:
    """A thousand elements whose products are beyond FLOAT, while a thousandth of them is not.

    ``alone``: all elements but the first are 0.
    """
    values = {n: (x,) + ((0.0 if alone else x),) * 999 for n, x in numbers.items()}
    return Setup(
        "immense", (1000,), values=values, attributes={"reduction": 1, **attributes},
        only=(FLOAT, BF16),
    )  # fmt: skip


HALFWAY = (
    *(129 / 128, 131 / 128, 1025 / 1024, 1027 / 1024),
    *(-129 / 128, -131 / 128, -1025 / 1024, -1027 / 1024),
)
"""Numbers of BF16 and of FLOAT16. Multiplied by 1.5, each lies halfway between two numbers. Either
the upper or the lower of the two is even."""


EVEN = (256.0, 258.0, 2048.0, 2050.0, -256.0, -258.0, -2048.0, -2050.0)


SIGNS = (1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0)
"""Added to the same numbers, these also bring them halfway."""


SQUARES = (
    *(136 / 128, 152 / 128, 168 / 128, -152 / 128),
    *(1504 / 1024, 1568 / 1024, 1632 / 1024, -1632 / 1024),
)
"""Numbers whose squares lie halfway."""


def halfway(
    values: Mapping[str, Any],
    shape: Shape = (8,),
    *,
    more: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> tuple[Setup, ...]:
    """A call in which every step is exact, and results lie halfway between two numbers.

    ``values``: by input one number, all numbers of the shape, or an array of another shape.
    ``more`` are fields of the setup.
    """
    filled = {
        name: value if isinstance(value, np.ndarray) else np.resize(value, shape)
        for name, value in values.items()
    }
    return (
        Setup(
            "halfway",
            shape,
            values=filled,
            attributes=attributes,
            exact=True,
            telling=True,
            **(more or {}),
        ),
    )
