"""aclnnCrossEntropyLoss: prototype, values against torch, labels, and what is not written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.declare.cuts import BLOCK
from npucall.errors import ArgumentError
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad

from .cross_entropy import FORWARD, FORWARD_950, ON_950, weights
from .faults import Fault
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import WITH_BF16, Subject, every, labels

REDUCTIONS = ("none", "mean", "sum")
ASCEND_950 = npucall_client.connect("local:", soc="Ascend950PR_9589")
EXAMPLE = {
    "input": np.array([[1, 2, 3], [0, -1, 0.5]]),
    "target": np.array([2, 0]),
    "weight": np.array([0.5, 2, 3], np.float32),
}


def torch_says(tensors: dict[str, Any], **options: Any) -> Any:
    """Loss, log-softmax, and two outputs without elements."""
    import torch

    logits, weight = torch.tensor(tensors["input"]), tensors.get("weight")
    loss = torch.nn.functional.cross_entropy(
        logits,
        torch.tensor(np.asarray(tensors["target"], np.int64)),
        None if weight is None else torch.tensor(weight.astype(np.float64)),
        **options,
    )
    nothing = np.zeros(0)
    return np.atleast_1d(loss), logits.log_softmax(1).numpy(), nothing, nothing


def sizes(tensors: dict[str, Any], found: Any, **options: Any) -> Any:
    """Numbers of up to twice the logits cancel in each logarithm, and losses are added up."""
    logits = np.abs(tensors["input"]).max(1)
    heavy = np.max(tensors.get("weight", 1))
    each = 2 * logits * heavy + np.zeros_like(logits)
    whole = {"none": each, "sum": each.sum()}.get(options["reduction"], each.max() * heavy)
    return whole, np.broadcast_to(2 * logits[:, np.newaxis], found[1].shape), 0, 0


SUBJECT = Subject(
    FORWARD,
    # From the header [src:cann-headers]
    (
        "const aclTensor* input, const aclTensor* target, const aclTensor* weightOptional, "
        "char* reductionOptional, int64_t ignoreIndex, double labelSmoothing, "
        "double lseSquareScaleForZloss, bool returnZloss, const aclTensor* lossOut, "
        "const aclTensor* logProbOut, const aclTensor* zlossOut, const aclTensor* lseForZlossOut"
    ),
    documented=WITH_BF16,
    legacy=(),
    typed=("input", *(output.name for output in cross_entropy_loss.outputs)),
    tables=(FORWARD_950,),
    attributes={"reduction": "mean", "ignore_index": -100},
    shapes={"input": (6, 4), "target": (6,), "weight": (4,)},
    values={"target": labels(4), "weight": weights},
    torch=torch_says,
    calls=(
        *every(without=((), ("weight",)), reduction=REDUCTIONS, ignore_index=(-100, 2)),
        *every(
            without=((), ("weight",)),
            reduction=REDUCTIONS,
            ignore_index=(0,),
            label_smoothing=(0.125, 1.0),
        ),
    ),
    noise=sizes,
)


def run(tensors: dict[str, Any], client: Any = LOCAL, **attributes: Any) -> Any:
    return client.run(cross_entropy_loss, **tensors, **attributes)


def single(**changes: Any) -> dict[str, Any]:
    """The worked example's tensors in float32."""
    return EXAMPLE | {"input": EXAMPLE["input"].astype(np.float32)} | changes


def test_the_worked_example_comes_out(client: Any) -> None:
    # F7 of [src:worked-examples]
    log_prob = [[-2.40760596, -1.40760596, -0.40760596], [-1.10413061, -2.10413061, -0.60413061]]
    for attributes, expected in (
        ({"reduction": "none"}, [1.22281789, 0.55206530]),
        ({}, [0.50710948]),
        ({"reduction": None}, [0.50710948]),
        ({"reduction": "sum"}, [1.77488320]),
        ({"reduction": "none", "label_smoothing": 0.1}, [1.27526386, 0.71594938]),
        ({"label_smoothing": 0.1}, [0.56891807]),
    ):
        loss, logarithms, *nothing = compute(cross_entropy_loss, **EXAMPLE, **attributes)  # type: ignore[arg-type]
        np.testing.assert_allclose(loss, expected, atol=5e-9, rtol=0)
        np.testing.assert_allclose(logarithms, log_prob, atol=5e-9, rtol=0)
        assert [array.shape for array in nothing] == [(0,), (0,)]
        loss, logarithms, *_ = run(single(), client, **attributes)
        np.testing.assert_allclose(loss, expected, rtol=3e-7)
        np.testing.assert_allclose(logarithms, log_prob, rtol=3e-7)


def test_outputs_of_the_z_loss_are_zeros_of_any_shape(client: Any) -> None:
    outputs = {n: np.full((2, 3), 7, np.float32) for n in ("zloss_out", "lse_for_zloss_out")}
    run(single(), client.options(outputs=outputs))
    assert not any(array.any() for array in outputs.values())
    empty = {"input": np.zeros((0, 3), np.float32), "target": np.zeros(0, np.int64)}
    outputs = {n: np.full(2, 7, np.float32) for n in outputs}
    loss, *_ = run(empty, client.options(outputs=outputs))
    assert np.isnan(loss)
    assert not any(array.any() for array in outputs.values())


@pytest.mark.parametrize("fault", ON_950[:1], ids=str)
def test_an_ascend_950_takes_labels_of_int32(fault: Fault) -> None:
    assert FORWARD.refusal(fault, soc="Ascend950PR_9589") is None
    found = run(single(target=np.array([2, 0], np.int32)), ASCEND_950)
    np.testing.assert_array_equal(found[0], run(single())[0])


