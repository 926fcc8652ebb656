"""Every operator against scalar loops in float64, within the tolerances of operators.md 3.2."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npucall.declare.declaration import Operator
from npucall.dtypes import BY_NUMPY, promote

from .running import (
    BUILTIN,
    FLOATS,
    KL,
    L1,
    MASKED,
    OPERATORS,
    Tensors,
    output_of,
    prepared,
    run,
    sample,
    title,
    truth_of,
)
from .ulp import assert_near

BF16 = ml_dtypes.bfloat16
REDUCTIONS = [0, 1, 2, 3]

# grad_output, self, target
BROADCASTS = {
    "grad_output of rank 0": ((), (4, 6), (4, 6)),
    "grad_output of one element": ((1,), (4, 6), (4, 6)),
    "grad_output a row": ((6,), (4, 6), (4, 6)),
    "grad_output a column": ((4, 1), (4, 6), (4, 6)),
    "target smaller": ((4, 6), (4, 6), (1, 6)),
    "target a column": ((4, 6), (4, 6), (4, 1)),
    "target of rank 0": ((4, 6), (4, 6), ()),
    "target larger in the first axis": ((4, 6), (1, 6), (4, 6)),
    "target larger in the last axis": ((4, 6), (4, 1), (4, 6)),
    "target larger in both": ((4, 6), (1, 1), (4, 6)),
    "target of higher rank": ((2, 4, 6), (4, 6), (2, 4, 6)),
    "target of higher rank and larger": ((2, 4, 6), (4, 1), (2, 1, 6)),
    "self of rank 0": ((3, 5), (), (3, 5)),
    "self and target stretch each other": ((4, 6), (4, 1), (1, 6)),
    "self and target stretch each other, grad_output of rank 0": ((), (4, 1), (1, 6)),
    "middle axis": ((2, 3, 5), (2, 1, 5), (2, 3, 5)),
    "outer axes": ((2, 3, 5), (1, 3, 1), (2, 3, 5)),
    "everything of rank 0": ((), (), ()),
    "batch larger in target": ((3, 2), (1, 2), (3, 2)),
    "batch larger in self": ((3, 2), (3, 2), (1, 2)),
}
ENLARGED = {
    "grad_output the largest": ((4, 6), (1, 6), (4, 1)),
    "grad_output of higher rank": ((2, 4, 6), (4, 6), (6,)),
    "grad_output alone has extents": ((4, 6), (), ()),
}
RANKS = {
    "rank 0": (),
    "rank 1": (1,),
    "rank 2": (2, 1),
    "rank 3": (2, 3, 1),
    "rank 4": (1, 2, 3, 1),
    "rank 5": (1, 2, 1, 3, 1),
    "rank 6": (2, 1, 2, 1, 3, 1),
    "rank 7": (1, 2, 1, 2, 1, 2, 1),
    "rank 8": (2, 1, 1, 2, 1, 1, 3, 1),
}


def check(
    operator: Operator[..., Any],
    tensors: Tensors,
    reduction: int = 0,
    log_target: bool = False,
    outputs: dict[str, Any] | None = None,
) -> None:
    attributes = {"reduction": reduction, "log_target": log_target}
    got = run(operator, tensors, outputs, **attributes)
    kernel = prepared(operator, tensors, outputs, **attributes).kernel_dtype.numpy
    truth = truth_of(operator, tensors, reduction, log_target)
    assert_near(got, truth, kernel, stepwise=operator in MASKED)


def of_operators(reductions: list[int]) -> list[tuple[Any, int, bool]]:
    """Each operator with each of its reductions, and log_target where it has one."""
    return [
        (operator, reduction, log_target)
        for operator, reduction, log_target in product(OPERATORS, reductions, (False, True))
        if operator is not L1 or (reduction < 3 and not log_target)
    ]


@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 7), (17,), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize(
    ("operator", "reduction", "log_target"), of_operators(REDUCTIONS), ids=title
)
def test_tensors_of_one_shape_give_what_scalar_loops_give(
    operator: Any, reduction: int, log_target: bool, dtype: Any, shape: tuple[int, ...]
) -> None:
    tensors = sample(shape, dtypes=(dtype,) * 3, log_target=log_target)
    check(operator, tensors, reduction, log_target)


@pytest.mark.parametrize("shapes", BROADCASTS.values(), ids=BROADCASTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize(
    ("operator", "reduction", "log_target"), of_operators([1, 3, 0]), ids=title
)
def test_tensors_that_broadcast_give_what_scalar_loops_give(
    operator: Any, reduction: int, log_target: bool, dtype: Any, shapes: Any
) -> None:
    tensors = sample(*shapes, dtypes=(dtype,) * 3, log_target=log_target, seed=1)
    check(operator, tensors, reduction, log_target)


@pytest.mark.parametrize("shapes", ENLARGED.values(), ids=ENLARGED)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("operator", [*MASKED, L1], ids=title)
def test_grad_output_may_enlarge_the_shape_where_nothing_is_summed(
    operator: Any, reduction: int, shapes: Any
) -> None:
    check(operator, sample(*shapes, seed=2), reduction)


@pytest.mark.parametrize("shape", RANKS.values(), ids=RANKS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_ranks_from_0_to_8_give_what_scalar_loops_give(
    operator: Any, reduction: int, shape: tuple[int, ...]
) -> None:
    check(operator, sample(shape, seed=3), reduction)


@pytest.mark.parametrize(
    "shapes", [((3, 4),), ((3, 4), (3, 1), (1, 4))], ids=["equal", "stretched"]
)
@pytest.mark.parametrize(
    "dtypes",
    list(product(FLOATS, repeat=3)),
    ids=lambda d: "-".join(str(title(each)) for each in d),
)
@pytest.mark.parametrize("operator", [KL, BUILTIN, L1], ids=title)
def test_any_mix_of_the_three_floats_gives_what_scalar_loops_give(
    operator: Any, dtypes: tuple[Any, Any, Any], shapes: Any
) -> None:
    check(operator, sample(*shapes, dtypes=dtypes, seed=4), 1)


@pytest.mark.parametrize("output", FLOATS, ids=title)
@pytest.mark.parametrize(
    "dtypes",
    [(d,) * 3 for d in FLOATS] + [(np.float16, BF16, np.float32)],
    ids=lambda d: "-".join(str(title(each)) for each in d),
)
@pytest.mark.parametrize("operator", [KL, L1], ids=title)
def test_an_output_narrower_or_wider_than_the_inputs_is_rounded_once_more(
    operator: Any, dtypes: tuple[Any, Any, Any], output: Any
) -> None:
    tensors = sample((3, 4), dtypes=dtypes, seed=5)
    given = {output_of(operator): np.empty((3, 4), output)}
    got = run(operator, tensors, given, reduction=1)
    assert got.dtype == output
    check(operator, tensors, 1, outputs=given)


@pytest.mark.parametrize(
    "integer", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_], ids=title
)
@pytest.mark.parametrize("place", ["grad_output", "self", "target"])
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
def test_l1_converts_an_integer_beside_floats_to_the_promoted_float(
    dtype: Any, place: str, integer: Any
) -> None:
    tensors = sample((4, 6), dtypes=(dtype,) * 3, seed=6)
    tensors[place] = np.arange(-12, 12).reshape(4, 6).astype(integer)
    promoted = promote(BY_NUMPY[np.dtype(dtype)], BY_NUMPY[np.dtype(integer)])
    got = run(L1, tensors, reduction=0)
    assert promoted is not None
    assert got.dtype == promoted.numpy == dtype
    truth = truth_of(L1, {name: array.astype(dtype) for name, array in tensors.items()}, 0)
    assert_near(got, truth, dtype)
