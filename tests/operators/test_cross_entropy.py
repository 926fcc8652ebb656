"""The cross entropy and its gradient: rows that do not count, long rows, what is not written."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.declare.cuts import BLOCK
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad

from .calls import INF, LOCAL, NAN, run


def logits(target: Any = (2, 0), **changes: Any) -> dict[str, Any]:
    """Inputs of the loss of two rows of three classes."""
    return {
        "input": np.array([[1, 2, 3], [0, -1, 0.5]], np.float32),
        "target": np.asarray(target),
        "weight": np.array([0.5, 2, 3], np.float32),
        **changes,
    }


def gradients(target: Any, g: Any) -> dict[str, Any]:
    """Inputs of the gradient, of rows of four classes."""
    raw = np.random.default_rng(2).uniform(-3, 3, (len(target), 4))
    log_prob = raw - np.log(np.exp(raw).sum(1, keepdims=True))
    return {
        "grad_loss": np.asarray(g, np.float32),
        "log_prob": log_prob.astype(np.float32),
        "target": np.asarray(target),
    }


def test_outputs_of_the_z_loss_are_zeros_of_any_shape() -> None:
    outputs = {n: np.full((2, 3), 7, np.float32) for n in ("zloss_out", "lse_for_zloss_out")}
    run(cross_entropy_loss, logits(), on=LOCAL.options(outputs=outputs))
    assert not any(array.any() for array in outputs.values())
    empty = {"input": np.zeros((0, 3), np.float32), "target": np.zeros(0, np.int64)}
    outputs = {n: np.full(2, 7, np.float32) for n in outputs}
    loss, *_ = run(cross_entropy_loss, empty, on=LOCAL.options(outputs=outputs))
    assert np.isnan(loss)
    assert not any(array.any() for array in outputs.values())


def test_a_row_that_does_not_count_has_a_log_softmax_and_no_loss() -> None:
    tensors = logits(input=np.array([[NAN, 0, 0], [0, 0, 0]], np.float32), weight=None)
    losses, log_prob, *_ = run(cross_entropy_loss, tensors, reduction="none", ignore_index=2)
    assert np.isnan(log_prob[0]).all()
    np.testing.assert_array_equal(losses, np.array([0, np.log(3)], np.float32))


@each("ignored", [-100, 2, 2**40, -(2**63)])
def test_if_no_row_counts_the_mean_is_nan_and_the_sum_0(ignored: int) -> None:
    tensors = logits(np.full(2, ignored))
    loss = {
        reduction: run(cross_entropy_loss, tensors, reduction=reduction, ignore_index=ignored)[0]
        for reduction in ("mean", "sum", "none")
    }
    assert np.isnan(loss["mean"])
    assert loss["sum"] == 0
    assert not loss["none"].any()


def test_the_loss_is_of_logarithms_that_are_not_rounded() -> None:
    tensors = {"input": np.zeros((1000, 3), np.float16), "target": np.zeros(1000, np.int64)}
    found = run(cross_entropy_loss, tensors, reduction="sum")
    assert found[0] == np.float16(1000 * np.log(3))


@each("classes", [BLOCK, 2 * BLOCK + 7])
def test_rows_longer_than_a_block_have_one_sum(classes: int) -> None:
    random = np.random.default_rng(7)
    long = random.uniform(-4, 4, (2, classes))
    long[0, -1] = 9
    target, weight = np.array([classes - 1, 3]), random.uniform(1, 2, classes).astype(np.float32)
    found = compute(cross_entropy_loss, long, target, weight, reduction="none", label_smoothing=0.5)
    expected = long - np.log(np.exp(long).sum(1, keepdims=True))
    np.testing.assert_allclose(found[1], expected, rtol=1e-12)
    own = weight[target] * expected[[0, 1], target]
    smooth = (weight * expected).sum(1) / classes
    np.testing.assert_allclose(found[0], -(own + smooth) / 2, rtol=1e-12)


@each("kind", [np.float16, np.float32])
def test_the_weight_is_not_rounded_to_the_dtype_of_the_others(kind: Any) -> None:
    weight = np.array([2**-26, 1, 1, 1], np.float32)  # FLOAT16's smallest number is 2^-24
    tensors = {"grad_loss": np.array(2**11, kind), "log_prob": np.full((1, 4), -INF, kind)}
    tensors |= {"target": np.array([0]), "weight": weight}
    found = run(cross_entropy_loss_grad, tensors, reduction="sum")
    assert found[0, 0] == -(2.0**-15)


@each("reduction g", [("none", [NAN] * 6), ("mean", NAN), ("sum", NAN)])
@each("ignored", [-100, 2])
def test_if_no_row_counts_the_gradient_is_0(reduction: str, g: Any, ignored: int) -> None:
    tensors = gradients(np.full(6, ignored), g)
    options: Any = {"reduction": reduction, "ignore_index": ignored}
    assert not run(cross_entropy_loss_grad, tensors, **options).any()


@each("value", [INF, -INF, NAN])
def test_a_gradient_that_is_no_number_stays_in_its_row(value: float) -> None:
    tensors = gradients([1, 0, 1], [1, value, value])
    found = run(cross_entropy_loss_grad, tensors, reduction="none", ignore_index=0)
    assert np.isfinite(found[0]).all()
    assert not found[1].any()
    assert not np.isfinite(found[2]).any()
