"""The profiles [src:precision-standard] on arrays made by hand.

At 1 an ulp of FLOAT is 2^-23, of FLOAT16 2^-10, of BF16 2^-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32, DType
from npucall_client.conformance.judging.tolerance import PROFILES, ULP_BINS, Verdict, judge
from npucall_client.conformance.judging.truth import Expected
from npucall_client.conformance.stating.rounding import ulp

NAN, INF = np.nan, np.inf
PROFILE = pytest.mark.parametrize("profile", PROFILES)


def verdict(
    profile: str,
    got: Any,
    value: Any,
    *,
    size: Any = None,
    summed: int = 1,
    kernel: DType = FLOAT,
    stepwise: bool = False,
    dtype: DType = FLOAT,
    cost: float = 32.0,
    wide: bool = False,
) -> Verdict:
    value = np.atleast_1d(np.asarray(value, np.float64))
    size = np.abs(value) if size is None else np.broadcast_to(np.float64(size), value.shape)
    truth = Expected(value, size, summed, kernel, stepwise, dtype, cost, wide)
    return judge(profile, np.atleast_1d(np.asarray(got, np.float64)).astype(dtype.numpy), truth)


@pytest.mark.parametrize(
    ("dtype", "at_one"), [(FLOAT, 2.0**-23), (FLOAT16, 2.0**-10), (BF16, 2.0**-7)], ids=str
)
def test_an_ulp_is_the_distance_to_the_next_number(dtype: DType, at_one: float) -> None:
    np.testing.assert_array_equal(
        ulp([1.0, 1.99, 2.0, 0.75, -1.0], dtype), np.array([1, 1, 2, 0.5, 1]) * at_one
    )


@pytest.mark.parametrize(
    ("dtype", "least"), [(FLOAT, 2.0**-149), (FLOAT16, 2.0**-24), (BF16, 2.0**-133)], ids=str
)
def test_an_ulp_of_zero_is_the_smallest_number(dtype: DType, least: float) -> None:
    assert ulp(0.0, dtype) == least


@PROFILE
def test_the_truth_passes(profile: str) -> None:
    result = verdict(profile, [1.5, -2.0, 0.0], [1.5, -2.0, 0.0])
    assert (result.passed, result.ulp, result.ratio) == (True, 0.0, 0.0)


@PROFILE
@pytest.mark.parametrize(("got", "value"), [(NAN, NAN), (INF, INF), (-INF, -INF), (-0.0, 0.0)])
def test_special_numbers_match_themselves_and_zeros_each_other(
    profile: str, got: float, value: float
) -> None:
    assert verdict(profile, got, value).passed


@PROFILE
@pytest.mark.parametrize(
    ("got", "value"),
    [(1.0, NAN), (NAN, 1.0), (INF, NAN), (NAN, INF), (-INF, INF), (INF, 1.0), (3e38, INF)],
)
def test_special_numbers_match_nothing_else(profile: str, got: float, value: float) -> None:
    result = verdict(profile, got, value)
    assert (result.passed, result.ulp) == (False, INF)


@PROFILE
def test_what_float16_cannot_hold_may_be_an_infinity_of_its_sign(profile: str) -> None:
    assert verdict(profile, INF, 90000.0, dtype=FLOAT16).passed
    assert not verdict(profile, -INF, 90000.0, dtype=FLOAT16).passed
    assert not verdict(profile, INF, 60000.0, dtype=FLOAT16).passed


def test_a_float16_kernel_overflows_before_a_wider_output() -> None:
    assert verdict("cpu-strict", INF, 90000.0, kernel=FLOAT16).passed
    assert not verdict("cpu-strict", INF, 90000.0, kernel=FLOAT).passed


@pytest.mark.parametrize("dtype", [FLOAT16, BF16], ids=str)
def test_strict_wants_what_is_nearest_to_the_truth(dtype: DType) -> None:
    step = float(ulp(1.0, dtype))
    above, below = 1 + 0.6 * step, 1 + 0.4 * step
    assert verdict("cpu-strict", 1 + step, above, dtype=dtype).passed
    assert not verdict("cpu-strict", 1.0, above, dtype=dtype).passed  # towards zero
    assert verdict("cpu-strict", 1.0, below, dtype=dtype).passed
    assert not verdict("cpu-strict", 1 + step, below, dtype=dtype).passed  # away from zero


@pytest.mark.parametrize("dtype", [FLOAT16, BF16], ids=str)
def test_strict_lets_float_inside_decide_what_is_a_few_of_its_units_from_halfway(
    dtype: DType,
) -> None:
    # 32 * 2^-24 of 1 are allowed before the last rounding.
    step = float(ulp(1.0, dtype))
    for off, passed in ((31, True), (33, False)):
        truth = 1 + step / 2 - off * 2.0**-24
        assert verdict("cpu-strict", 1 + step, truth, dtype=dtype).passed is passed
        assert verdict("cpu-strict", 1.0, truth, dtype=dtype).passed


@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BF16, DOUBLE], ids=str)
def test_strict_wants_ties_to_even_where_nothing_is_lost_before(dtype: DType) -> None:
    step = float(ulp(1.0, dtype))
    kernel = DOUBLE if dtype is DOUBLE else FLOAT
    for even, odd in ((1.0, 1 + step), (1 + 2 * step, 1 + step)):
        truth = (even + odd) / 2 if dtype is not DOUBLE else even
        assert verdict("cpu-strict", even, truth, dtype=dtype, kernel=kernel, cost=0).passed
        assert not verdict("cpu-strict", odd, truth, dtype=dtype, kernel=kernel, cost=0).passed


def test_what_is_exact_may_pass_through_float_unless_it_comes_from_double() -> None:
    # 2^-40 above halfway between 1 and 1 + 2^-7, which FLOAT takes for halfway.
    exact = {"kernel": BF16, "dtype": BF16, "cost": 0}
    assert verdict("cpu-strict", 1.0, 1 + 2.0**-8 + 2.0**-40, **exact).passed
    assert not verdict("cpu-strict", 1.0, 1 + 2.0**-8 + 2.0**-40, wide=True, **exact).passed
    assert verdict("cpu-strict", 1 + 2.0**-7, 1 + 2.0**-8 + 2.0**-40, wide=True, **exact).passed


def test_strict_rounds_to_the_kernels_dtype_and_then_to_the_outputs() -> None:
    # 1 + 2^-8 + 2^-12 is halfway between two BF16 in FLOAT16, and goes to the even one.
    twice = {"kernel": FLOAT16, "dtype": BF16}
    assert verdict("cpu-strict", 1.0, 1 + 2.0**-8 + 2.0**-12, **twice).passed
    assert not verdict("cpu-strict", 1.0, 1 + 2.0**-8 + 2.0**-12, dtype=BF16).passed


def test_strict_allows_float_32_units_of_float32_before_it_is_rounded() -> None:
    # 1 ulp is 2 * 2^-24.
    assert verdict("cpu-strict", 1 + 32 * 2.0**-24, 1.0).passed
    assert not verdict("cpu-strict", 1 + 34 * 2.0**-24, 1.0).passed


@pytest.mark.parametrize("profile", ["cann-standard", "cann-legacy"])
@pytest.mark.parametrize(
    ("rounding", "found"),
    [
        (np.trunc, "towards zero"),
        (lambda x: np.copysign(np.ceil(np.abs(x)), x), "away from zero"),
        (np.floor, "down"),
        (np.ceil, "up"),
    ],
)
def test_devices_may_not_round_all_numbers_the_same_way(
    profile: str, rounding: Any, found: str
) -> None:
    exact = np.random.default_rng(0).normal(0, 1, 2000)
    unit = ulp(exact, BF16)
    biased = verdict(profile, rounding(exact / unit) * unit, exact, dtype=BF16)
    assert not biased.passed
    assert found in biased.problem
    assert verdict(profile, np.rint(exact / unit) * unit, exact, dtype=BF16).passed
    few = verdict(profile, (rounding(exact / unit) * unit)[:900], exact[:900], dtype=BF16)
    assert few.passed


def test_errors_of_both_signs_are_no_bias() -> None:
    random = np.random.default_rng(0)
    exact = random.normal(0, 1, 2000)
    off = random.choice([-2, -1, 0, 1, 2], exact.shape) * ulp(exact, BF16)
    assert verdict("cann-standard", exact + off, exact, dtype=BF16).passed


def test_strict_judges_by_the_size_of_terms_that_cancel() -> None:
    assert verdict("cpu-strict", 30 * 2.0**-24, 1e-9, size=1.0).passed
    assert not verdict("cpu-strict", 30 * 2.0**-24, 1e-9).passed


def test_strict_allows_double_less_where_the_kernel_is_double() -> None:
    assert verdict("cpu-strict", 1 + 32 * 2.0**-53, 1.0, dtype=DOUBLE, kernel=DOUBLE).passed
    assert not verdict("cpu-strict", 1 + 2.0**-24, 1.0, dtype=DOUBLE, kernel=DOUBLE).passed
    assert verdict("cpu-strict", 1 + 2.0**-23, 1.0, dtype=DOUBLE, kernel=FLOAT).passed


def test_strict_wants_what_a_float16_kernel_rounds_to_in_a_float_output() -> None:
    assert verdict("cpu-strict", 1 + 2.0**-10, 1 + 0.6 * 2.0**-10, kernel=FLOAT16).passed
    assert not verdict("cpu-strict", 1.0, 1 + 0.6 * 2.0**-10, kernel=FLOAT16).passed


def test_strict_wants_the_rounding_of_a_narrower_kernel_to_show() -> None:
    # 1 + 2^-12 is right to less than an ulp of FLOAT16, but no FLOAT16.
    assert not verdict("cpu-strict", 1 + 2.0**-12, 1 + 2.0**-12, kernel=FLOAT16).passed
    assert verdict("cpu-strict", 1.0, 1 + 2.0**-12, kernel=FLOAT16).passed
    assert verdict("cann-standard", 1 + 2.0**-12, 1 + 2.0**-12, kernel=FLOAT16).passed


def test_strict_allows_a_float16_kernel_half_an_ulp_for_each_summed_element() -> None:
    # Four terms of 1/4: half an ulp of each, 2^-11 of it, makes half an ulp of their sum.
    near = 1 + 2.0**-10
    assert verdict("cpu-strict", near, 1.0, kernel=FLOAT16, dtype=FLOAT16, summed=4).passed
    assert not verdict("cpu-strict", near, 1.0, kernel=FLOAT16, dtype=FLOAT16).passed
    far = 1 + 2 * 2.0**-10
    assert not verdict("cpu-strict", far, 1.0, kernel=FLOAT16, dtype=FLOAT16, summed=4).passed


def test_strict_allows_steps_in_float16_16_units_of_the_terms() -> None:
    # 16 * 2^-11 of 2: 16 ulp of 1.
    near = {"size": 2.0, "kernel": FLOAT16, "dtype": FLOAT16}
    assert verdict("cpu-strict", 1 + 16 * 2.0**-10, 1.0, stepwise=True, **near).passed
    assert not verdict("cpu-strict", 1 + 17 * 2.0**-10, 1.0, stepwise=True, **near).passed


def test_strict_wants_integers_exactly() -> None:
    assert verdict("cpu-strict", 7, 7, dtype=INT32).passed
    assert not verdict("cpu-strict", 8, 7, dtype=INT32).passed


# rtol and atol of the standard: at 1 their sum is allowed, at 0 atol alone.
STANDARD = [(FLOAT, 2.0**-10, 2.0**-16), (FLOAT16, 2.0**-9, 2.0**-9), (BF16, 2.0**-6, 2.0**-6)]


@pytest.mark.parametrize(("dtype", "relative", "absolute"), STANDARD, ids=str)
def test_the_standard_is_relative_and_absolute(
    dtype: DType, relative: float, absolute: float
) -> None:
    step = float(ulp(1.0, dtype))
    allowed = (relative + absolute) // step * step
    assert verdict("cann-standard", 1 + allowed, 1.0, dtype=dtype).passed
    assert not verdict("cann-standard", 1 + allowed + step, 1.0, dtype=dtype).passed
    assert verdict("cann-standard", absolute, 0.0, dtype=dtype).passed
    assert not verdict("cann-standard", 1.1 * absolute, 0.0, dtype=dtype).passed


def of_many(wrong: int, count: int, error: float) -> Verdict:
    got = np.ones(count)
    got[:wrong] += error
    return verdict("cann-standard", got, np.ones(count))


def test_the_standard_wants_all_of_10000_elements() -> None:
    assert not of_many(1, 10_000, 0.005).passed


def test_the_standard_wants_99_of_100_of_more_elements() -> None:
    assert of_many(200, 20_000, 0.005).passed
    assert not of_many(201, 20_000, 0.005).passed


def test_the_standard_caps_what_the_rest_may_be_off() -> None:
    assert of_many(1, 20_000, 0.0099).passed
    assert not of_many(1, 20_000, 0.0101).passed  # the cap of FLOAT is 1e-2


def test_the_cap_is_32_ulp_where_that_is_more() -> None:
    # At 2^20 32 ulp of FLOAT16 would be far more than 1e-1, and of FLOAT are 4.
    value = np.full(20_000, 2.0**20)
    got = value.copy()
    got[0] += 4
    assert verdict("cann-standard", got, value).passed


# T of the older standard: ten times of it is allowed for one element, it itself for the mean.
@pytest.mark.parametrize(
    ("dtype", "threshold"), [(FLOAT, 2.0**-13), (FLOAT16, 2.0**-10), (BF16, 2.0**-7)], ids=str
)
def test_the_legacy_profile_limits_the_mean_and_the_largest(dtype: DType, threshold: float) -> None:
    value = np.ones(100)
    one_off, all_off = value.copy(), value + 2 * threshold
    one_off[0] += 8 * threshold
    assert verdict("cann-legacy", one_off, value, dtype=dtype).passed
    assert not verdict("cann-legacy", all_off, value, dtype=dtype).passed
    one_off[0] += 8 * threshold
    assert not verdict("cann-legacy", one_off, value, dtype=dtype).passed


@PROFILE
def test_the_worst_element_is_named(profile: str) -> None:
    result = verdict(profile, [[1.0, 2.0], [3.0, 9.0]], [[1.0, 2.0], [3.0, 4.0]])
    assert result.worst == (1, 1)
    assert "element [1, 1] of [2, 2] is 9.0, expected 4.0" in result.problem


def test_errors_are_counted_by_their_ulp() -> None:
    step = 2.0**-23
    result = verdict("cpu-strict", [1.0, 1 + step, 1 + 3 * step, NAN], [1.0] * 4)
    assert len(result.histogram) == len(ULP_BINS) + 1
    found = dict(zip((*ULP_BINS, INF), result.histogram, strict=True))
    assert {end: n for end, n in found.items() if n} == {0.0: 1, 1.0: 1, 4.0: 1, INF: 1}


@PROFILE
def test_nothing_is_nothing_wrong(profile: str) -> None:
    assert verdict(profile, np.zeros((0, 3)), np.zeros((0, 3))).passed


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("off", [0.0, 0.4, 0.6, 3.0, 1e6])
def test_the_share_of_the_tolerance_is_above_1_exactly_where_an_element_is_outside(
    profile: str, off: float
) -> None:
    value = np.array([1.0 + 2.0**-24, 3.0 - 2.0**-24, 1.0])
    expected = Expected(value, value, 1, FLOAT, stepwise=False, dtype=FLOAT)
    verdict = judge(profile, (value * (1 + off * 2.0**-23)).astype(np.float32), expected)
    assert (verdict.ratio > 1) is not verdict.passed
    if not verdict.passed:
        assert verdict.outside is not None
        assert verdict.outside.any()
