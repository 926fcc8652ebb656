"""Softmax, log-softmax and their gradients: what overflows on the way, and empty calls."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.errors import PARAM_INVALID, AttributeValueError
from npucall.operators.log_softmax import log_softmax
from npucall.operators.log_softmax_backward import log_softmax_backward
from npucall.operators.softmax import softmax
from npucall.operators.softmax_backward import softmax_backward

from .calls import FLOATS, INF, LOCAL, NAN, refusal, run

GRADIENTS = (softmax_backward, log_softmax_backward)


def test_the_largest_floats_do_not_overflow() -> None:
    top = np.finfo(np.float32).max
    found = LOCAL.run(softmax, np.array([top, -top, top], np.float32), dim=0)
    assert found.tolist() == [0.5, 0, 0.5]


@each("of_x", [*FLOATS, np.float64])
@each("of_out", [*FLOATS, np.float64])
def test_for_its_logarithm_self_is_converted_to_the_dtype_of_the_output_first(
    of_x: Any, of_out: Any
) -> None:
    x = np.random.default_rng(3).uniform(-9, 9, (5, 7)).astype(of_x)
    found = run(log_softmax, {"self": x}, out=np.zeros(x.shape, of_out), dim=1)
    expected = run(log_softmax, {"self": x.astype(of_out)}, dim=1)
    assert expected.dtype == of_out
    np.testing.assert_array_equal(found, expected)


def test_a_float_beyond_float16_is_infinite_before_it_is_computed_with() -> None:
    x = {"self": np.array([70000, 0], np.float32)}
    found = run(log_softmax, x, out=np.zeros(2, np.float16), dim=0)
    np.testing.assert_array_equal(found, np.array([NAN, NAN], np.float16))


def test_an_empty_self_leaves_zeros_in_an_output_that_has_elements() -> None:
    nothing = {"self": np.empty((0, 5), np.int32)}  # which is no dtype of its
    assert not run(softmax, nothing, out=np.full((2, 3), 7, np.float32), dim=9).any()


def test_an_empty_self_ends_the_checks_behind_the_nulls() -> None:
    empty = {"self": {"shape": (0, 3)}}
    assert refusal(softmax, {**empty, "dim": 9}) is None
    missing = refusal(softmax, {**empty, "out": None})
    assert missing is not None
    assert missing[2] == ("out",)


def test_an_empty_self_ends_the_checks_of_the_logarithm_behind_all_of_them() -> None:
    empty = {"self": {"shape": (0, 3)}, "out": {"shape": (0, 3)}}
    assert refusal(log_softmax, empty) is None
    assert refusal(log_softmax, {**empty, "dim": 9}) is not None
    assert refusal(log_softmax, {**empty, "out": {"shape": (0, 4)}}) is not None


@each("dim passes", [(-1, True), (0, True), (1, False), (-2, False)])
@each("operator", GRADIENTS)
def test_rank_0_counts_as_rank_1(operator: Any, dim: int, passes: bool) -> None:
    changes = {name: {"shape": ()} for name in ("grad_output", "output", "out")}
    answer = refusal(operator, {**changes, "dim": dim})
    assert answer == (None if passes else (AttributeValueError, PARAM_INVALID, ("dim",)))


def test_gradients_of_float16_are_added_up_in_float32() -> None:
    # 300 * 256 + 300 * 256 is beyond FLOAT16; times 2^-8 it is not: g y - sum y
    g, y = np.array([[300, 300, 0]], np.float16), np.array([[256, 256, 2**-8]], np.float16)
    found = LOCAL.run(softmax_backward, g, y, dim=1)
    np.testing.assert_array_equal(found, np.array([[-INF, -INF, -600]], np.float16))
    # 60000 + 60000 is beyond FLOAT16; a quarter of it is not.
    g, y = np.full((1, 2), 60000, np.float16), np.log([[0.25, 0.25]]).astype(np.float16)
    found = LOCAL.run(log_softmax_backward, g, y, dim=1)
    np.testing.assert_allclose(found, np.full((1, 2), 30000), rtol=1e-3)
