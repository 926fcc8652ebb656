"""The checks of aclnnNLLLossBackward, as a table of what each of them refuses."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError
from npucall.operators.nll_loss_backward import nll_loss_backward

from .faults import Fault, Table, dtype, null, shape

NONE, MEAN, SUM = 0, 1, 2
FLOAT_TENSORS = ("grad_output", "self", "weight", "total_weight")


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


# operators.md 2.3, in order
TABLE = Table(
    nll_loss_backward,
    {
        "grad_output": given((3,)),
        "self": given((3, 4)),
        "target": given((3,), INT64),
        "weight": given((4,)),
        "total_weight": given(()),
        "out": given((3, 4)),
        "reduction": NONE,
        "ignore_index": -100,
    },
    [
        *null("grad_output", "self", "target", "weight", "total_weight", "out"),
        *dtype(FLOAT16, "weight", "grad_output", "total_weight"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        Fault({n: {"dtype": DOUBLE} for n in (*FLOAT_TENSORS, "out")}, DTypeError, ("self",)),
        *dtype(FLOAT, "target"),
        *dtype(INT8, "target"),
        *(Fault({"reduction": r}, AttributeValueError, ("reduction",)) for r in (3, -1)),
        *shape((3, 4, 1), "self"),
        *shape((), "self"),
        *shape((3, 1), "target"),
        *shape((4,), "target"),
        *shape((), "target"),
        *shape((3,), "weight"),
        *shape((4, 1), "weight"),
        *shape((2,), "total_weight"),
        *shape((0,), "total_weight"),
        *shape((1,), "grad_output"),
        *shape((3, 1), "grad_output"),
        *shape((4, 3), "out"),
    ],
)
