"""Runs one operator through prepare and evaluate, with the knobs that only tests turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from npucall.compute.evaluate import evaluate
from npucall.declare.call import Call
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.products import product_of
from npucall.tensors import TensorSpec

from . import naive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Tensors = dict[str, Any]

KL, L1 = kl_div_backward, l1_loss_backward
BUILTIN = kl_div_target_backward_builtin
COMMUNITY = kl_div_target_backward_community
DOCUMENTED = kl_div_target_backward_documented
TRUTHS = {
    KL: naive.kl_backward,
    BUILTIN: naive.kl_target_builtin,
    COMMUNITY: naive.kl_target_community,
    DOCUMENTED: naive.kl_target_documented,
    L1: naive.l1_backward,
}
OPERATORS = tuple(TRUTHS)
MASKED = (COMMUNITY, DOCUMENTED)
"""Those that round every step in FLOAT16, take one dtype and put 0 where target is 0."""
FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)
SENTINEL = 7


def prepared(
    operator: Operator[..., Any],
    tensors: Tensors,
    outputs: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Prepared:
    """The call on an Atlas A2; ``outputs`` are arrays or dtypes of outputs that it gives."""
    specs = {name: spec_of(name, array) for name, array in tensors.items()}
    given = {name: spec_of(name, array) for name, array in (outputs or {}).items()}
    arguments = {**specs, **attributes_of(operator, attributes), **given}
    return prepare(Call(operator, arguments, tuple(tensors)), product_of("Ascend910B1"), CATALOGUE)


def run(
    operator: Operator[..., Any],
    tensors: Tensors,
    outputs: Mapping[str, Any] | None = None,
    block: int | None = None,
    **attributes: Any,
) -> NDArray[Any]:
    """The only output of a call, computed over memory that held something else."""
    call = prepared(operator, tensors, outputs, **attributes)
    ((name, spec),) = call.outputs.items()
    result = np.full(spec.shape, SENTINEL, spec.dtype.numpy)
    evaluate(call, tensors, {name: result}, block=block)
    return result


def truth_of(
    operator: Operator[..., Any], tensors: Tensors, reduction: int = 1, log_target: bool = False
) -> naive.Truth:
    """The naive result of a call whose inputs are already in the dtype that it computes in."""
    g, s, t = (np.asarray(tensors[name]) for name in ("grad_output", "self", "target"))
    return TRUTHS[operator](g, s, t, reduction, log_target)


def attributes_of(operator: Operator[..., Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the operator has: L1 has no log_target."""
    names = {attribute.name for attribute in operator.attributes}
    return {name: value for name, value in attributes.items() if name in names}


def spec_of(name: str, array: Any) -> TensorSpec:
    return TensorSpec(BY_NUMPY[array.dtype], array.shape, name=name)


def output_of(operator: Operator[..., Any]) -> str:
    return operator.outputs[0].name


def title(value: Any) -> str | None:
    """The id of a parametrised operator or dtype."""
    if isinstance(value, type):
        return value.__name__
    return value.title if isinstance(value, Operator) else None


def sample(
    *shapes: tuple[int, ...],
    dtypes: tuple[Any, Any, Any] = (np.float32,) * 3,
    log_target: bool = False,
    seed: int = 0,
) -> Tensors:
    """grad_output, self and target of these shapes; three draws of one shape where one is given.

    Multiples of 1/64 around which nothing overflows; self and target are equal here and there.
    """
    random = np.random.default_rng(seed)
    wanted = shapes if len(shapes) == 3 else shapes * 3
    low, high = (-160, 32) if log_target else (4, 96)
    bounds = ((-128, 128), (-192, 32), (low, high))
    names = ("grad_output", "self", "target")
    tensors = {}
    for name, shape, dtype, (least, most) in zip(names, wanted, dtypes, bounds, strict=True):
        drawn = random.integers(least, most, shape)
        values = drawn if np.dtype(dtype).kind in "iub" else drawn / 64
        tensors[name] = np.asarray(values).astype(dtype)
    return tensors
