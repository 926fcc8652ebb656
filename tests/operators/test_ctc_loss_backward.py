"""aclnnCtcLossBackward: prototype, values against all paths and against torch, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ArgumentError
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .ctc import by_paths, call, in_a_row, log_softmax, rounded
from .ctc_table import FLOAT_TENSORS, TABLE
from .gradients import FLOATS, LOCAL, title
from .subject import THREE, WITH_BF16, Subject
from .ulp import assert_within, ulp

# Repetitions, one label, none, the shortest path that there is, unused steps.
LABELS = ([1, 1, 2], [3], [], [2, 1, 3, 1], [1, 2])
STEPS = (5, 3, 2, 4, 5)
TENSORS = ("grad_out", "log_probs", "targets", "neg_log_likelihood", "log_alpha")


def sample(blank: int = 0) -> dict[str, Any]:
    names = np.roll(np.arange(4), blank)  # label 0 is never used, so it can stand for the blank
    labels = [[int(np.flatnonzero(names == label)[0]) for label in item] for item in LABELS]
    return call(log_softmax((5, 5, 4)), labels, STEPS, int(np.flatnonzero(names == 0)[0]))


def torch_gradient(arguments: dict[str, Any], zero_infinity: bool = False) -> Any:
    """What torch's own pair of operators makes of the arguments, forward results included."""
    torch = pytest.importorskip("torch")
    arguments = arguments | {"targets": np.minimum(arguments["targets"], 3)}  # it looks at all
    given = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    lengths = given["input_lengths"], given["target_lengths"]
    head = given["log_probs"], given["targets"], *lengths
    loss, alpha = torch.ops.aten._ctc_loss(*head, given["blank"], zero_infinity)
    tail = loss, alpha, given["blank"], zero_infinity
    return torch.ops.aten._ctc_loss_backward(given["grad_out"], *head, *tail).numpy()


def tensors_of(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    tensors = {name: arguments[name] for name in TENSORS}
    return tensors, {n: value for n, value in arguments.items() if n not in TENSORS}


def made(kind: Any) -> dict[str, Any]:
    tensors, _ = tensors_of(rounded(sample(), kind))
    return tensors


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOut, const aclTensor* logProbs, const aclTensor* targets, "
        "const aclIntArray* inputLengths, const aclIntArray* targetLengths, "
        "const aclTensor* negLogLikelihood, const aclTensor* logAlpha, int64_t blank, "
        "bool zeroInfinity, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older="FLOAT DOUBLE",
    typed=FLOAT_TENSORS,
    attributes=tensors_of(sample())[1],
    made=made,
)


@pytest.mark.parametrize("blank", [0, 1, 3])
def test_in_float64_the_gradient_is_that_of_all_paths(blank: int) -> None:
    arguments = sample(blank)
    found = compute(ctc_loss_backward, **arguments)
    for n, (steps, length) in enumerate(zip(STEPS, arguments["target_lengths"], strict=True)):
        labels = arguments["targets"][n, :length].tolist()
        loss, gradient = by_paths(arguments["log_probs"][:steps, n], labels, arguments["blank"])
        assert arguments["neg_log_likelihood"][n] == pytest.approx(loss, rel=1e-12)
        expected = arguments["grad_out"][n] * gradient
        np.testing.assert_allclose(found[:steps, n], expected, rtol=1e-11, atol=1e-13)
        assert not found[steps:, n].any()


@pytest.mark.torch
@pytest.mark.parametrize("blank", [0, 2])
def test_in_float64_the_gradient_is_torchs(blank: int) -> None:
    arguments = sample(blank)
    found = compute(ctc_loss_backward, **arguments)
    np.testing.assert_allclose(found, torch_gradient(arguments), rtol=1e-10, atol=1e-13)


@pytest.mark.torch
def test_a_long_item_has_torchs_gradient() -> None:
    random = np.random.default_rng(8)
    labels = [random.integers(1, 30, length).tolist() for length in (40, 1, 25)]
    arguments = call(log_softmax((120, 3, 30)), labels, (120, 120, 60))
    arguments["targets"] = np.minimum(arguments["targets"], 29)
    found = compute(ctc_loss_backward, **arguments)
    expected = torch_of_long(arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


def torch_of_long(arguments: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    leaf = torch.tensor(arguments["log_probs"], requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        leaf,
        torch.tensor(arguments["targets"]),
        torch.tensor(arguments["input_lengths"]),
        torch.tensor(arguments["target_lengths"]),
        reduction="none",
    )
    return torch.autograd.grad(loss, leaf, torch.tensor(arguments["grad_out"]))[0].numpy()


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_gradient_is_within_an_ulp_of_the_exact_one(kind: Any) -> None:
    arguments = rounded(sample(), kind)
    found = LOCAL.run(ctc_loss_backward, **arguments)
    assert found.dtype == kind
    wide = {
        name: value.astype(np.float64) if getattr(value, "dtype", None) == kind else value
        for name, value in arguments.items()
    }
    exact = compute(ctc_loss_backward, **wide)
    assert_within(found, exact, ulp(exact, kind))


def test_double_is_computed_in_double() -> None:
    arguments = sample()
    found = LOCAL.run(ctc_loss_backward, **arguments)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, compute(ctc_loss_backward, **arguments))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32, np.float16])
