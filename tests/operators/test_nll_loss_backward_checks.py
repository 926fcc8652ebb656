"""aclnnNLLLossBackward: what is refused, in order."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.errors import ShapeError

from .faults import Fault
from .nll import MEAN, NONE, SUM, TABLE


@pytest.mark.parametrize(
    ("self", "target", "passes"),
    [
        ((4,), (), True),
        ((1,), (1,), True),
        ((4,), (1,), False),
        ((4,), (4,), False),  # the software lets it pass
        ((1, 4), (), False),  # likewise
        ((1, 4), (1,), True),
    ],
)
def test_there_is_one_label_for_each_row(
    self: tuple[int, ...], target: tuple[int, ...], passes: bool
) -> None:
    changes = {
        "self": self,
        "out": self,
        "target": target,
        "weight": self[-1:],
        "grad_output": (1,),
    }
    fault = Fault({n: {"shape": s} for n, s in changes.items()}, ShapeError, ("target",))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)


@pytest.mark.parametrize(
    ("reduction", "self", "grad_output", "passes"),
    [
        (NONE, (3, 4), (3,), True),
        (MEAN, (3, 4), (3,), False),
        (SUM, (3, 4), (1,), True),
        (MEAN, (3, 4), (), True),
        (SUM, (3, 4), (1, 1), False),
        (NONE, (4,), (), True),
        (NONE, (4,), (1,), True),
        (NONE, (4,), (4,), False),
    ],
)
def test_the_gradient_has_an_element_for_each_row_without_reduction_only(
    reduction: int, self: tuple[int, ...], grad_output: tuple[int, ...], passes: bool
) -> None:
    shapes = {"self": self, "out": self, "target": self[:-1], "grad_output": grad_output}
    changes: dict[str, Any] = {name: {"shape": s} for name, s in shapes.items()}
    fault = Fault(changes | {"reduction": reduction}, ShapeError, ("grad_output",))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)
