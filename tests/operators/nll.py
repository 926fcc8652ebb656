"""What tests of the negative log-likelihood share, and the checks of aclnnNLLLossBackward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError
from npucall.operators.nll_loss_backward import nll_loss_backward

from .faults import Fault, Table, dtype, null, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NONE, MEAN, SUM = 0, 1, 2
FLOAT_TENSORS = ("grad_output", "self", "weight", "total_weight")


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


def worked() -> Iterator[tuple[int, int, Any, float]]:
    """Reductions, ignored labels, losses and total weights: F6 of [src:worked-examples]."""
    yield NONE, -100, [1.07002483, 0.60198640], 0
    yield MEAN, -100, 0.47771750, 3.5
    yield SUM, -100, 1.67201123, 3.5
    yield MEAN, 0, 0.35667494, 3


def sizes_of(torch_says: Callable[..., Any]) -> Callable[..., Any]:
    """What a loss of both signs adds up: its weights are positive, so all that is of one sign."""

    def sizes(tensors: dict[str, Any], _: Any, **attributes: Any) -> Any:
        same_sign = tensors | {"self": -np.abs(tensors["self"])}
        return torch_says(same_sign, **attributes)

    return sizes


def torch_backward(
    tensors: dict[str, Any], g: Any, *, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """torch's loss, and autograd's gradient of it with respect to self."""
    import torch

    leaf = torch.tensor(tensors["self"], requires_grad=True)
    loss = torch.nn.functional.nll_loss(
        leaf,
        torch.tensor(tensors["target"]),
        torch.tensor(tensors["weight"]),
        ignore_index=ignore_index,
        reduction=("none", "mean", "sum")[reduction],
    )
    (gradient,) = torch.autograd.grad(loss, leaf, torch.tensor(g))
    return loss.detach().numpy(), gradient.numpy()


# The checks, in order [src:nll-loss]
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
