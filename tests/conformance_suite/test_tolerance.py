"""The profiles [src:precision-standard] on arrays made by hand.

At 1 an ulp of FLOAT is 2^-23, of FLOAT16 2^-10, of BF16 2^-7.
"""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT8_E4M3FN, FLOAT16, INT32, DType
from npucall_conformance.judging.profiles import PROFILES
from npucall_conformance.judging.tolerance import Judgement, judge
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.rounding import ulp

NAN, INF = np.nan, np.inf
H, U = 2.0**-10, 2.0**-24
"""An ulp of FLOAT16 at 1, half an ulp of FLOAT."""


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
) -> Judgement:
    value = np.atleast_1d(np.asarray(value, np.float64))
    size = np.abs(value) if size is None else np.broadcast_to(np.float64(size), value.shape)
    truth = Expected(value, size, summed, kernel, stepwise, dtype, cost, wide)
    return judge(profile, np.atleast_1d(np.asarray(got, np.float64)).astype(dtype.numpy), truth)


@each(
    ("dtype", "at_one", "least"),
    [
        (FLOAT, 2.0**-23, 2.0**-149),
        (FLOAT16, 2.0**-10, 2.0**-24),
        (BF16, 2.0**-7, 2.0**-133),
        (FLOAT8_E4M3FN, 2.0**-3, 2.0**-9),
    ],
)
def test_an_ulp_is_the_distance_to_the_next_number_and_of_zero_the_smallest_number(
    dtype: DType, at_one: float, least: float
) -> None:
    np.testing.assert_array_equal(
        ulp([1.0, 1.99, 2.0, 0.75, -1.0], dtype), np.array([1, 1, 2, 0.5, 1]) * at_one
    )
    assert ulp(0.0, dtype) == least


@each("profile", PROFILES)
def test_the_truth_passes_and_of_nothing_nothing_is_wrong(profile: str) -> None:
    result = verdict(profile, [1.5, -2.0, 0.0], [1.5, -2.0, 0.0])
    assert (result.passed, result.ulp, result.ratio) == (True, 0.0, 0.0)
    assert verdict(profile, np.zeros((0, 3)), np.zeros((0, 3))).passed


@each("profile", PROFILES)
@each(("got", "value"), [(NAN, NAN), (INF, INF), (-INF, -INF), (-0.0, 0.0)])
def test_special_numbers_match_themselves(profile: str, got: float, value: float) -> None:
    assert verdict(profile, got, value).passed


@each("profile", PROFILES)
@each(
    ("got", "value"),
    [(1.0, NAN), (NAN, 1.0), (INF, NAN), (NAN, INF), (-INF, INF), (INF, 1.0), (3e38, INF)],
)
def test_special_numbers_match_nothing_else(profile: str, got: float, value: float) -> None:
    result = verdict(profile, got, value)
    assert (result.passed, result.ulp) == (False, INF)


@each("profile", PROFILES)
def test_what_float16_cannot_hold_may_be_an_infinity_of_its_sign(profile: str) -> None:
    assert verdict(profile, INF, 90000.0, dtype=FLOAT16).passed
    assert not verdict(profile, -INF, 90000.0, dtype=FLOAT16).passed
    assert not verdict(profile, INF, 60000.0, dtype=FLOAT16).passed


@each("profile", PROFILES)
def test_the_worst_element_is_named(profile: str) -> None:
    result = verdict(profile, [[1.0, 2.0], [3.0, 9.0]], [[1.0, 2.0], [3.0, 4.0]])
    assert result.worst == (1, 1)
    assert "element [1, 1] of [2, 2] is 9.0, expected 4.0" in result.problem


@each("profile", PROFILES)
@each("off", [0.0, 0.4, 0.6, 3.0, 1e6])
def test_the_share_of_the_tolerance_is_above_1_exactly_where_an_element_is_outside(
    profile: str, off: float
) -> None:
    value = np.array([1.0 + U, 3.0 - U, 1.0])
    result = verdict(profile, value * (1 + off * 2.0**-23), value)
    assert (result.ratio > 1) is not result.passed
    if not result.passed:
        assert result.outside is not None
        assert result.outside.any()


