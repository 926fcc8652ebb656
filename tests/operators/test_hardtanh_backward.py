"""aclnnHardtanhBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import COMPLEX64, DOUBLE, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.hardtanh_backward import hardtanh_backward

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import INF, LOCAL, NAN
from .subject import WITH_BF16, WITHOUT_BF16, Cells, Subject, aten_of, every, steps

# The checks, in order [src:hardtanh]; after the shapes, what the service refuses before the device
# fails
TABLE = Table(
    hardtanh_backward,
    {"min": Scalar(DOUBLE, -1.0), "max": Scalar(DOUBLE, 1.0)},
    [
        *null("self", "grad_output", "out", "min", "max"),
        *dtype(DOUBLE, "grad_output", "self", "out"),
        *dtype(FLOAT16, "grad_output"),
        *shape(NINE, "grad_output", "self"),
        *shape((3, 2), "grad_output"),
        Fault({"self": {"shape": (1, 3)}}, ShapeError, ("grad_output",)),
        *(Fault({name: Scalar(COMPLEX64, 1)}, DTypeError, (name,)) for name in ("min", "max")),
        *dtype(FLOAT16, "out"),
        *shape((3, 2), "out"),
    ],
)
# self, min, max, grad_output, result
CELLS = [
    (0.5, -1.0, 1.0, 3.0, 3.0),
    (-1.0, -1.0, 1.0, 3.0, 0.0),  # the ends are outside
    (1.0, -1.0, 1.0, 3.0, 0.0),
    (-2.0, -1.0, 1.0, 3.0, 0.0),
    (2.0, -1.0, 1.0, 3.0, 0.0),
    (0.0, 0.0, 6.0, 3.0, 0.0),
    (-0.0, 0.0, 6.0, 3.0, 0.0),
    (NAN, -1.0, 1.0, 3.0, 3.0),
    (INF, -1.0, INF, 3.0, 0.0),
    (-INF, -INF, 1.0, 3.0, 0.0),
    (5.0, -INF, INF, 3.0, 3.0),
    (0.5, 2.0, -2.0, 3.0, 0.0),  # min > max
    (0.5, NAN, NAN, 3.0, 3.0),
    (2.0, -1.0, 1.0, INF, 0.0),
    (2.0, -1.0, 1.0, NAN, 0.0),
    (0.5, -1.0, 1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* min, "
        "const aclScalar* max, aclTensor* out"
    ),
    documented=(*WITH_BF16, *WITHOUT_BF16),
    attributes={"min": -1.0, "max": 1.0},
    values={"self": steps(255)},
    cells=Cells("self min max grad_output", CELLS),
    torch=aten_of(hardtanh_backward, "hardtanh_backward"),
    calls=(*every(min=(-1.0,), max=(1.0,)), *every(min=(0.0, 2.0), max=(6.0, -2.0))),
)


def test_the_ends_are_used_as_float32() -> None:
    x = np.float32([-0.1, 0.1, np.nextafter(np.float32(0.1), np.float32(0))])
    # As float64 0.1 is less than float32(0.1), and -0.1 more: the ends would count otherwise.
    found = LOCAL.run(hardtanh_backward, np.ones(3, np.float32), x, -0.1, 0.1)
    assert found.tolist() == [0, 0, 1]


def test_an_end_beyond_float32_is_infinite() -> None:
    x = np.float32([np.finfo(np.float32).max, INF])
    found = LOCAL.run(hardtanh_backward, np.ones(2, np.float32), x, -1e300, 1e300)
    assert found.tolist() == [1, 0]


def test_the_ends_may_be_integers() -> None:
    x = np.float16([-1, 0, 1, 5, 6])
    found = LOCAL.run(hardtanh_backward, np.ones(5, np.float16), x, 0, np.int32(6))
    assert found.tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("wrong", [{"dtype": FLOAT16}, {"shape": (3, 2)}], ids=["dtype", "shape"])
def test_an_empty_call_succeeds_before_the_output_is_looked_at(wrong: dict[str, Any]) -> None:
    empty = {name: {"shape": (0, 3)} for name in ("grad_output", "self")}
    assert TABLE.refusal(Fault({**empty, "out": wrong}, ShapeError, ())) is None
