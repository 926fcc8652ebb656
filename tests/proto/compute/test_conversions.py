"""npucall.compute.conversions: the bits are NumPy's, whatever is converted and wherever it lies."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

from npucall.compute.conversions import convert, converted

HALF, SINGLE, DOUBLE = (np.dtype(name) for name in ("float16", "float32", "float64"))
BFLOAT = np.dtype(ml_dtypes.bfloat16)
UNSIGNED: Any = {2: np.uint16, 4: np.uint32, 8: np.uint64}

HALVES = np.arange(1 << 16, dtype=np.uint16).view(HALF)
FINITE = np.sort(HALVES[np.isfinite(HALVES)]).astype(np.float64)

from_wide = each("dtype", [SINGLE, DOUBLE])
between = each(("source", "target"), [(SINGLE, HALF), (HALF, SINGLE), (DOUBLE, HALF)])


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """As where calls are computed."""
    with np.errstate(all="ignore"):
        yield


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(UNSIGNED[array.dtype.itemsize])


def assert_as_numpy(source: Any, dtype: Any) -> None:
    np.testing.assert_array_equal(bits(converted(source, dtype)), bits(source.astype(dtype)))


def random_bits(dtype: Any, count: int) -> Any:
    unsigned = UNSIGNED[dtype.itemsize]
    drawn = np.random.default_rng(0).integers(0, np.iinfo(unsigned).max, count, unsigned)
    return drawn.view(dtype)


def beside(values: Any, dtype: Any) -> Any:
    """The values of that dtype, with their neighbours on both sides."""
    exact = values.astype(dtype)
    infinity = dtype.type(np.inf)
    return np.concatenate([exact, np.nextafter(exact, infinity), np.nextafter(exact, -infinity)])


def test_each_float16_is_widened_alone_and_beside_few_or_many_subnormal_ones() -> None:
    assert_as_numpy(HALVES, SINGLE)
    tiny = np.finfo(HALF).tiny
    normal = HALVES[np.isfinite(HALVES) & ((np.abs(HALVES) >= tiny) | (HALVES == 0))]
    subnormal = HALVES[(np.abs(HALVES) < tiny) & (HALVES != 0)]
    for share in (0, 7, 1000, subnormal.size):
        assert_as_numpy(np.concatenate([normal, subnormal[:share]]), SINGLE)
    assert_as_numpy(subnormal, SINGLE)


@from_wide
def test_to_the_nearest_float16_is_rounded_and_half_way_to_the_even_one(dtype: Any) -> None:
    np.testing.assert_array_equal(converted(FINITE.astype(dtype), HALF), FINITE)
    assert_as_numpy(beside(FINITE, dtype), HALF)
    assert_as_numpy(beside((FINITE[1:] + FINITE[:-1]) / 2, dtype), HALF)


@from_wide
def test_from_65520_on_is_infinite_and_half_the_least_float16_or_less_is_0(dtype: Any) -> None:
    below = np.nextafter(dtype.type(65520), dtype.type(0))
    large = np.tile([65520, below, -65520, -below], 256).astype(dtype)
    assert converted(large, HALF)[:4].tolist() == [np.inf, 65504, -np.inf, -65504]
    half = dtype.type(2.0**-25)
    more = np.nextafter(half, dtype.type(1))
    small = np.tile([half, -half, 1e-30, -1e-45, more, -more], 256).astype(dtype)
    assert bits(converted(small, HALF)[:6]).tolist() == [0, 0x8000, 0, 0x8000, 1, 0x8001]


@from_wide
def test_any_bits_and_numbers_of_each_size_become_the_float16_of_numpy(dtype: Any) -> None:
    assert_as_numpy(random_bits(dtype, 1 << 18), HALF)
    for exponent in range(-30, 18):
        random = np.random.default_rng(exponent + 99)
        signs = random.choice([-1, 1], 1 << 12)
        numbers = np.ldexp(random.uniform(1, 2, 1 << 12), exponent) * signs
        assert_as_numpy(numbers.astype(dtype), HALF)


@from_wide
def test_nan_keeps_its_sign_and_its_upper_digits_quiet_or_not(dtype: Any) -> None:
    unsigned = UNSIGNED[dtype.itemsize]
    infinity = bits(np.array([np.inf], dtype))[0]
    upper = unsigned(np.finfo(dtype).nmant - 10)
    payloads = (np.arange(1, 1 << 10).astype(unsigned) << upper) | unsigned(1)
    low = infinity + unsigned(1) + np.arange(64, dtype=unsigned)
    nan = np.concatenate([infinity | payloads, low])
    signed = np.concatenate([nan, nan | unsigned(1 << (8 * dtype.itemsize - 1))])
    assert np.isnan(signed.view(dtype)).all()
    assert_as_numpy(signed.view(dtype), HALF)


@from_wide
def test_a_few_that_are_not_finite_leave_the_others_as_they_are(dtype: Any) -> None:
    source = np.linspace(-1e-4, 1e-4, 4096).astype(dtype)
    source[[5, 700, 701, 4000]] = np.nan, np.inf, -np.inf, -1e38
    assert_as_numpy(source, HALF)


def test_bfloat16_is_what_ml_dtypes_makes_of_any_bits_and_of_bfloat16() -> None:
    for dtype in SINGLE, DOUBLE, HALF:
        assert_as_numpy(random_bits(dtype, 1 << 16), BFLOAT)
    assert_as_numpy(np.arange(1 << 16, dtype=np.uint16).view(BFLOAT), SINGLE)


@each("dtype", [np.int64, np.int32, np.uint8, np.bool_, np.float16])
def test_integers_and_truth_values_become_what_numpy_makes_of_them(dtype: Any) -> None:
    numbers = np.random.default_rng(0).integers(0, 200, 2048).astype(dtype)
    for target in HALF, SINGLE, BFLOAT, np.dtype(np.int32):
        assert_as_numpy(numbers, target)


@between
@each("size", [0, 1, 1023, 1024, 1025, 65536, 65537, 200_001])
def test_arrays_of_any_length_are_converted_alike(source: Any, target: Any, size: int) -> None:
    assert_as_numpy(random_bits(source, size), target)


@between
@each("shape", [(2048, 1), (1, 2, 70_001), (300, 300), (1, 1, 1, 4096)])
def test_strides_on_both_sides_do_not_matter(source: Any, target: Any, shape: Any) -> None:
    count = int(np.prod(shape))
    spread = random_bits(source, 3 * count)[1::3].reshape(shape[::-1]).T
    memory = np.zeros((*shape[:-1], 2 * shape[-1]), target)
    convert(memory[..., ::-2], spread)
    np.testing.assert_array_equal(bits(memory[..., ::-2]), bits(spread.astype(target)))
    assert not bits(memory[..., ::2]).any()


@between
def test_neither_side_has_to_be_aligned(source: Any, target: Any) -> None:
    values = random_bits(source, 5000)
    raw = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(source)
    room = np.zeros(5000 * target.itemsize + 1, np.uint8)[1:].view(target)
    assert not raw.flags.aligned
    assert not room.flags.aligned
    convert(room, raw)
    np.testing.assert_array_equal(bits(room), bits(values.astype(target)))


@between
@each("shape", [(), (1,), (3, 1), (1500,), (1, 1500)])
def test_an_array_is_broadcast_into_a_larger_one(source: Any, target: Any, shape: Any) -> None:
    smaller = random_bits(source, 1500)[: int(np.prod(shape))].reshape(shape)
    larger = np.zeros((3, 1500), target)
    convert(larger, smaller)
    expected = np.broadcast_to(smaller.astype(target), (3, 1500))
    np.testing.assert_array_equal(bits(larger), bits(expected))


def test_what_is_converted_anew_is_row_major() -> None:
    assert converted(np.zeros((64, 64), np.float32).T, HALF).flags.c_contiguous


def test_float64_becomes_bfloat16_as_float32_does() -> None:
    assert converted(np.array([3.4e38, -3.4e38]), BFLOAT).tolist() == [np.inf, -np.inf]
    drawn = random_bits(SINGLE, 1 << 16)
    numbers = drawn[~np.isnan(drawn)]  # float32 holds them
    found = converted(numbers.astype(DOUBLE), BFLOAT)
    np.testing.assert_array_equal(bits(found), bits(numbers.astype(BFLOAT)))


@each(
    ("dtype", "unit"),
    [(BFLOAT, 2.0**-7), (ml_dtypes.float8_e5m2, 2.0**-2), (ml_dtypes.float8_e4m3fn, 2.0**-3)],
)
@each("sign", [1, -1])
def test_float64_becomes_a_short_float_in_one_rounding(dtype: Any, unit: float, sign: int) -> None:
    # Half a unit beyond 1 is halfway: 2^-40 decides, which float32 cannot hold.
    exact = np.array([1 + unit / 2 + 2.0**-40, 1 + 1.5 * unit - 2.0**-40, 1 + unit / 2])
    found = converted(sign * exact, np.dtype(dtype)).astype(np.float64)
    np.testing.assert_array_equal(found, sign * np.array([1 + unit, 1 + unit, 1]))
