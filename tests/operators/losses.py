"""What the tests of element-wise losses share: shapes that stretch each other, torch's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from .subject import MEAN, NONE
from .ulp import SINGLE_NOISE, assert_within, ulp

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NAMES = ("none", "mean", "sum")
# Shapes of grad_output, self and target that all stretch each other.
STRETCHED: list[tuple[tuple[int, ...], ...]] = [
    ((), (4, 6), (4, 6)),
    ((4, 1), (4, 6), (6,)),
    ((4, 6), (6,), (4, 6)),
    ((4, 6), (4, 1), (1, 6)),
    ((3, 4, 6), (4, 6), (4, 6)),
    ((), (), ()),
]


# Of self and target alone.
PAIRS: list[tuple[tuple[int, ...], ...]] = [
    ((4, 1), (4, 6)),
    ((4, 6), (6,)),
    ((), (4, 6)),
    ((4, 1), (1, 6)),
    ((4, 6), (3, 1, 1)),
    ((), ()),
    ((2, 1, 1, 2, 1, 2, 1, 2), (2, 1, 3, 1, 1, 2, 1, 1)),
]


def stretched(*names: str) -> list[dict[str, tuple[int, ...]]]:
    """The same by the inputs' names."""
    rows = STRETCHED if len(names) == len(STRETCHED[0]) else PAIRS
    return [dict(zip(names, row, strict=True)) for row in rows]


def functional(name: str, *order: str) -> Callable[..., Any]:
    """A loss of ``torch.nn.functional``, which takes these tensors in this order."""

    def loss(tensors: dict[str, Any], reduction: int, **attributes: Any) -> Any:
        torch = pytest.importorskip("torch")
        given = {n: torch.tensor(np.asarray(array)) for n, array in tensors.items()}
        named = {n: given[n] for n in ("weight", "pos_weight") if n in given} | attributes
        function = getattr(torch.nn.functional, name)
        full = torch.broadcast_tensors(*(given[n] for n in order))
        return function(*full, reduction=NAMES[reduction], **named).numpy()

    return loss


def of_terms(size: Callable[..., Any]) -> Callable[..., Any]:
    """The noise of a loss, from a function that answers the size of each element's terms."""

    def noise(tensors: dict[str, Any], _: Any, reduction: int, **attributes: Any) -> Any:
        sizes = size(tensors, **attributes)
        return (
            sizes if reduction == NONE else sizes.sum() / (sizes.size if reduction == MEAN else 1)
        )

    return noise


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