# A row of logits, its log-softmax, and its loss if the label is 0 [src:cross-entropy].
ROWS = [
    ([INF, 0, 0], [NAN] * 3, NAN),
    ([NAN, 0, 0], [NAN] * 3, NAN),
    ([0, NAN, 0], [NAN] * 3, NAN),
    ([-INF] * 3, [NAN] * 3, NAN),
    ([-INF, 0, 0], [-INF, -np.log(2), -np.log(2)], INF),
    ([0, -INF, 0], [-np.log(2), -INF, -np.log(2)], np.log(2)),
    ([1000, 0, -1000], [0, -1000, -2000], 0),
]


def assert_same(found: Any, expected: Any) -> None:
    """NumPy does not compare NaN of BF16."""
    rounded = expected.astype(np.float32).astype(found.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_what_is_no_number_stays_in_its_row(kind: Any) -> None:
    rows = np.array([[1, 1, 1], *(row for row, *_ in ROWS)]).astype(kind)
    target = np.zeros(len(rows), np.int64)
    losses, log_prob, *_ = run({"input": rows, "target": target}, reduction="none")
    expected = np.array([[-np.log(3)] * 3, *(row for _, row, _ in ROWS)])
    assert_same(log_prob, expected)
    expected = np.array([np.log(3), *(loss for *_, loss in ROWS)])
    assert_same(losses, expected)


def test_a_row_that_does_not_count_has_a_log_softmax_and_no_loss() -> None:
    tensors = single(input=np.array([[NAN, 0, 0], [0, 0, 0]], np.float32), weight=None)
    losses, log_prob, *_ = run(tensors, reduction="none", ignore_index=2)
    assert np.isnan(log_prob[0]).all()
    np.testing.assert_array_equal(losses, np.array([0, np.log(3)], np.float32))


@pytest.mark.parametrize("ignored", [-100, 2, 2**40, -(2**63)])
def test_if_no_row_counts_the_mean_is_nan_and_the_sum_0(ignored: int) -> None:
    tensors = single(target=np.full(2, ignored))
    assert np.isnan(run(tensors, ignore_index=ignored)[0])
    assert run(tensors, ignore_index=ignored, reduction="sum")[0] == 0
    assert not run(tensors, ignore_index=ignored, reduction="none")[0].any()


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_of_no_rows_the_mean_is_nan_and_the_sum_0(kind: Any) -> None:
    tensors = {"input": np.zeros((0, 3), kind), "target": np.zeros(0, np.int64)}
    for reduction, expected in (("mean", [NAN]), (None, [NAN]), ("sum", [0]), ("none", [])):
        loss, log_prob, *_ = run(tensors, reduction=reduction)
        np.testing.assert_array_equal(loss.astype(np.float32), expected)
        assert (loss.dtype, log_prob.shape, log_prob.dtype) == (kind, (0, 3), kind)


def test_the_loss_is_of_logarithms_that_are_not_rounded() -> None:
    logits = np.array([[0, 0, 0]] * 1000, np.float16)
    tensors = {"input": logits, "target": np.zeros(1000, np.int64)}
    assert run(tensors, reduction="sum")[0] == np.float16(1000 * np.log(3))


@pytest.mark.parametrize("label", [-1, 3, -100, 2**32, -(2**63)])
def test_a_label_that_is_no_class_is_refused_when_its_value_is_seen(label: int) -> None:
    with pytest.raises(ArgumentError, match=f"labels from 0 to 2, found {label}") as caught:
        run(single(target=np.array([0, label])), ignore_index=7)
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, ("target",))
    assert caught.value.details["phase"] == "run"


@pytest.mark.parametrize("classes", [BLOCK, 2 * BLOCK + 7])
def test_rows_longer_than_a_block_have_one_sum(classes: int) -> None:
    random = np.random.default_rng(7)
    logits = random.uniform(-4, 4, (2, classes))
    logits[0, -1] = 9
    target, weight = np.array([classes - 1, 3]), random.uniform(1, 2, classes).astype(np.float32)
    found = compute(
        cross_entropy_loss, logits, target, weight, reduction="none", label_smoothing=0.5
    )
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(found[1], expected, rtol=1e-12)
    own = weight[target] * expected[[0, 1], target]
    smooth = (weight * expected).sum(1) / classes
    np.testing.assert_allclose(found[0], -(own + smooth) / 2, rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("smoothing", "ignored"), [(0.0, 2), (0.25, 2), (1.0, -100)])
def test_loss_and_gradient_one_behind_the_other_are_autograds(
    reduction: str, smoothing: float, ignored: int
) -> None:
    torch = pytest.importorskip("torch")
    tensors = SUBJECT.draw(np.float64)
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignored}
    on_950 = _computing_as_950()
    loss, log_prob, *_ = on_950(cross_entropy_loss, **tensors, **options)
    g = np.random.default_rng(6).uniform(-1, 1, loss.shape)
    found = on_950(
        cross_entropy_loss_grad,
        grad_loss=g,
        log_prob=log_prob,
        target=tensors["target"],
        weight=tensors["weight"],
        **options,
    )
    leaf = torch.tensor(tensors["input"], requires_grad=True)
    weight = torch.tensor(tensors["weight"].astype(np.float64))
    of_torch = torch.nn.functional.cross_entropy(
        leaf, torch.tensor(tensors["target"]), weight, **options
    )
    (expected,) = torch.autograd.grad(of_torch, leaf, torch.tensor(g).reshape(of_torch.shape))
    np.testing.assert_allclose(loss.reshape(of_torch.shape), of_torch.detach(), rtol=1e-13)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


def _computing_as_950() -> Any:
    """The formulas in float64: the gradient smooths labels on an Ascend 950 alone."""
    from npucall.declare.facts import Facts

    facts = Facts({}, np.dtype(np.float64))
    return lambda operator, **given: operator.formula(facts, **given)
