"""aclnnCrossEntropyLossGrad: what is refused, in order."""

from __future__ import annotations

import pytest

from npucall.errors import ShapeError

from .arrangements import NEWER
from .cross_entropy import ON_950, TABLE, TILING, value
from .faults import Fault


@pytest.mark.parametrize("fault", ON_950, ids=str)
def test_an_ascend_950_takes_labels_of_int32_and_smooths_labels(fault: Fault) -> None:
    assert TABLE.refusal(fault, soc="Ascend950PR_9589") is None


@pytest.mark.parametrize(
    ("smoothing", "on_a2", "on_950"),
    [(0.0, None, None), (0.5, 161002, None), (1.0, 161002, None), (1.5, TILING, TILING)],
)
def test_labels_are_smoothed_on_the_ascend_950_only(
    smoothing: float, on_a2: int | None, on_950: int | None
) -> None:
    for soc, status in zip(NEWER, (on_a2, on_a2, on_950), strict=True):
        fault = value("label_smoothing", smoothing, status or 0)
        assert TABLE.refusal(fault, soc=soc) == (fault.answer if status else None)


@pytest.mark.parametrize(
    ("reduction", "grad_loss", "passes"),
    [
        ("none", (3,), True),
        ("none", (1,), False),
        ("none", (), False),
        ("mean", (), True),
        ("sum", (1,), True),
        ("sum", (3,), False),
        (None, (), True),
        (None, (3,), False),
    ],
)
def test_the_gradient_has_an_element_for_each_row_without_reduction_only(
    reduction: str | None, grad_loss: tuple[int, ...], passes: bool
) -> None:
    changes = {"reduction": reduction, "grad_loss": {"shape": grad_loss}}
    fault = Fault(changes, ShapeError, ("grad_loss",), TILING)
    assert TABLE.refusal(fault) == (None if passes else fault.answer)


def test_the_weight_may_be_absent() -> None:
    assert TABLE.refusal(Fault({"weight": None}, ShapeError, ())) is None
