"""aclnnHardswish: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import ShapeError
from npucall.operators.hardswish import hardswish
from npucall.products import ASCEND_910

from .faults import Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of

# The checks, in order [src:hardswish]; a float can be cast to every float
TABLE = Table(
    hardswish,
    {},
    [
        *null("self", "out"),
        *dtypes(DOUBLE, INT32, of=("self", "out")),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
    ],
)
# self, result
CELLS = [
    (0.0, 0.0),
    (-0.0, 0.0),
    (1.5, 1.125),  # 1.5 * 4.5 / 6
    (-1.5, -0.375),
    (3.0, 3.0),
    (-3.0, 0.0),
    (4.0, 4.0),
    (-4.0, 0.0),
    (60000.0, 60000.0),
    (-60000.0, 0.0),
    (INF, INF),
    (-INF, NAN),  # infinity times 0; -0 on Ascend 950
    (NAN, NAN),
]


def terms(tensors: dict[str, Any], *_: Any) -> Any:
    """The size of what the formula adds up, where it cancels."""
    x = np.abs(tensors["self"])
    return x * np.minimum(x + 3, 6) / 6


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910),
    newer=THREE,
    older=TWO,
    cells=Cells("self", CELLS),
    torch=aten_of(hardswish, "hardswish"),
    noise=terms,
    casts=FLOATS,
)


def test_nine_dimensions_are_taken() -> None:
    x = np.full((1, 2, 1, 1, 2, 1, 1, 1, 3), 1.5, np.float32)
    found = LOCAL.run(hardswish, x)
    assert found.shape == x.shape
    assert (found == 1.125).all()


def test_a_number_whose_sixfold_is_infinite_stays_itself() -> None:
    x = np.array([1e38, 3e38], np.float32)
    np.testing.assert_array_equal(LOCAL.run(hardswish, x), x)
