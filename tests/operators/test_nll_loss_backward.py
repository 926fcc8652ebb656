"""aclnnNLLLossBackward: prototype, values against torch, layouts and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators.nll_loss_backward import nll_loss_backward
from npucall.products import ASCEND_910

from .gradients import FLOATS, LOCAL, NAN, aten, drawn
from .nll import FLOAT_TENSORS, MEAN, NONE, SUM, TABLE
from .subject import WITH_BF16, Subject, aten_of, between, every, labels

LABELS = np.array([2, 0, 1, 3, 2, 0])


def sample(reduction: int, rows: Any = LABELS, kind: Any = np.float64) -> dict[str, Any]:
    g, x, weight, total = drawn(
        np.shape(rows) if reduction == NONE else (), (len(rows), 4), (4,), ()
    )
    return {
        "grad_output": g.astype(kind),
        "self": x.astype(kind),
        "target": np.asarray(rows),
        "weight": weight.astype(kind),
        "total_weight": total.astype(kind),
    }


def torch_gradient(tensors: dict[str, Any], reduction: int, ignore_index: int) -> Any:
    g, x, target, weight, total = tensors.values()
    given = (g, x, target, weight, reduction, ignore_index, total)
    return aten("nll_loss_backward", *map(np.asarray, given[:4]), *given[4:6], np.asarray(total))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, "
        "const aclTensor* totalWeight, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910),
    typed=FLOAT_TENSORS,
    attributes={"reduction": NONE, "ignore_index": -100},
    shapes={
        "grad_output": (6,),
        "self": (6, 4),
        "target": (6,),
        "weight": (4,),
        "total_weight": (),
    },
    values={"target": labels(4), "total_weight": between(1, 2)},
    torch=aten_of(nll_loss_backward, "nll_loss_backward"),
    calls=(
        *every(reduction=(NONE,), ignore_index=(-100, 2, 0)),
        *every({"grad_output": ()}, reduction=(MEAN, SUM), ignore_index=(-100, 2, 0)),
    ),
    casts=(*FLOATS, np.float64, np.complex64),
)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_a_single_row_of_classes_takes_a_label_of_rank_0(reduction: int) -> None:
    tensors = sample(SUM) | {"self": np.zeros(4), "target": np.array(2)}
    found = compute(nll_loss_backward, **tensors, reduction=reduction, ignore_index=-100)
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction, -100), rtol=1e-15)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_labels_of_every_integer_type_mean_the_same(kind: Any) -> None:
    tensors = sample(NONE, kind=np.float32)
    run = {"reduction": NONE, "ignore_index": 3}
    found = LOCAL.run(nll_loss_backward, **tensors | {"target": LABELS.astype(kind)}, **run)
    np.testing.assert_array_equal(found, LOCAL.run(nll_loss_backward, **tensors, **run))


@pytest.mark.parametrize("label", [-1, 4, -100, 2**32 + 1, -(2**63), 2**63 - 1])
def test_a_label_that_is_no_class_leaves_its_row_0(label: int) -> None:
    tensors = sample(NONE, np.array([1, label, 3]), np.float32)
    found = LOCAL.run(nll_loss_backward, **tensors, reduction=NONE, ignore_index=7)
    assert not found[1].any()
    assert found[0, 1] == -tensors["grad_output"][0] * tensors["weight"][1]
    assert found[2, 3] == -tensors["grad_output"][2] * tensors["weight"][3]
    assert np.count_nonzero(found) == 2


def test_the_total_weight_is_used_as_given_and_for_mean_only() -> None:
    tensors = sample(SUM, np.array([1]), np.float32) | {"total_weight": np.float32(0)}
    tensors |= {"grad_output": np.float32(2), "weight": np.array([1, -3, 0, 1], np.float32)}
    mean = LOCAL.run(nll_loss_backward, **tensors, reduction=MEAN, ignore_index=-100)
    assert mean.tolist() == [[0, np.inf, 0, 0]]  # -(2 / 0) * -3
    by_sum = LOCAL.run(nll_loss_backward, **tensors, reduction=SUM, ignore_index=-100)
    assert by_sum.tolist() == [[0, 6, 0, 0]]


@pytest.mark.parametrize("value", [np.inf, -np.inf, NAN])
def test_a_gradient_that_is_no_number_stays_in_its_row(value: float) -> None:
    tensors = sample(NONE, np.array([1, 0, 1]), np.float32)
    tensors |= {"grad_output": np.array([1, value, value], np.float32)}
    tensors |= {"weight": np.ones(4, np.float32), "self": np.full((3, 4), NAN, np.float32)}
    found = LOCAL.run(nll_loss_backward, **tensors, reduction=NONE, ignore_index=0)
    np.testing.assert_array_equal(found, [[0, -1, 0, 0], [0, 0, 0, 0], [0, -value, 0, 0]])


@pytest.mark.parametrize("of", [(0, 4), (3, 0), (0,)])
@pytest.mark.parametrize("reduction", [MEAN, SUM])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...], reduction: int) -> None:
    tensors = sample(reduction, kind=np.float16) | {
        "self": np.zeros(of, np.float16),
        "target": np.zeros(of[:-1], np.int64),
        "weight": np.zeros(of[-1:], np.float16),
    }
    found = LOCAL.run(nll_loss_backward, **tensors, reduction=reduction, ignore_index=-100)
    assert (found.shape, found.dtype) == (of, np.float16)
