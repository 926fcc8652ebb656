"""The ways to compute the truth: which of them counts, and that they are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rows import each

from npucall.dtypes import BF16, FLOAT, FLOAT16, DType
from npucall_client.conformance.cases.blocks import cases_of
from npucall_client.conformance.cases.calls import MadeCall, call_of
from npucall_client.conformance.judging.truth import LOOPED, TruthError, expected
from npucall_client.conformance.statements.kl_div_backward import KL_DIV_BACKWARD
from npucall_client.conformance.stating import reals
from npucall_client.conformance.stating.given import Given, Terms, largest
from npucall_client.conformance.stating.parts import Setup

if TYPE_CHECKING:
    from npucall_client.conformance.stating.statement import Statement


def call(block: str = "grid", index: int = 0) -> MadeCall:
    return call_of(list(cases_of(KL_DIV_BACKWARD, block))[index], seed=0)


def large() -> MadeCall:
    case = next(c for c in cases_of(KL_DIV_BACKWARD, "size") if c.shapes["self"] == (LOOPED + 1,))
    return call_of(case, seed=0)


def wrong_loops(given: Given) -> Any:
    return KL_DIV_BACKWARD.loops(given) * (1 + 1e-9)


def wrong_arrays(given: Given) -> Terms:
    terms = KL_DIV_BACKWARD.arrays(given)
    assert isinstance(terms, Terms)
    return Terms(terms.value.T, terms.size)


@each(
    "wrong",
    [replace(KL_DIV_BACKWARD, loops=wrong_loops), replace(KL_DIV_BACKWARD, arrays=wrong_arrays)],
)
def test_opinions_that_differ_are_an_error_of_the_suite(wrong: Statement) -> None:
    with pytest.raises(TruthError, match="out"):
        expected(wrong, call())


@pytest.mark.torch
def test_a_third_opinion_that_differs_is_an_error_too() -> None:
    torch = pytest.importorskip("torch")
    wrong = replace(KL_DIV_BACKWARD, torch=lambda k, _: torch.zeros(k["self"].shape))
    with pytest.raises(TruthError, match="torch"):
        expected(wrong, call(), torch=True)
    assert expected(wrong, call(), torch=False)


def test_beyond_4096_elements_loops_are_not_asked() -> None:
    assert expected(replace(KL_DIV_BACKWARD, loops=wrong_loops), large())


def test_what_ends_the_checks_is_zeros() -> None:
    truth = expected(KL_DIV_BACKWARD, call(), filled=0.0)
    np.testing.assert_array_equal(truth["out"].value, np.zeros((4, 6)))


def test_the_truth_of_a_worked_example_is_that_of_the_document() -> None:
    # E6 of [src:worked-examples]: target larger than self.
    first = next(iter(cases_of(KL_DIV_BACKWARD, "grid")))
    values = {
        "grad_output": [[1, 2, 3], [-1, -2, -3]],
        "self": [[-1], [-2]],
        "target": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
    }
    shapes = {"grad_output": (2, 3), "self": (2, 1), "target": (2, 3)}
    example = call_of(replace(first, setup=Setup(values=values), shapes=shapes), seed=0)
    truth = expected(KL_DIV_BACKWARD, example)["out"]
    np.testing.assert_allclose(truth.value, [[-1.4], [3.2]], rtol=1e-6)
    np.testing.assert_allclose(truth.size, [[1.4], [3.2]], rtol=1e-6)
    assert truth.summed == 3


def test_tensors_come_rounded_to_their_dtype() -> None:
    case = next(c for c in cases_of(KL_DIV_BACKWARD, "grid") if c.dtype is FLOAT16)
    target = call_of(case, seed=0).given["target"]
    np.testing.assert_array_equal(target, target.astype(np.float16).astype(np.float64))


INF, NAN = reals.INFINITY, reals.NAN


@each(
    ("value", "wanted"),
    [
        (reals.exp(1000.0), INF),
        (reals.exp(12.0, top=65504.0), INF),  # e^12 is 162755
        (reals.exp(-INF), 0.0),
        (reals.log(0.0), -INF),
        (reals.log(-0.0), -INF),
        (reals.log(-1.0), NAN),
        (reals.log(INF), INF),
        (reals.divide(0.0, 0.0), NAN),
        (reals.divide(-1.0, 0.0), -INF),
        (reals.divide(1.0, -0.0), -INF),
        (reals.divide(NAN, 0.0), NAN),
        (reals.divide(INF, INF), NAN),
        (reals.sigmoid(1000.0), 1.0),
        (reals.sigmoid(-1000.0), 0.0),
        (reals.sigmoid(NAN), NAN),
        (reals.sigmoid(-INF), 0.0),
        (reals.capped(-7.0, 6.0), -INF),
        (reals.total([INF, -INF]), NAN),
        (reals.total([1.0, 1e100, 1.0, -1e100]), 2.0),
    ],
)
def test_single_numbers_follow_ieee(value: float, wanted: float) -> None:
    np.testing.assert_equal(value, wanted)


@each("dtype", [FLOAT, FLOAT16, BF16])
def test_the_largest_number_of_a_dtype_is_the_last_before_infinity(dtype: DType) -> None:
    number = np.float64(largest(dtype))
    with np.errstate(over="ignore"):
        assert np.isfinite(number.astype(dtype.numpy))
        assert np.isinf((number * 1.01).astype(dtype.numpy))
