"""What a plan says about outputs is what a run gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from .running import (
    BUILTIN,
    COMMUNITY,
    DOCUMENTED,
    KL,
    L1,
    OPERATORS,
    output_of,
    sample,
    title,
)

if TYPE_CHECKING:
    from npucall_client import Client

HALF, SINGLE, BF16 = np.float16, np.float32, ml_dtypes.bfloat16

# operator; shapes and dtypes of grad_output, self, target; shape and dtype of the output
DERIVED = [
    (KL, ((), (2, 1), (2, 3)), (SINGLE, HALF, BF16), (2, 1), HALF),  # those of self
    (KL, ((), (), (3,)), (HALF, BF16, HALF), (), BF16),
    (BUILTIN, ((), (2, 3), (1, 3)), (SINGLE, HALF, BF16), (1, 3), BF16),  # those of target
    (BUILTIN, ((3,), (2, 3), ()), (HALF, BF16, HALF), (), HALF),
    (COMMUNITY, ((2, 3), (3,), (1, 1)), (HALF,) * 3, (2, 3), HALF),  # what all broadcast to
    (DOCUMENTED, ((2, 1, 1), (3,), (4, 1)), (BF16,) * 3, (2, 4, 3), BF16),
    (L1, ((2, 1), (3,), ()), (SINGLE, HALF, BF16), (2, 3), SINGLE),  # the promoted dtype
    (L1, ((2, 1), (3,), ()), (HALF, HALF, BF16), (2, 3), SINGLE),
    (L1, ((2, 1), (3,), ()), (HALF, np.int64, HALF), (2, 3), HALF),
    (L1, ((), (), ()), (BF16, BF16, np.bool_), (), BF16),
    (L1, ((0, 3), (3,), ()), (HALF,) * 3, (0, 3), HALF),
]


@pytest.mark.parametrize(("operator", "shapes", "dtypes", "shape", "dtype"), DERIVED, ids=title)
def test_an_output_that_is_not_given_has_the_shape_and_dtype_of_its_rule(
    client: Client, operator: Any, shapes: Any, dtypes: Any, shape: Any, dtype: Any
) -> None:
    result = client.run(operator, **sample(*shapes, dtypes=dtypes))
    assert (result.shape, result.dtype) == (shape, dtype)


@pytest.mark.parametrize(("operator", "shapes", "dtypes", "shape", "dtype"), DERIVED, ids=title)
def test_a_plan_tells_the_output_that_a_run_gives(
    client: Client, operator: Any, shapes: Any, dtypes: Any, shape: Any, dtype: Any
) -> None:
    spec = client.plan(operator, **sample(*shapes, dtypes=dtypes)).outputs[output_of(operator)]
    assert (spec.shape, spec.dtype.numpy) == (shape, dtype)


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_plan_and_run_agree_about_variant_kernel_dtype_and_warnings(
    client: Client, operator: Any
) -> None:
    tensors = sample((2, 3), dtypes=(HALF,) * 3)
    code = 2 if operator is L1 else 9
    plan = client.plan(operator, **tensors, reduction=code)
    result = client.execute(operator, **tensors, reduction=code)
    assert (plan.variant, plan.kernel_dtype) == (result.variant, result.kernel_dtype)
    assert plan.warnings == result.warnings
    assert len(plan.warnings) == (0 if operator is L1 else 1)


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_a_plan_on_the_reference_needs_no_workspace(client: Client, operator: Any) -> None:
    assert client.plan(operator, **sample((2, 3))).workspace_bytes == 0
