"""The checks of the cross entropy and of its gradient, as tables of what each of them refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import ArgumentError, AttributeValueError, ShapeError
from npucall.operators.cross_entropy_loss import cross_entropy_loss
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
# The checks, in order [src:cross-entropy]
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
# The checks, in order [src:cross-entropy]
FORWARD = Table(
    cross_entropy_loss,
    {
        "input": given((3, 4)),
        "target": given((3,), INT64),
        "weight": given((4,)),
        "reduction": "none",
        "ignore_index": -100,
        "label_smoothing": 0.5,
        "lse_square_scale_for_zloss": 0.0,
        "return_zloss": False,
        "loss_out": given((3,)),
        "log_prob_out": given((3, 4)),
        "zloss_out": given((0,)),
        "lse_for_zloss_out": given((2, 3)),  # nobody looks at their shapes
    },
    [
        *null("input", "target", "loss_out", "log_prob_out", "zloss_out", "lse_for_zloss_out"),
        *dtype(DOUBLE, "input"),
        *dtype(FLOAT16, "loss_out", "log_prob_out", "zloss_out", "lse_for_zloss_out"),
        ON_950[0],
        *dtype(FLOAT, "target"),
        *dtype(FLOAT16, "weight"),
        value("reduction", "batchmean", TILING),
        value("reduction", "", TILING),
        *(value("label_smoothing", wrong, TILING) for wrong in (-0.5, 1.5, float("nan"))),
        shape((3, 4, 1), "input"),
        shape((4,), "input"),
        shape((3, 0), "input"),
        shape((4,), "target"),
        shape((3, 1), "target"),
        shape((), "target"),
        shape((4, 1), "weight"),
        shape((3,), "weight"),
        Fault({"loss_out": {"shape": (3, 1)}}, ShapeError, ("loss_out",)),
        Fault({"reduction": "none", "loss_out": {"shape": (1,)}}, ShapeError, ("loss_out",)),
        Fault({"reduction": "mean"}, ShapeError, ("loss_out",)),
        Fault({"reduction": "sum", "loss_out": {"shape": ()}}, ShapeError, ("loss_out",)),
        Fault({"log_prob_out": {"shape": (4, 3)}}, ShapeError, ("log_prob_out",)),
        value("lse_square_scale_for_zloss", 0.25),
        value("return_zloss", wrong=True),
    ],
)
FORWARD_950 = Table(
    cross_entropy_loss,
    FORWARD.attributes,
    [fault for fault in FORWARD.faults if fault not in ON_950],
    "Ascend950PR_9589",
)


def weights(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Of float32, as the operators want them."""
    return random.uniform(0.5, 2, shape).astype(np.float32)
