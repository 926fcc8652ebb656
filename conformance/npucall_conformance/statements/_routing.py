"""What statements of tokens and the rows of their experts share."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import FLOATS, INT32
from npucall.errors import AclnnStatus, ArgumentError
from npucall.tensors import Shape
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import In, Invalid, Setup
from npucall_conformance.stating.tables import on

TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
TAKES = on(("Ascend910B", "Ascend910_93"), *FLOATS)
COMMON: dict[str, Any] = {
    "takes": TAKES,
    "legacy": (),
    "base_shapes": ((4, 6), (3, 7), (1, 5), (9, 2)),
    "rank_shapes": ((2, 1),),
    "empty_shapes": (),
    "sized": lambda count: (max(count // 64, 1), 64),
    "large": (Setup("many-rows", (12_301, 8)), Setup("long-rows", (3, 33_011))),
}


def most(base: Shape) -> int:
    """A number of active rows: most of many, two of few."""
    return max(base[0] - 30, 2)


def permutation(draw: Draw) -> Any:
    """Each place once."""
    return draw.random.permutation(draw.shape[0]).reshape(draw.shape)


SORTED = In("sorted_indices", permutation, dtypes=(INT32,))


def routed(draw: Draw) -> Any:
    """Different places among all rows; -1 of some, where experts have a capacity."""
    count = prod(next(draw.shapes[name] for name in ROWS if name in draw.shapes)[:-1])
    if not draw["drop_pad_mode"] % 2:
        return ended(draw.random.permutation(draw.shape[0]), count)
    return some_of(draw, count)


def some_of(draw: Draw, count: int) -> Any:
    """Different places of so many; -1 of some, and where there are too few."""
    places = np.full(max(draw.shape[0], count), -1)
    places[:count] = range(count)
    kept = draw.random.random(draw.shape) < _KEPT
    return ended(np.where(kept, draw.random.permutation(places)[: draw.shape[0]], -1), count)


def ended(places: Any, count: int) -> Any:
    """The last is one of so many rows, if any is: stretched places are all like it."""
    for there in np.flatnonzero((places >= 0) & (places < count))[:1]:
        places[[-1, there]] = places[[there, -1]]
    return places


ROWS = ("grad_expanded_x", "expanded_x")
_KEPT = 0.8
ROUTED_TO = In("expanded_row_idx", routed, dtypes=(INT32,))


def looked_up(rows: Any, places: Any) -> Any:
    """Rows by their places; those that are not there are 0."""
    found = whole(places)
    there = (found >= 0) & (found < len(rows))
    return np.where(there[:, np.newaxis], rows[np.where(there, found, 0)], 0)


def beyond(name: str, shape: Shape, *found: int) -> tuple[Invalid, ...]:
    """Places that are none."""
    rest = range(1, prod(shape))
    return tuple(
        Invalid(f"place-{each}-{name}", {name: {"values": np.reshape([each, *rest], shape)}},
                (name,), ArgumentError)
        for each in found
    )  # fmt: skip


def whole(numbers: Any) -> Any:
    return np.asarray(numbers).reshape(-1).astype(np.int64)
