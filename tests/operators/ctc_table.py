"""The checks of the CTC loss and of its gradient, as tables of what each of them refuses."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import BF16, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.ctc_loss import ctc_loss
from npucall.operators.ctc_loss_backward import ctc_loss_backward

from .faults import Fault, Table, dtype, null, shape

FLOAT_TENSORS = ("grad_out", "log_probs", "neg_log_likelihood", "log_alpha", "out")


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


def lengths(name: str, wrong: tuple[int, ...], *besides: str) -> Fault:
    return Fault({name: wrong}, AttributeValueError, (name, *besides))


def many_states(kind: Any) -> Fault:
    """Room for 1001 labels, in tensors of a short float."""
    tensors: dict[str, Any] = {name: {"dtype": kind} for name in FLOAT_TENSORS}
    tensors["log_alpha"] = given((2, 5, 2003), kind)
    return Fault(tensors, DTypeError, ("log_probs",))


# The checks, in order [src:ctc-loss]
TABLE = Table(
    ctc_loss_backward,
    {
        "grad_out": given((2,)),
        "log_probs": given((5, 2, 4)),
        "targets": given((2, 3), INT64),
        "input_lengths": (5, 4),
        "target_lengths": (3, 2),
        "neg_log_likelihood": given((2,)),
        "log_alpha": given((2, 5, 7)),
        "blank": 0,
        "zero_infinity": False,
        "out": given((5, 2, 4)),
    },
    [
        *null(
            *("grad_out", "log_probs", "targets", "input_lengths", "target_lengths"),
            *("neg_log_likelihood", "log_alpha", "out"),
        ),
        *shape((0, 2, 4), "log_probs"),
        *shape((), "log_probs"),
        *shape((2, 1), "grad_out", "neg_log_likelihood"),
        *shape((5, 2), "log_probs"),
        *shape((2, 5), "log_alpha"),
        *shape((), "targets"),
        *shape((2, 3, 1), "targets"),
        *shape((5, 8), "out"),
        *(Fault({"blank": blank}, AttributeValueError, ("blank",)) for blank in (4, -1)),
        lengths("target_lengths", (1500, 0), "log_alpha"),
        Fault({"targets": {"shape": (2, 2)}}, ShapeError, ("targets", "target_lengths")),
        *shape((3,), "grad_out"),
        *shape((5, 3, 4), "out"),
        *shape((3,), "neg_log_likelihood"),
        *shape((3, 5, 7), "log_alpha"),
        lengths("input_lengths", (5,)),
        lengths("target_lengths", (3, 2, 1)),
        *shape((3, 3), "targets"),
        *shape((4, 2, 4), "out"),
        *shape((2, 4, 7), "log_alpha"),
        lengths("input_lengths", (4, 6), "log_probs"),
        *shape((5, 2, 3), "out"),
        Fault({"targets": {"shape": (6,)}}, ShapeError, ("targets", "target_lengths")),
        *dtype(INT32, "log_probs"),
        many_states(FLOAT16),
        many_states(BF16),
        *dtype(FLOAT16, "grad_out", "neg_log_likelihood", "log_alpha", "out"),
        *dtype(INT8, "targets"),
        lengths("input_lengths", (5, -1)),
        lengths("target_lengths", (3, -1)),
    ],
)


def too_many_labels(kind: Any) -> dict[str, Any]:
    """1001 labels, whose states are padded to 2008, in tensors of a short float."""
    tensors: dict[str, Any] = {name: {"dtype": kind} for name in FORWARD_TENSORS}
    tensors |= {"targets": {"shape": (2, 1001)}, "target_lengths": (1001, 0)}
    return tensors | {"log_alpha_out": given((2, 5, 2008), kind)}


def targets(wrong: tuple[int, ...]) -> Fault:
    """Targets that are not as many as their lengths say."""
    return Fault({"targets": {"shape": wrong}}, ShapeError, ("targets", "target_lengths"))


FORWARD_TENSORS = ("log_probs", "neg_log_likelihood_out", "log_alpha_out")
SHORT = [too_many_labels(kind) for kind in (FLOAT16, BF16)]
# The checks, in order [src:ctc-loss]
FORWARD = Table(
    ctc_loss,
    {
        "log_probs": given((5, 2, 4)),
        "targets": given((2, 3), INT64),
        "input_lengths": (5, 4),
        "target_lengths": (3, 2),
        "blank": 0,
        "zero_infinity": False,
        "neg_log_likelihood_out": given((2,)),
        "log_alpha_out": given((2, 5, 8)),
    },
    [
        *null(
            *("log_probs", "targets", "input_lengths", "target_lengths"),
            *("neg_log_likelihood_out", "log_alpha_out"),
        ),
        *shape((0, 2, 4), "log_probs"),
        *shape((), "log_probs"),
        *shape((5, 2, 4, 1), "log_probs"),
        *shape((5,), "log_probs"),
        *(Fault({"blank": blank}, AttributeValueError, ("blank",)) for blank in (4, -1)),
        lengths("input_lengths", (5,)),
        lengths("input_lengths", (4, 6), "log_probs"),
        lengths("target_lengths", (3, 2, 1)),
        *shape((), "targets"),
        *shape((2, 3, 1), "targets"),
        *shape((3, 3), "targets"),
        targets((2, 2)),
        targets((6,)),
        *shape((3,), "neg_log_likelihood_out"),
        *shape((), "neg_log_likelihood_out"),
        *shape((2, 1), "neg_log_likelihood_out"),
        *shape((2, 5, 7), "log_alpha_out"),
        *shape((2, 4, 8), "log_alpha_out"),
        *shape((3, 5, 8), "log_alpha_out"),
        *shape((2, 5, 16), "log_alpha_out"),
        *shape((2, 40), "log_alpha_out"),
        *dtype(INT32, "log_probs"),
        *(Fault(changes, DTypeError, ("log_probs",)) for changes in SHORT),
        *dtype(INT8, "targets"),
        *dtype(FLOAT16, "neg_log_likelihood_out", "log_alpha_out"),
        lengths("input_lengths", (5, -1)),
        lengths("target_lengths", (3, -1)),
    ],
)
FORWARD_950 = Table(
    ctc_loss,
    {**FORWARD.attributes, "log_alpha_out": given((2, 5, 7))},
    [
        fault
        for fault in FORWARD.faults
        if fault.changes not in ({"log_alpha_out": {"shape": (2, 5, 7)}}, SHORT[0], SHORT[1])
    ],
    "Ascend950PR_9589",
)
