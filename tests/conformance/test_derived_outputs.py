"""What a plan says about outputs is what a run gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.operators.founding import BUILTIN, COMMUNITY, DOCUMENTED, KL, L1, ones
from tests.operators.gradients import title

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
def test_a_plan_tells_the_output_by_its_rule_and_a_run_gives_it(
    client: Client, operator: Any, shapes: Any, dtypes: Any, shape: Any, dtype: Any
) -> None:
    (spec,) = client.plan(operator, **ones(*shapes, dtypes=dtypes)).outputs.values()
    assert (spec.shape, spec.dtype.numpy) == (shape, dtype)
    result = client.run(operator, **ones(*shapes, dtypes=dtypes))
    assert (result.shape, result.dtype) == (shape, dtype)


@pytest.mark.parametrize("operator", [KL, BUILTIN, COMMUNITY, DOCUMENTED], ids=title)
def test_a_plan_warns_as_a_run_does(client: Client, operator: Any) -> None:
    tensors = ones((2, 3), dtypes=(HALF,) * 3)
    plan = client.plan(operator, **tensors, reduction=9)
    assert plan.warnings == client.execute(operator, **tensors, reduction=9).warnings
    assert len(plan.warnings) == 1


@pytest.mark.parametrize("operator", [KL, BUILTIN, COMMUNITY, DOCUMENTED, L1], ids=title)
def test_a_plan_on_the_reference_needs_no_workspace(client: Client, operator: Any) -> None:
    assert client.plan(operator, **ones((2, 3))).workspace_bytes == 0
