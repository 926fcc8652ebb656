"""What the tests of aclnnKlDivBackward, aclnnKlDivTargetBackward and aclnnL1LossBackward share."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ShapeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward

from .faults import Fault, shape
from .gradients import FLOATS, LOCAL
from .subject import BATCHMEAN, MEAN, NONE, Given, Shape, Subject, Tensors, every
from .ulp import SINGLE_NOISE, assert_within, ulp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from npucall.declare.declaration import Operator

KL, L1 = kl_div_backward, l1_loss_backward
BUILTIN = kl_div_target_backward_builtin
COMMUNITY = kl_div_target_backward_community
DOCUMENTED = kl_div_target_backward_documented
INPUTS = ("grad_output", "self", "target")
BOTH = ("self", "target")
APART = (4, 3)
"""Does not broadcast with (2, 3)."""
APART_PAIR = [Fault({name: {"shape": APART}}, ShapeError, BOTH) for name in BOTH]
NOT_EXPANDABLE = shape((5, 2, 3), "grad_output")
UNKNOWN_CODES = [4, 6, 7, -1, 2**40, 2**32 + 1, -(2**63)]


def shapes(*rows: tuple[Shape, Shape, Shape]) -> list[dict[str, Shape]]:
    return [dict(zip(INPUTS, row, strict=True)) for row in rows]


# grad_output, self, target: of one rank and another, each smaller and larger than the others
STRETCHED = shapes(
    ((), (4, 6), (4, 6)),
    ((1,), (4, 6), (4, 6)),
    ((6,), (4, 6), (4, 6)),
    ((4, 1), (4, 6), (4, 6)),
    ((4, 6), (4, 6), (1, 6)),
    ((4, 6), (4, 6), (4, 1)),
    ((4, 6), (4, 6), ()),
    ((4, 6), (1, 6), (4, 6)),
    ((4, 6), (4, 1), (4, 6)),
    ((4, 6), (1, 1), (4, 6)),
    ((2, 4, 6), (4, 6), (2, 4, 6)),
    ((2, 4, 6), (4, 1), (2, 1, 6)),
    ((3, 5), (), (3, 5)),
    ((), (4, 1), (1, 6)),
    ((2, 3, 5), (2, 1, 5), (2, 3, 5)),
    ((2, 3, 5), (1, 3, 1), (2, 3, 5)),
    ((), (), ()),
)
# The batch is larger in target, in self, nowhere.
BATCHES = shapes(((3, 2), (1, 2), (3, 2)), ((3, 2), (3, 2), (1, 2)), ((3, 2), (3, 2), (3, 2)))
# For those that sum nothing: grad_output is the largest.
ENLARGED = shapes(((4, 6), (1, 6), (4, 1)), ((2, 4, 6), (4, 6), (6,)), ((4, 6), (), ()))
NARROW = shapes(*((s,) * 3 for s in [(1,), (2, 1), (1, 2, 1, 3, 1), (2, 1, 1, 2, 1, 1, 3, 1)]))


def of_kl(*more: Mapping[str, Shape]) -> tuple[Given, ...]:
    """The calls that are compared with torch, and more of their shapes."""
    both = (False, True)
    return (
        *every(*STRETCHED, *more, reduction=(MEAN,), log_target=both),
        *every(*NARROW, reduction=(NONE,), log_target=(False,)),
        *every(*BATCHES, reduction=(NONE, MEAN, 2, BATCHMEAN), log_target=both),
    )


def kl_factor(space: Shape, reduction: int) -> float:
    """What scales a KL gradient in float64."""
    if reduction == BATCHMEAN:
        return 1 / space[0] if space else 1.0
    return 1 / prod(space) if reduction == MEAN else 1.0


def space_of(tensors: Tensors, *names: str) -> Shape:
    return np.broadcast_shapes(*(np.shape(tensors[name]) for name in names or INPUTS))


def full(tensors: Tensors) -> Tensors:
    """The tensors in the shape to which all of them broadcast."""
    space = space_of(tensors)
    return {name: np.broadcast_to(array, space).copy() for name, array in tensors.items()}


def summed_to(shape: Shape, array: Any) -> Any:
    """Adds up the axes along which a tensor of that shape was stretched."""
    lead = array.ndim - len(shape)
    stretched = tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and array.shape[lead + i] != 1
    )
    return array.sum((*range(lead), *stretched)).reshape(shape)


def target_terms(tensors: Tensors, *, log_target: bool) -> NDArray[np.float64]:
    """The size of what a gradient with respect to target adds up, unscaled."""
    g, s, t = (np.abs(array) for array in full(tensors).values())
    logs = np.log(full(tensors)["target"]) if not log_target else t
    return g * (np.abs(logs) + s + 1) * (np.exp(full(tensors)["target"]) if log_target else 1)


def kl_gradient(of: str, tensors: Tensors, reduction: int, log_target: bool) -> Any:
    """What autograd finds for ``F.kl_div`` with respect to ``self`` or ``target``."""
    import torch

    names = ("none", "mean", "sum", "batchmean")
    return _gradient(
        of,
        tensors,
        lambda s, t: torch.nn.functional.kl_div(
            s, t, reduction=names[reduction], log_target=log_target
        ),
    )


def l1_gradient(of: str, tensors: Tensors, reduction: int) -> Any:
    """What autograd finds for ``F.l1_loss`` with respect to ``self`` or ``target``."""
    import torch

    names = ("none", "mean", "sum")
    return _gradient(
        of, tensors, lambda s, t: torch.nn.functional.l1_loss(s, t, reduction=names[reduction])
    )


def _gradient(of: str, tensors: Tensors, loss: Any) -> Any:
    import torch

    leaves = {name: torch.tensor(tensors[name], requires_grad=True) for name in BOTH}
    value = loss(leaves["self"], leaves["target"])
    upstream = torch.tensor(tensors["grad_output"])
    (gradient,) = torch.autograd.grad(value, leaves[of], upstream.expand_as(value))
    return gradient.numpy()


def run(
    operator: Operator[..., Any],
    tensors: Tensors,
    outputs: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> NDArray[Any]:
    """The only output of a call; ``outputs`` are arrays to write to."""
    names = {attribute.name for attribute in operator.attributes}
    given = {name: value for name, value in attributes.items() if name in names}
    return LOCAL.options(outputs=outputs or {}).run(operator, **tensors, **given)


def ones(*shapes: Shape, dtypes: tuple[Any, Any, Any] = (np.float32,) * 3) -> Tensors:
    """grad_output, self and target of these shapes; all of one where one is given."""
    wanted = shapes if len(shapes) == len(INPUTS) else shapes * len(INPUTS)
    return {
        name: np.ones(shape, dtype)
        for name, shape, dtype in zip(INPUTS, wanted, dtypes, strict=True)
    }


def assert_any_mix_of_floats_is_computed_in_float(subject: Subject, of: str | None) -> None:
    """Unless all are FLOAT16; the result has the dtype of ``of``, else the promoted one."""
    pytest.importorskip("torch")
    assert subject.torch is not None
    for kinds in product(FLOATS, repeat=3):
        if len({*kinds}) == 1:
            continue
        drawn = subject.draw(np.float64).items()
        tensors = {n: a.astype(kind) for (n, a), kind in zip(drawn, kinds, strict=True)}
        found = subject.run(tensors)
        exact = {name: array.astype(np.float64) for name, array in tensors.items()}
        expected = subject.torch(exact, **subject.attributes)
        sizes = np.abs(expected)
        if subject.noise is not None:
            sizes = subject.noise(exact, expected, **subject.attributes)
        assert found.dtype == (tensors[of].dtype if of else np.float32)
        assert_within(found, expected, ulp(expected, found.dtype) + SINGLE_NOISE * sizes)


def assert_a_reduced_loss_has_torchs_gradient(
    operator: Operator[..., Any], of: str, target: Shape, reduction: int, log_target: bool
) -> None:
    """With respect to ``of``, where ``self`` has the whole batch."""
    pytest.importorskip("torch")
    shapes: dict[str, Shape] = {"grad_output": (), "self": (4, 6), "target": target}
    tensors = {name: np.asarray(np.full(extents, 0.25)) for name, extents in shapes.items()}
    found = compute(operator, **tensors, reduction=reduction, log_target=log_target)
    np.testing.assert_allclose(found, kl_gradient(of, tensors, reduction, log_target))