def test_targets_of_every_dtype_mean_the_same(kind: Any) -> None:
    arguments = rounded(sample(), np.float32)
    expected = LOCAL.run(ctc_loss_backward, **arguments)
    converted = arguments | {"targets": arguments["targets"].astype(kind)}
    np.testing.assert_array_equal(LOCAL.run(ctc_loss_backward, **converted), expected)


def test_targets_of_bool_are_classes_0_and_1() -> None:
    arguments = rounded(call(log_softmax((4, 1, 2)), [[0, 0]], (4,), blank=1), np.float32)
    expected = LOCAL.run(ctc_loss_backward, **arguments)
    converted = arguments | {"targets": arguments["targets"].astype(bool)}
    np.testing.assert_array_equal(LOCAL.run(ctc_loss_backward, **converted), expected)


def test_targets_one_behind_the_other_mean_the_same_as_rows() -> None:
    arguments = rounded(sample(), np.float32)
    found = LOCAL.run(ctc_loss_backward, **in_a_row(arguments))
    np.testing.assert_array_equal(found, LOCAL.run(ctc_loss_backward, **arguments))


@pytest.mark.torch
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_an_infinite_loss_makes_nan_or_0_in_its_item_alone(zero_infinity: bool) -> None:
    # Three equal labels need 5 steps, two blanks between them included.
    arguments = call(log_softmax((4, 2, 3)), [[1, 1, 1], [1, 2]], (4, 4))
    assert arguments["neg_log_likelihood"][0] == np.inf
    found = compute(ctc_loss_backward, **arguments, zero_infinity=zero_infinity)
    assert np.isfinite(found[:, 1]).all()
    np.testing.assert_array_equal(found[:, 0], 0.0 if zero_infinity else np.nan)
    arguments["targets"] = np.minimum(arguments["targets"], 2)
    expected = torch_gradient(arguments, zero_infinity)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_the_loss_is_used_as_it_is_given() -> None:
    arguments = sample()
    arguments["neg_log_likelihood"] = np.full(5, -np.inf)  # then no path has a share
    found = compute(ctc_loss_backward, **arguments)
    expected = arguments["grad_out"][:, np.newaxis] * np.exp(arguments["log_probs"])
    np.testing.assert_array_equal(found[:2], expected[:2])


def test_an_item_without_steps_has_no_gradient() -> None:
    arguments = sample() | {"input_lengths": (5, 0, 2, 4, 5)}
    found = compute(ctc_loss_backward, **arguments)
    assert not found[:, 1].any()
    others = np.delete(np.arange(5), 1)
    expected = compute(ctc_loss_backward, **sample())
    np.testing.assert_array_equal(found[:, others], expected[:, others])


@pytest.mark.parametrize("label", [4, -1, 2**40, -(2**63)])
@pytest.mark.parametrize("arranged", [dict, in_a_row])
def test_a_label_that_is_no_class_is_refused_when_its_value_is_seen(
    arranged: Any, label: int
) -> None:
    arguments = rounded(sample(), np.float32)
    arguments["targets"][3, 3] = label
    with pytest.raises(ArgumentError, match=f"labels from 0 to 3, found {label}") as caught:
        LOCAL.run(ctc_loss_backward, **arranged(arguments))
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, ("targets",))
    assert caught.value.details["phase"] == "run"


@pytest.mark.parametrize("targets", [(0, 3), (0,)])
def test_no_items_give_an_empty_output(targets: tuple[int, ...]) -> None:
    found = LOCAL.run(
        ctc_loss_backward,
        *(np.zeros(0, np.float16), np.zeros((5, 0, 4), np.float16), np.zeros(targets, np.int32)),
        *((), (), np.zeros(0, np.float16), np.zeros((0, 5, 1), np.float16)),
    )
    assert (found.shape, found.dtype) == ((5, 0, 4), np.float16)
