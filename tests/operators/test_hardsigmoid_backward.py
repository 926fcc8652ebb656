"""aclnnHardsigmoidBackward: prototype, values, and its checks in order."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, INT32
from npucall.errors import ShapeError
from npucall.operators.hardsigmoid_backward import hardsigmoid_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import WITH_BF16, Cells, Subject, aten_of, steps

# The checks, in order [src:hardsigmoid]
TABLE = Table(
    hardsigmoid_backward,
    {},
    [
        *null("grad_output", "self", "out"),
        *dtype(DOUBLE, "grad_output", "self"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape(NINE, "grad_output", "self", "out"),
        *shape((3, 2), "self"),
        Fault({"grad_output": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"out": {"shape": (3, 2)}}, ShapeError, ("self",)),
    ],
)
SIXTH = float(np.float32(1 / 6))
# self, grad_output, result
CELLS = [
    (0.0, 6.0, 6 * SIXTH),
    (-0.0, 6.0, 6 * SIXTH),
    (2.984375, -6.0, -6 * SIXTH),  # a number of BF16
    (-2.984375, 6.0, 6 * SIXTH),
    (3.0, 6.0, 0.0),
    (-3.0, 6.0, 0.0),
    (4.0, 6.0, 0.0),
    (INF, 6.0, 0.0),
    (-INF, 6.0, 0.0),
    (NAN, 6.0, 0.0),
    (0.0, INF, INF),
    (0.0, NAN, NAN),
    (4.0, INF, 0.0),
    (NAN, NAN, 0.0),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    values={"self": steps(255)},
    cells=Cells("self grad_output", CELLS),
    torch=aten_of(hardsigmoid_backward, "hardsigmoid_backward"),
    casts=(*FLOATS, np.float64, np.complex64),
)


def test_the_largest_float_below_3_has_a_gradient_as_on_atlas_a2() -> None:
    x = np.nextafter(np.float32([3, -3]), np.float32(0))
    found = LOCAL.run(hardsigmoid_backward, np.ones(2, np.float32), x)
    np.testing.assert_array_equal(found, np.float32([SIXTH, SIXTH]))


def test_inputs_of_two_dtypes_are_computed_and_answered_in_the_promoted_one() -> None:
    g, x = np.array([1], np.float16), np.array([1], FLOATS[2])
    found = LOCAL.run(hardsigmoid_backward, g, x)
    assert found.dtype == np.float32
    assert found == np.float32(SIXTH)
