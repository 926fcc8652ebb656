"""What statements of tokens and the rows of their experts share."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOATS, INT32
from npucall.errors import AclnnStatus, ArgumentError
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


def permutation(draw: Draw) -> Any:
    """Each place once."""
    return draw.random.permutation(draw.shape[0]).reshape(draw.shape)


SORTED = In("sorted_indices", permutation, dtypes=(INT32,))


def beyond(name: str, count: int, *found: int) -> tuple[Invalid, ...]:
    """Places that are none."""
    return tuple(
        Invalid(f"place-{each}", {name: {"values": [each, *range(1, count)]}}, (name,),
                ArgumentError)
        for each in found
    )  # fmt: skip


def whole(numbers: Any) -> Any:
    return np.asarray(numbers).reshape(-1).astype(np.int64)
