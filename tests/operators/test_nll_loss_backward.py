"""aclnnNLLLossBackward: prototype, values against torch, layouts and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators.nll_loss_backward import nll_loss_backward

from .arrangements import (
    ASCEND_310,
    LAYOUTS,
    NEWER,
    SOCS,
    assert_gaps_survive,
    assert_layout_does_not_show,
    dtypes_taken,
)
from .gradients import FLOATS, LOCAL, NAN, assert_rounded, aten, drawn, title, wide
from .nll import FLOAT_TENSORS, MEAN, NONE, SUM, TABLE

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


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.1
    assert nll_loss_backward.prototype == (
        "aclnnStatus aclnnNLLLossBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, "
        "const aclTensor* totalWeight, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("ignore_index", [-100, 2, 0])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_in_float64_the_gradient_is_torchs(reduction: int, ignore_index: int) -> None:
    tensors = sample(reduction)
    found = compute(nll_loss_backward, **tensors, reduction=reduction, ignore_index=ignore_index)
    expected = torch_gradient(tensors, reduction, ignore_index)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_a_single_row_of_classes_takes_a_label_of_rank_0(reduction: int) -> None:
    tensors = sample(SUM) | {"self": np.zeros(4), "target": np.array(2)}
    found = compute(nll_loss_backward, **tensors, reduction=reduction, ignore_index=-100)
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction, -100), rtol=1e-15)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(reduction: int, kind: Any) -> None:
    tensors = sample(reduction, kind=kind)
    found = LOCAL.run(nll_loss_backward, **tensors, reduction=reduction, ignore_index=0)
    exact = dict(zip(tensors, wide(*tensors.values()), strict=True)) | {"target": LABELS}
    assert_rounded(found, torch_gradient(exact, reduction, 0), kind)


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


@pytest.mark.parametrize("kind", [*FLOATS, np.float64, np.complex64], ids=title)
def test_the_result_is_cast_to_the_dtype_of_the_output(kind: Any) -> None:
    tensors = sample(SUM, kind=np.float16)
    out = np.zeros((6, 4), kind)
    client = LOCAL.options(outputs={"out": out})
    client.run(nll_loss_backward, **tensors, reduction=SUM, ignore_index=-100)
    half = LOCAL.run(nll_loss_backward, **tensors, reduction=SUM, ignore_index=-100)
    np.testing.assert_array_equal(out, half.astype(kind))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_memory_order_of_the_inputs_does_not_show(layout: str) -> None:
    tensors = sample(NONE, kind=np.float32)
    assert_layout_does_not_show(
        nll_loss_backward, tensors, layout, reduction=NONE, ignore_index=-100
    )


def test_an_output_with_gaps_is_written_between_them() -> None:
    tensors = sample(MEAN, kind=np.float32)
    assert_gaps_survive(nll_loss_backward, tensors, reduction=MEAN, ignore_index=2)


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


@pytest.mark.parametrize("soc", SOCS)
def test_products_take_the_dtypes_of_the_documents(soc: str) -> None:
    expected = {"FLOAT", "FLOAT16"} | ({"BF16"} if soc in NEWER else set())
    taken = dtypes_taken(TABLE, FLOAT_TENSORS, soc)
    assert taken == (expected if soc != ASCEND_310 else set())
