"""The gradient of CTC: against all paths, in each form of its targets, what it takes as given."""

from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.errors import PARAM_INVALID, AttributeValueError
from npucall.operators.ctc_loss_backward import ctc_loss_backward

from .calls import INF, NAN, refusal, run
from .ctc import by_paths, call, in_a_row, log_softmax, rounded

# Repetitions, one label, none, the shortest path that there is, unused steps.
LABELS = ([1, 1, 2], [3], [], [2, 1, 3, 1], [1, 2])
STEPS = (5, 3, 2, 4, 5)


def sample(blank: int = 0) -> dict[str, Any]:
    names = np.roll(np.arange(4), blank)  # label 0 is never used, so it can stand for the blank
    labels = [[int(np.flatnonzero(names == label)[0]) for label in item] for item in LABELS]
    return call(log_softmax((5, 5, 4)), labels, STEPS, int(np.flatnonzero(names == 0)[0]))


@each("blank", [0, 1, 3])
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


def test_double_is_computed_in_double() -> None:
    found = run(ctc_loss_backward, sample())
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, compute(ctc_loss_backward, **sample()))


def test_targets_of_every_dtype_and_one_behind_the_other_mean_the_same() -> None:
    arguments = rounded(sample(), np.float32)
    expected = run(ctc_loss_backward, arguments)
    for kind in (np.int32, np.float32, np.float16):
        converted = {**arguments, "targets": arguments["targets"].astype(kind)}
        np.testing.assert_array_equal(run(ctc_loss_backward, converted), expected)
    np.testing.assert_array_equal(run(ctc_loss_backward, in_a_row(arguments)), expected)


def test_targets_of_bool_are_classes_0_and_1() -> None:
    arguments = rounded(call(log_softmax((4, 1, 2)), [[0, 0]], (4,), blank=1), np.float32)
    converted = {**arguments, "targets": arguments["targets"].astype(bool)}
    expected = run(ctc_loss_backward, arguments)
    np.testing.assert_array_equal(run(ctc_loss_backward, converted), expected)


@each("zero_infinity expected", [(False, NAN), (True, 0.0)])
def test_an_infinite_loss_makes_nan_or_0_in_its_item_alone(
    zero_infinity: bool, expected: float
) -> None:
    # Three equal labels need 5 steps, two blanks between them included.
    arguments = call(log_softmax((4, 2, 3)), [[1, 1, 1], [1, 2]], (4, 4))
    assert arguments["neg_log_likelihood"][0] == INF
    found = compute(ctc_loss_backward, **arguments, zero_infinity=zero_infinity)
    assert np.isfinite(found[:, 1]).all()
    np.testing.assert_array_equal(found[:, 0], expected)


def test_the_loss_is_used_as_it_is_given() -> None:
    arguments = sample()
    arguments["neg_log_likelihood"] = np.full(5, -np.inf)  # then no path has a share
    found = compute(ctc_loss_backward, **arguments)
    expected = arguments["grad_out"][:, np.newaxis] * np.exp(arguments["log_probs"])
    np.testing.assert_array_equal(found[:2], expected[:2])


def test_an_item_without_steps_has_no_gradient() -> None:
    found = compute(ctc_loss_backward, **(sample() | {"input_lengths": (5, 0, 2, 4, 5)}))
    assert not found[:, 1].any()
    others = np.delete(np.arange(5), 1)
    expected = compute(ctc_loss_backward, **sample())
    np.testing.assert_array_equal(found[:, others], expected[:, others])


@each("states longest passes", [(7, 3, True), (8, 3, True), (6, 3, False), (0, 0, False)])
def test_log_alpha_has_room_for_the_longest_labels(states: int, longest: int, passes: bool) -> None:
    changes = {"log_alpha": {"shape": (2, 5, states)}, "target_lengths": (longest, 0)}
    changes |= {"targets": {"shape": (2, 3)}, "input_lengths": (5, 4)}
    changes |= {name: {"shape": (5, 2, 4)} for name in ("log_probs", "out")}
    changes |= {name: {"shape": (2,)} for name in ("grad_out", "neg_log_likelihood")}
    answer = (AttributeValueError, PARAM_INVALID, ("target_lengths", "log_alpha"))
    assert refusal(ctc_loss_backward, changes) == (None if passes else answer)