HALF: Any = {"kernel": FLOAT16}
HALVES: Any = {"kernel": FLOAT16, "dtype": FLOAT16}
DOUBLES: Any = {"kernel": DOUBLE, "dtype": DOUBLE}
EXACT: Any = {"kernel": BF16, "dtype": BF16, "cost": 0}
STRICT: list[tuple[bool, float, float, dict[str, Any]]] = [
    # A kernel of FLOAT16 overflows before a wider output.
    (True, INF, 90000.0, HALF),
    (False, INF, 90000.0, {}),
    # Before it is rounded, FLOAT may be off by 32 * 2^-24, of the size of terms that cancel.
    (True, 1 + 32 * U, 1.0, {}),
    (False, 1 + 34 * U, 1.0, {}),
    (True, 30 * U, 1e-9, {"size": 1.0}),
    (False, 30 * U, 1e-9, {}),
    # DOUBLE less, where the kernel is DOUBLE.
    (True, 1 + 32 * 2.0**-53, 1.0, DOUBLES),
    (False, 1 + U, 1.0, DOUBLES),
    (True, 1 + 2 * U, 1.0, {"dtype": DOUBLE, "kernel": FLOAT}),
    # Integers exactly.
    (True, 7, 7, {"dtype": INT32}),
    (False, 8, 7, {"dtype": INT32}),
    # The rounding of a FLOAT16 kernel has to show in FLOAT: 1 + 2^-12 is no FLOAT16.
    (True, 1 + H, 1 + 0.6 * H, HALF),
    (False, 1.0, 1 + 0.6 * H, HALF),
    (False, 1 + H / 4, 1 + H / 4, HALF),
    (True, 1.0, 1 + H / 4, HALF),
    # 1 + 2^-8 + 2^-12 is halfway between two BF16 in FLOAT16, and goes to the even one.
    (True, 1.0, 1 + 2.0**-8 + 2.0**-12, {"kernel": FLOAT16, "dtype": BF16}),
    (False, 1.0, 1 + 2.0**-8 + 2.0**-12, {"dtype": BF16}),
    # 2^-40 above halfway, which FLOAT takes for halfway: so may what does not come from DOUBLE.
    (True, 1.0, 1 + 2.0**-8 + 2.0**-40, EXACT),
    (False, 1.0, 1 + 2.0**-8 + 2.0**-40, EXACT | {"wide": True}),
    (True, 1 + 2.0**-7, 1 + 2.0**-8 + 2.0**-40, EXACT | {"wide": True}),
    # Half an ulp for each element that FLOAT16 adds: of four terms of 1/4 half an ulp of 1.
    (True, 1 + H, 1.0, HALVES | {"summed": 4}),
    (False, 1 + H, 1.0, HALVES),
    (False, 1 + 2 * H, 1.0, HALVES | {"summed": 4}),
    # 16 units of the terms for steps in FLOAT16: 16 * 2^-11 of 2 are 16 ulp of 1.
    (True, 1 + 16 * H, 1.0, HALVES | {"size": 2.0, "stepwise": True}),
    (False, 1 + 17 * H, 1.0, HALVES | {"size": 2.0, "stepwise": True}),
]


@each(("passes", "got", "value", "more"), STRICT)
def test_strict_allows_what_float_and_the_kernels_dtype_lose(
    passes: bool, got: float, value: float, more: dict[str, Any]
) -> None:
    assert verdict("cpu-strict", got, value, **more).passed is passes


@each("dtype", [FLOAT16, BF16])
def test_strict_wants_what_is_nearest_but_a_few_units_from_halfway(dtype: DType) -> None:
    step = float(ulp(1.0, dtype))
    for up, passed in ((0.6, True), (0.4, False)):
        assert verdict("cpu-strict", 1 + step, 1 + up * step, dtype=dtype).passed is passed
        assert verdict("cpu-strict", 1.0, 1 + up * step, dtype=dtype).passed is not passed
    for off, passed in ((31, True), (33, False)):
        truth = 1 + step / 2 - off * U
        assert verdict("cpu-strict", 1 + step, truth, dtype=dtype).passed is passed
        assert verdict("cpu-strict", 1.0, truth, dtype=dtype).passed


