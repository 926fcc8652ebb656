"""aclnnL1LossBackward: what it refuses, values against torch, integers, reductions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.dtypes import BF16, BOOL, BY_NUMPY, DOUBLE, FLOAT16, INT32, UINT16, promote
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, reductions_beyond_2, shape
from .founding import (
    APART,
    BATCHES,
    ENLARGED,
    INPUTS,
    L1,
    NARROW,
    STRETCHED,
    assert_any_mix_of_floats_is_computed_in_float,
    full,
    l1_gradient,
    summed_to,
)
from .gradients import FLOATS, INF, NAN, title
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, Tensors, every, steps

# The checks, in order [src:l1-loss-backward]
TABLE = Table(
    L1,
    {"reduction": 1},
    [
        *null(*INPUTS, "grad_input"),
        *reductions_beyond_2(),
        *(Fault({n: {"dtype": UINT16}}, DTypeError, ("grad_output", "self")) for n in INPUTS[:2]),
        Fault({"target": {"dtype": UINT16}}, DTypeError, INPUTS),
        *dtype(INT32, "grad_input"),
        *dtype(BOOL, "grad_input"),
        *(Fault({name: {"dtype": DOUBLE}}, DTypeError, INPUTS) for name in INPUTS),
        *shape(NINE, "self", "target", "grad_output", "grad_input"),
        *(Fault({n: {"shape": APART}}, ShapeError, ("self", "grad_output")) for n in INPUTS[1::-1]),
        Fault({"target": {"shape": APART}}, ShapeError, ("self", "grad_output", "target")),
        *shape((3, 2), "grad_input"),
        *shape((1, 2, 3), "grad_input"),
    ],
)
# [src:l1-loss-backward]: self, target, grad_output, result
CELLS = [
    (1.0, 1.0, 2.0, 0.0),
    (INF, INF, 2.0, 0.0),
    (-INF, -INF, 2.0, 0.0),
    (0.0, -0.0, 2.0, 0.0),
    (1.0, 1.0, INF, NAN),
    (1.0, 1.0, -INF, NAN),
    (1.0, 1.0, NAN, NAN),
    (INF, -INF, 2.0, 2.0),
    (-INF, INF, 2.0, -2.0),
    (INF, 3.0, 2.0, 2.0),
    (3.0, INF, 2.0, -2.0),
    (NAN, 1.0, 2.0, 0.0),
    (1.0, NAN, 2.0, 0.0),
    (NAN, NAN, 2.0, 0.0),
    (2.0, 1.0, INF, INF),
    (1.0, 2.0, INF, -INF),
    (2.0, 1.0, NAN, NAN),
    (2.0, 1.0, 0.0, 0.0),
]
OLDER = ("Ascend910A", "Ascend310P3", "Ascend310B1")


def torch_gradient(tensors: Tensors, reduction: int) -> Any:
    """torch's without a sum; a mean divides by all elements."""
    gradient = l1_gradient("self", full(tensors), NONE)
    return gradient / (gradient.size if reduction == MEAN else 1)


SUBJECT = Subject(
    TABLE,
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* gradInput"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    attributes={"reduction": MEAN},
    values={"self": steps(48), "target": steps(48)},  # equal here and there
    cells=Cells("self target grad_output", CELLS),
    torch=torch_gradient,
    calls=every(*STRETCHED, *ENLARGED, *NARROW, *BATCHES, {}, reduction=(NONE, MEAN, SUM)),
    casts=(*FLOATS, np.float64, np.complex64, np.complex128),
    stretches=True,
)


@pytest.mark.torch
def test_any_mix_of_the_three_floats_is_computed_in_float() -> None:
    assert_any_mix_of_floats_is_computed_in_float(SUBJECT, None)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("name", INPUTS)
def test_an_integer_beside_floats_is_converted_to_the_promoted_float(name: str, kind: Any) -> None:
    tensors = SUBJECT.draw(kind)
    numbers = np.arange(-102, 102).reshape(12, 17) % 100
    for integer in (np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_):
        given = numbers.astype(integer)
        promoted = promote(BY_NUMPY[np.dtype(kind)], BY_NUMPY[np.dtype(integer)])
        found = SUBJECT.run(tensors | {name: given})
        assert promoted is not None
        assert found.dtype == promoted.numpy == kind
        expected = SUBJECT.run(tensors | {name: given.astype(kind)})
        np.testing.assert_array_equal(found, expected)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("shapes", [((4, 6), (6,)), ((4, 1), (4, 6)), ((4, 1), (1, 6))], ids=str)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_summed_over_the_stretched_axes_the_gradient_is_that_of_torch(
    reduction: int, shapes: Any
) -> None:
    pytest.importorskip("torch")
    drawn = SUBJECT.draw(np.float64)
    upstream = np.broadcast_shapes(*shapes) if reduction == NONE else ()
    tensors = {
        name: drawn[name].flat[: np.prod(of, dtype=int)].reshape(of)
        for name, of in zip(INPUTS, (upstream, *shapes), strict=True)
    }
    found = compute(L1, **tensors, reduction=reduction)
    for name, of, sign in zip(("self", "target"), shapes, (1, -1), strict=True):
        expected = l1_gradient(name, tensors, reduction)
        np.testing.assert_allclose(summed_to(of, sign * found), expected, atol=1e-14)


@pytest.mark.torch
def test_mean_counts_an_enlargement_by_grad_output_which_torch_does_not() -> None:
    pytest.importorskip("torch")
    small = {"self": np.array([3.0, 0]), "target": np.array([1.0, 2])}
    enlarged = compute(L1, np.full((3, 1), 6.0), **small, reduction=MEAN)
    np.testing.assert_array_equal(enlarged, [[1, -1]] * 3)  # 6 / 6
    usual = l1_gradient("self", {"grad_output": np.array(6.0), **small}, MEAN)
    np.testing.assert_array_equal(usual, [3, -3])  # 6 / 2


@pytest.mark.torch
@pytest.mark.parametrize("pair", [(NAN, 1.0), (1.0, NAN), (INF, INF), (2.0, 2.0)])
def test_the_sign_is_0_for_nan_and_for_equal_values_as_in_torch(pair: tuple[float, float]) -> None:
    pytest.importorskip("torch")
    values = dict(zip(INPUTS, (3.0, *pair), strict=True))
    tensors = {name: np.array([value]) for name, value in values.items()}
    assert compute(L1, **tensors, reduction=NONE) == [0]
    assert l1_gradient("self", tensors, NONE) == [0]


@pytest.mark.parametrize("soc", OLDER)
def test_older_products_take_bf16_beside_another_float(soc: str) -> None:
    for name, other in product(INPUTS, ({}, {"dtype": FLOAT16})):
        # Only the promoted dtype, FLOAT here, has to be in the list.
        others = {n: other for n in INPUTS if n != name}
        fault = Fault({**others, name: {"dtype": BF16}}, DTypeError, ())
        assert TABLE.refusal(fault, soc=soc) is None


def test_a_reduction_is_refused_by_its_name() -> None:
    with pytest.raises(AttributeValueError, match="reduction: expected one of"):
        SUBJECT.run(SUBJECT.draw(np.float32), reduction=3)
