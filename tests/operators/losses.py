"""The element-wise losses whose gradients these tests compare: tensors for them, torch's answers.

Tensors go by their names; a test leaves out what the operator may do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.evaluate import compute
from npucall.operators.binary_cross_entropy_backward import binary_cross_entropy_backward
from npucall.operators.binary_cross_entropy_with_logits_backward import (
    binary_cross_entropy_with_logits_backward,
)
from npucall.operators.binary_cross_entropy_with_logits_target_backward import (
    binary_cross_entropy_with_logits_target_backward,
)
from npucall.operators.logit_grad import logit_grad
from npucall.operators.mse_loss_backward import mse_loss_backward
from npucall.operators.smooth_l1_loss_backward import smooth_l1_loss_backward
from npucall.operators.soft_margin_loss_backward import soft_margin_loss_backward

from .gradients import LOCAL
from .ulp import SINGLE_NOISE, assert_within, ulp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npucall.operators.spec import Operator

MSE, SMOOTH_L1 = mse_loss_backward, smooth_l1_loss_backward
SOFT_MARGIN, LOGIT = soft_margin_loss_backward, logit_grad
BCE = binary_cross_entropy_backward
BCE_LOGITS = binary_cross_entropy_with_logits_backward
BCE_LOGITS_TARGET = binary_cross_entropy_with_logits_target_backward

ATTRIBUTES: dict[Any, dict[str, Any]] = {
    MSE: {"reduction": 1},
    SMOOTH_L1: {"reduction": 1, "beta": 0.75},
    SOFT_MARGIN: {"reduction": 1},
    BCE: {"reduction": 1},
    BCE_LOGITS: {"reduction": 1},
    BCE_LOGITS_TARGET: {"reduction": 1},
    LOGIT: {"eps": 0.125},
}
"""The operators, each with values of its attributes."""
NONE, MEAN, SUM = range(3)
NAMES = ("none", "mean", "sum")
# Shapes of grad_output, self and target that all stretch each other, and what comes out.
STRETCHED = [
    ((), (4, 6), (4, 6), (4, 6)),
    ((4, 1), (4, 6), (6,), (4, 6)),
    ((4, 6), (6,), (4, 6), (4, 6)),
    ((4, 6), (4, 1), (1, 6), (4, 6)),
    ((3, 4, 6), (4, 6), (4, 6), (3, 4, 6)),
    ((), (), (), ()),
]


def stretched(*names: str) -> list[dict[str, tuple[int, ...]]]:
    """The same by the inputs' names."""
    return [dict(zip(names, row[:3], strict=True)) for row in STRETCHED]


# Probabilities, where others are numbers of both signs.
_UNIT = {BCE: ("self", "target"), LOGIT: ("x",), BCE_LOGITS: ("target",)}


def drawn(
    operator: Operator[..., Any],
    shape: tuple[int, ...],
    dtype: Any = np.float64,
    *,
    seed: int = 1,
    **shapes: tuple[int, ...],
) -> dict[str, NDArray[Any]]:
    """All inputs, optional ones included, of one shape but where another is named."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name in (p.name for p in operator.inputs):
        unit = name in _UNIT.get(operator, ()) or "weight" in name
        low, high = (0.02, 0.98) if unit else (-4, 4)
        values = np.asarray(random.uniform(low, high, shapes.get(name, shape)))
        signs = operator is SOFT_MARGIN and name == "target"
        tensors[name] = np.asarray(np.sign(values) if signs else values).astype(dtype)
    return tensors


def run(
    operator: Operator[..., Any],
    tensors: dict[str, Any],
    out: Any = None,
    client: Any = LOCAL,
    **attributes: Any,
) -> NDArray[Any]:
    """The result of a client; ``out`` is an array to write to."""
    if out is not None:
        client = client.options(outputs={operator.outputs[0].name: out})
    return client.run(operator, **tensors, **{**ATTRIBUTES[operator], **attributes})


def exact(
    operator: Operator[..., Any], tensors: dict[str, Any], **attributes: Any
) -> NDArray[np.float64]:
    """The result for float64, computed in float64."""
    return compute(operator, **tensors, **{**ATTRIBUTES[operator], **attributes})


def column(dtype: Any, *values: float | None, operator: Operator[..., Any]) -> dict[str, Any]:
    """One value for each input, between ordinary ones, so that neighbours are seen to stay clean.

    None leaves an input out.
    """
    names = (p.name for p in operator.inputs)
    pairs = zip(names, values, strict=True)
    return {name: np.array([0.5, value, 0.5], dtype) for name, value in pairs if value is not None}


def one(
    operator: Operator[..., Any], dtype: Any, *values: float | None, **attributes: Any
) -> float:
    """The result for one element, the inputs' values in C order; without a mean."""
    if "reduction" in ATTRIBUTES[operator]:
        attributes = {"reduction": NONE, **attributes}
    result = run(operator, column(dtype, *values, operator=operator), **attributes)
    assert result.dtype == dtype
    assert np.isfinite(result[0])
    assert result[0] == result[2]
    return float(result[1])


def logits_gradient(
    of: str, tensors: dict[str, NDArray[Any]], reduction: int
) -> NDArray[np.float64]:
    """torch's gradient of its binary cross entropy with logits, in float64.

    For a gradient of rank 0 the mean is torch's; of another torch would make a single number first.
    """
    torch = pytest.importorskip("torch")
    given = {name: torch.tensor(array) for name, array in wide(tensors).items()}
    g = given.pop("grad_output")
    given[of].requires_grad_()
    own = NAMES[reduction] if g.ndim == 0 else "none"
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        given["self"],
        given["target"],
        given.get("weight"),
        pos_weight=given.get("pos_weight"),
        reduction=own,
    )
    (gradient,) = torch.autograd.grad(loss, given[of], g.expand_as(loss))
    scaled = reduction == MEAN and own == "none"
    return gradient.numpy() / (gradient.numel() if scaled else 1)


def wide(tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors in float64."""
    return {name: array.astype(np.float64) for name, array in tensors.items()}


def assert_rounded(found: NDArray[Any], expected: Any, dtype: Any, terms: Any = None) -> None:
    """Of this dtype, within one ulp of float64's result and what float32 costs its terms."""
    assert found.dtype == dtype
    terms = np.abs(expected) if terms is None else terms
    assert_within(found, expected, ulp(expected, dtype) + SINGLE_NOISE * terms)
