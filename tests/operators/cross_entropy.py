"""The checks of aclnnCrossEntropyLossGrad, as a table of what each of them refuses."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import ArgumentError, AttributeValueError, ShapeError
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad
from npucall.tensors import TensorSpec

from .faults import INVALID, Fault, Table, dtype, null

TILING = 561002
ONES = TensorSpec(FLOAT, (3,))


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


def shape(wrong: tuple[int, ...], name: str) -> Fault:
    return Fault({name: {"shape": wrong}}, ShapeError, (name,), TILING)


def value(name: str, wrong: Any, status: int = INVALID) -> Fault:
    return Fault({name: wrong}, AttributeValueError, (name,), status)


ON_950 = (*dtype(INT32, "target"), value("label_smoothing", 0.5))
"""No defects on an Ascend 950."""
# operators.md 2.3 and 2.4, in order
TABLE = Table(
    cross_entropy_loss_grad,
    {
        "grad_loss": given((1,)),
        "log_prob": given((3, 4)),
        "target": given((3,), INT64),
        "weight": given((4,)),
        "grad_zloss": None,
        "lse_for_zloss": None,
        "reduction": "mean",
        "ignore_index": -100,
        "label_smoothing": 0.0,
        "lse_square_scale_for_zloss": 0.0,
        "out": given((3, 4)),
    },
    [
        *null("grad_loss", "log_prob", "target", "out"),
        *dtype(DOUBLE, "grad_loss"),
        *dtype(FLOAT16, "log_prob", "out"),
        ON_950[0],
        *dtype(FLOAT, "target"),
        *dtype(FLOAT16, "weight"),
        value("reduction", "batchmean", TILING),
        value("reduction", "", TILING),
        *(value("label_smoothing", wrong, TILING) for wrong in (-0.5, 1.5, float("nan"))),
        shape((3, 4, 1), "log_prob"),
        shape((4,), "log_prob"),
        shape((3,), "grad_loss"),
        shape((1, 1), "grad_loss"),
        shape((4,), "target"),
        shape((3, 1), "target"),
        shape((4, 1), "weight"),
        shape((3,), "weight"),
        shape((4, 3), "out"),
        *(Fault({name: ONES}, ArgumentError, (name,)) for name in ("grad_zloss", "lse_for_zloss")),
        value("lse_square_scale_for_zloss", 0.25),
        ON_950[1],
    ],
)
TABLE_950 = Table(
    cross_entropy_loss_grad,
    TABLE.attributes,
    [fault for fault in TABLE.faults if fault not in ON_950],
    "Ascend950PR_9589",
)
