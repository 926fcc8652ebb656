"""aclnnCrossEntropyLossGrad: prototype, values against torch, layouts and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.declare.facts import Facts
from npucall.errors import ArgumentError
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad

from .cross_entropy import TABLE, TABLE_950, weights
from .gradients import FLOATS, LOCAL, title
from .subject import WITH_BF16, Subject, every, labels, logarithms
from .ulp import SINGLE_NOISE, assert_within, ulp

LABELS = np.array([2, 0, 1, 3, 2, 0])
REDUCTIONS = ("none", "mean", "sum")
ASCEND_950 = npucall_client.connect("local:", soc="Ascend950PR_9589")


def sample(
    reduction: str, labels: Any = LABELS, kind: Any = np.float64, *, weighted: bool = True
) -> dict[str, Any]:
    """The weights are of float32, as the operator wants them."""
    random = np.random.default_rng(2)
    logits = random.uniform(-3, 3, (len(labels), 4))
    sums = np.log(np.exp(logits).sum(1, keepdims=True))
    tensors = {
        "grad_loss": np.asarray(random.uniform(-2, 2, labels.shape if reduction == "none" else ())),
        "log_prob": logits - sums,
    }
    tensors = {name: array.astype(kind) for name, array in tensors.items()}
    weight = {"weight": random.uniform(0.5, 2, 4).astype(np.float32)} if weighted else {}
    return tensors | {"target": labels} | weight


def torch_gradient(tensors: dict[str, Any], **options: Any) -> Any:
    """What autograd finds in float64: the log-softmax of log-probabilities is those themselves."""
    torch = pytest.importorskip("torch")
    logits = torch.tensor(tensors["log_prob"].astype(np.float64), requires_grad=True)
    weight = tensors.get("weight")
    loss = torch.nn.functional.cross_entropy(
        logits,
        torch.tensor(np.asarray(tensors["target"], np.int64)),
        None if weight is None else torch.tensor(weight.astype(np.float64)),
        **options,
    )
    upstream = torch.tensor(tensors["grad_loss"].astype(np.float64)).expand_as(loss)
    return torch.autograd.grad(loss, logits, upstream)[0].numpy()


def run(tensors: dict[str, Any], client: Any = LOCAL, **attributes: Any) -> Any:
    return client.run(cross_entropy_loss_grad, **tensors, **attributes)


def terms(tensors: dict[str, Any], *_: Any, **__: Any) -> Any:
    """At most |grad_loss| * weight * (1 + p)."""
    return 2 * np.abs(tensors["grad_loss"]).max() * np.max(tensors.get("weight", 1))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradLoss, const aclTensor* logProb, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* gradZlossOptional, "
        "const aclTensor* lseForZlossOptional, char* reductionOptional, int64_t ignoreIndex, "
        "double labelSmoothing, double lseSquareScaleForZloss, const aclTensor* out"
    ),
    documented=WITH_BF16,
    legacy=(),
    typed=("grad_loss", "log_prob", "out"),
    tables=(TABLE_950,),
    attributes={"reduction": "mean", "ignore_index": -100},
    shapes={"grad_loss": (), "log_prob": (6, 4), "target": (6,), "weight": (4,)},
    values={"log_prob": logarithms, "target": labels(4), "weight": weights},
    absent=("grad_zloss", "lse_for_zloss"),
    torch=torch_gradient,
    calls=(
        *every(
            *({"grad_loss": (6,)},),
            without=((), ("weight",)),
            reduction=("none",),
            ignore_index=(-100, 2, 0),
        ),
        *every(without=((), ("weight",)), reduction=("mean", "sum"), ignore_index=(-100, 2, 0)),
    ),
    noise=terms,
)


@pytest.mark.torch
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("smoothing", [0.125, 0.9, 1.0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_smoothed_labels_have_torchs_gradient(
    reduction: str, smoothing: float, weighted: bool
) -> None:
    tensors = sample(reduction, weighted=weighted)
    options: Any = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 2}
    facts = Facts({}, np.dtype(np.float64))
    found = cross_entropy_loss_grad.formula(facts, **tensors, **options)
    expected = torch_gradient(tensors, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_rounded_the_gradient_is_within_an_ulp_of_the_exact_one(
    reduction: str, kind: Any, smoothing: float
) -> None:
    tensors = sample(reduction, kind=kind)
    options: Any = {"reduction": reduction, "ignore_index": 0, "label_smoothing": smoothing}
    found = run(tensors, ASCEND_950, **options)
    assert found.dtype == kind
    wide = {n: a.astype(np.float64) if a.dtype == kind else a for n, a in tensors.items()}
    exact = cross_entropy_loss_grad.formula(Facts({}, np.dtype(np.float64)), **wide, **options)
    # Terms of at most |grad_loss| * weight * (1 + p), and of the sum of all four weights.
    terms = 2 * np.abs(wide["grad_loss"]).max() * tensors["weight"].sum() * 2
    assert_within(found, exact, ulp(exact, kind) + SINGLE_NOISE * terms)


@pytest.mark.parametrize("kind", [np.float16, np.float32], ids=title)
def test_the_weight_is_not_rounded_to_the_dtype_of_the_others(kind: Any) -> None:
    weight = np.array([2**-26, 1, 1, 1], np.float32)  # FLOAT16's smallest number is 2^-24
    tensors = {"grad_loss": np.array(2**11), "log_prob": np.full((1, 4), -np.inf)}
    tensors = {name: array.astype(kind) for name, array in tensors.items()}
    found = run(tensors, target=np.array([0]), weight=weight, reduction="sum")
    assert found[0, 0] == -(2.0**-15)


@pytest.mark.parametrize("given", [{}, {"reduction": None}], ids=["left out", "null"])
def test_an_absent_reduction_means_mean(given: dict[str, Any]) -> None:
    tensors = sample("mean", kind=np.float32)
    np.testing.assert_array_equal(run(tensors, **given), run(tensors, reduction="mean"))


@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_if_no_row_counts_the_gradient_is_0(reduction: str, ignored: int) -> None:
    tensors = sample(reduction, np.full(6, ignored), np.float32)
    tensors["grad_loss"] = np.full_like(tensors["grad_loss"], np.nan)
    assert not run(tensors, reduction=reduction, ignore_index=ignored).any()


@pytest.mark.parametrize("label", [-1, 4, -100, 2**32, -(2**63)])
def test_a_label_that_is_no_class_is_refused_when_its_value_is_seen(label: int) -> None:
    tensors = sample("mean", np.array([0, label, 3]), np.float32)
    with pytest.raises(ArgumentError, match=f"labels from 0 to 3, found {label}") as caught:
        run(tensors, ignore_index=7)
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, ("target",))
    assert caught.value.details["operator"] == "aclnnCrossEntropyLossGrad"
    assert caught.value.details["phase"] == "run"


def test_a_label_that_is_no_class_is_refused_by_a_server_too(client: Any) -> None:
    tensors = sample("mean", np.array([0, 4, 3]), np.float32)
    with pytest.raises(ArgumentError) as caught:
        run(tensors, client)
    assert type(caught.value) is ArgumentError
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, ("target",))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_is_no_number_stays_in_its_row(value: float) -> None:
    tensors = sample("none", np.array([1, 0, 1]), np.float32)
    tensors["grad_loss"] = np.array([1, value, value], np.float32)
    found = run(tensors, reduction="none", ignore_index=0)
    assert np.isfinite(found[0]).all()
    assert not found[1].any()
    assert not np.isfinite(found[2]).any()


@pytest.mark.parametrize("of", [(0, 4), (3, 0)])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...]) -> None:
    log_prob, target = np.zeros(of, np.float16), np.zeros(of[0], np.int64)
    found = run({"grad_loss": np.float16(1), "log_prob": log_prob, "target": target})
    assert (found.shape, found.dtype) == (of, np.float16)


def test_labels_of_int32_mean_the_same() -> None:
    tensors = sample("mean", kind=np.float32)
    found = run(tensors | {"target": LABELS.astype(np.int32)}, ASCEND_950)
    np.testing.assert_array_equal(found, run(tensors))