@each("dtype", [FLOAT, FLOAT16, BF16, DOUBLE])
def test_strict_wants_ties_to_even_where_nothing_is_lost_before(dtype: DType) -> None:
    step = float(ulp(1.0, dtype))
    kernel = DOUBLE if dtype is DOUBLE else FLOAT
    for even, odd in ((1.0, 1 + step), (1 + 2 * step, 1 + step)):
        truth = (even + odd) / 2 if dtype is not DOUBLE else even
        assert verdict("cpu-strict", even, truth, dtype=dtype, kernel=kernel, cost=0).passed
        assert not verdict("cpu-strict", odd, truth, dtype=dtype, kernel=kernel, cost=0).passed


ROUNDINGS = [
    (np.trunc, "towards zero"),
    (lambda x: np.copysign(np.ceil(np.abs(x)), x), "away from zero"),
    (np.floor, "down"),
    (np.ceil, "up"),
]
# rtol and atol of the standard: at 1 their sum is allowed, at 0 atol alone.
STANDARD = [(FLOAT, 2.0**-10, 2.0**-16), (FLOAT16, 2.0**-9, 2.0**-9), (BF16, 2.0**-6, 2.0**-6)]


@each(("rounding", "found"), ROUNDINGS)
def test_devices_may_not_round_all_the_same_way(rounding: Any, found: str) -> None:
    exact = np.random.default_rng(0).normal(0, 1, 2000)
    unit = ulp(exact, BF16)
    biased = verdict("cann-standard", rounding(exact / unit) * unit, exact, dtype=BF16)
    assert not biased.passed
    assert found in biased.problem
    assert verdict("cann-standard", np.rint(exact / unit) * unit, exact, dtype=BF16).passed
    few = verdict("cann-standard", (rounding(exact / unit) * unit)[:900], exact[:900], dtype=BF16)
    assert few.passed


def test_errors_of_both_signs_are_no_bias() -> None:
    random = np.random.default_rng(0)
    exact = random.normal(0, 1, 2000)
    off = random.choice([-2, -1, 0, 1, 2], exact.shape) * ulp(exact, BF16)
    assert verdict("cann-standard", exact + off, exact, dtype=BF16).passed


def test_the_standard_lets_a_narrower_kernel_answer_what_it_cannot_hold() -> None:
    assert verdict("cann-standard", 1 + H / 4, 1 + H / 4, kernel=FLOAT16).passed


@each(("dtype", "relative", "absolute"), STANDARD)
def test_the_standard_is_rtol_and_atol(dtype: DType, relative: float, absolute: float) -> None:
    step = float(ulp(1.0, dtype))
    allowed = (relative + absolute) // step * step
    assert verdict("cann-standard", 1 + allowed, 1.0, dtype=dtype).passed
    assert not verdict("cann-standard", 1 + allowed + step, 1.0, dtype=dtype).passed
    assert verdict("cann-standard", absolute, 0.0, dtype=dtype).passed
    assert not verdict("cann-standard", 1.1 * absolute, 0.0, dtype=dtype).passed


@each(
    ("passes", "wrong", "count", "error"),
    [
        (False, 1, 10_000, 0.005),  # all of so many
        (True, 200, 20_000, 0.005),  # 99 of 100 of more
        (False, 201, 20_000, 0.005),
        (True, 1, 20_000, 0.0099),  # the cap of FLOAT is 1e-2
        (False, 1, 20_000, 0.0101),
    ],
)
def test_of_many_elements_the_standard_lets_a_few_be_off_by_a_capped_error(
    passes: bool, wrong: int, count: int, error: float
) -> None:
    got = np.ones(count)
    got[:wrong] += error
    assert verdict("cann-standard", got, np.ones(count)).passed is passes


def test_the_cap_is_32_ulp_where_that_is_more() -> None:
    # At 2^20 32 ulp of FLOAT16 would be far more than 1e-1, and of FLOAT are 4.
    value = np.full(20_000, 2.0**20)
    got = value.copy()
    got[0] += 4
    assert verdict("cann-standard", got, value).passed
