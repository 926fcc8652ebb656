"""The check tables of both softmax gradients, and what both forward operators are tried with."""

from __future__ import annotations

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import LOG_SOFTMAX, SOFTMAX
from .subject import Given

# The checks, in order [src:softmax]; the service checks last that "out" is a supported float
SOFTMAX_TABLE = Table(
    SOFTMAX,
    {"dim": 0},
    [
        *null("grad_output", "output", "out"),
        *dtype(INT32, "grad_output", "output"),
        Fault({"output": {"dtype": FLOAT16}}, DTypeError, ("output",)),
        Fault({"grad_output": {"dtype": BF16}}, DTypeError, ("output",)),
        Fault({"dim": 9}, AttributeValueError, ("dim",)),
        Fault({"dim": -10}, AttributeValueError, ("dim",)),
        *shape(NINE, "grad_output"),
        Fault({"output": {"shape": (4, 3)}}, ShapeError, ("grad_output",)),
        Fault({"out": {"shape": (5, 3)}}, ShapeError, ("grad_output",)),
        Fault({"grad_output": {"shape": (6, 3)}}, ShapeError, ("grad_output",)),
        *dtype(INT32, "out"),
        *dtype(DOUBLE, "out"),
        *dtype(BOOL, "out"),
    ],
)
# The checks, in order [src:softmax]; the service checks last that "out" is a supported float
LOG_SOFTMAX_TABLE = Table(
    LOG_SOFTMAX,
    {"dim": 0},
    [
        *null("output", "grad_output", "out"),
        *dtype(INT32, "output", "grad_output"),
        Fault({"output": {"dtype": FLOAT16}}, DTypeError, ("output",)),
        Fault({"grad_output": {"dtype": BF16}}, DTypeError, ("output",)),
        *shape(NINE, "output", "grad_output"),
        Fault({"output": {"shape": (4, 3)}}, ShapeError, ("grad_output",)),
        Fault({"out": {"shape": (5, 3)}}, ShapeError, ("grad_output",)),
        Fault({"grad_output": {"shape": (6, 3)}}, ShapeError, ("grad_output",)),
        Fault({"dim": 9}, AttributeValueError, ("dim",)),
        Fault({"dim": -10}, AttributeValueError, ("dim",)),
        *dtype(INT32, "out"),
        *dtype(DOUBLE, "out"),
        *dtype(BOOL, "out"),
    ],
)
EVERY_DIM = [
    Given({"dim": dim}, dict.fromkeys(("grad_output", "output"), shape))
    for shape in [(4, 6), (3, 5, 7), (17,), (2, 3, 4, 5), ()]
    for dim in range(-max(len(shape), 1), max(len(shape), 1))
]
ALONG_EVERY_DIM = [Given(given.attributes, {"self": given.shapes["output"]}) for given in EVERY_DIM]
"""The same of the forward operators."""
EMPTY = [
    Fault({"self": {"shape": (0, 3)}, "out": {"shape": (0, 3), "dtype": INT32}}, DTypeError, ()),
    Fault({"self": {"shape": (0, 3)}, "out": {"shape": (0, 3)}, "dim": 9}, AttributeValueError, ()),
    Fault({"self": {"shape": (0, 3)}, "out": {"shape": (2, 3)}}, ShapeError, ()),
    Fault({"self": {"shape": (0, *NINE)}, "out": {"shape": (0, *NINE)}}, ShapeError, ()),
]
"""An empty self, and something else that would be refused."""
