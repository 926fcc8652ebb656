"""How a call is cut and by whom it is computed does not show in a single bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from npucall.compute.blocks import Work, cut
from npucall.compute.evaluate import compute

from .running import (
    BUILTIN,
    COMMUNITY,
    FLOATS,
    KL,
    L1,
    OPERATORS,
    run,
    sample,
    title,
    truth_of,
)
from .ulp import SINGLE_NOISE, assert_within, ulp

SIZES = [255, 256, 257, 4095, 4096, 65536, 131_071, 131_072, 131_073, 1_000_003]
BLOCK = Work.block
THREADS = 8

# Sums are taken in float64 over terms of at most 24 bits: however they are cut, what differs lies
# some 25 bits below the last one of the result.
SHAPES = {
    "equal": ((5, 7), (5, 7), (5, 7)),
    "self smaller": ((5, 7), (5, 1), (5, 7)),
    "target smaller": ((5, 7), (5, 7), (1, 7)),
    "each stretches the other": ((3, 5, 7), (3, 1, 7), (5, 1)),
    "grad_output of rank 0": ((), (5, 7), (1, 1)),
    "rank 0": ((), (), ()),
}


def bits(array: Any) -> bytes:
    assert array.dtype in FLOATS
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_blocks_of_any_length_give_the_same_bits(
    operator: Any, log_target: bool, dtype: Any, shapes: Any
) -> None:
    tensors = sample(*shapes, dtypes=(dtype,) * 3, log_target=log_target)
    whole = run(operator, tensors, reduction=1, log_target=log_target)
    for block in (1, 2, 3, 7):
        found = run(operator, tensors, block=block, reduction=1, log_target=log_target)
        assert bits(found) == bits(whole)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 100])
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (5, 1, 2), (0,), (2, 0, 3)], ids=str
)
def test_blocks_cover_every_element_once_and_stay_within_their_limit(
    shape: tuple[int, ...], limit: int
) -> None:
    seen = np.zeros(shape, int)
    for index in cut(shape, limit):
        assert seen[index].size <= limit
        seen[index] += 1
    assert np.all(seen == 1)


@pytest.mark.parametrize("order", ["F", "strided", "reversed"])
@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_the_memory_order_of_the_inputs_does_not_show_in_the_bits(
    operator: Any, order: str
) -> None:
    tensors = sample((9, 11))
    changed = {name: laid_out(array, order) for name, array in tensors.items()}
    assert not any(array.flags.c_contiguous for array in changed.values())
    assert bits(run(operator, changed, reduction=1)) == bits(run(operator, tensors, reduction=1))


def laid_out(array: Any, order: str) -> Any:
    if order == "F":
        return np.asfortranarray(array)
    if order == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    wide = np.full((*array.shape, 3), np.nan, array.dtype)
    wide[..., 1] = array
    return wide[..., 1]


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_many_threads_at_once_get_the_same_bits(operator: Any) -> None:
    tensors = sample((300, 1), (300, 1), (1, 257))  # more than one block
    expected = bits(run(operator, tensors, reduction=1))
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda _: bits(run(operator, tensors, reduction=1)), range(THREADS)))
    assert found == [expected] * THREADS


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_elements_round_the_edges_of_blocks_are_what_scalar_loops_give(
    operator: Any, size: int
) -> None:
    tensors = sample((size,), seed=size)
    found = run(operator, tensors, reduction=0)
    edges = [0, 1, 127, 255, 256, 4094, 4095, BLOCK - 1, BLOCK, BLOCK + 1, size - 2, size - 1]
    chosen = np.unique([edge for edge in edges if edge < size])
    truth = truth_of(operator, {name: array[chosen] for name, array in tensors.items()}, 0)
    values = truth.values()
    allowed = ulp(values, np.float32) + SINGLE_NOISE * truth.sizes()
    assert_within(found[chosen], values, allowed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_each_element_of_a_long_tensor_is_what_a_short_one_gives(operator: Any, size: int) -> None:
    tensors = sample((size,), seed=size)
    long = run(operator, tensors, reduction=0)
    cuts = range(0, size, 40_000)  # no divisor of the length of a block
    parts = [
        run(operator, {n: a[start : start + 40_000] for n, a in tensors.items()}, reduction=0)
        for start in cuts
    ]
    assert bits(np.concatenate(parts)) == bits(long)


@pytest.mark.parametrize("size", SIZES)
def test_the_mean_of_a_long_tensor_divides_by_its_length(size: int) -> None:
    tensors = sample((size,))
    factor = np.float32(1 / size)
    for operator in (KL, L1, COMMUNITY):
        unscaled = run(operator, tensors, reduction=0)
        scaled = run(operator, tensors, reduction=1)
        np.testing.assert_allclose(scaled, unscaled * factor, rtol=2**-22)


@pytest.mark.parametrize("operator", [KL, BUILTIN], ids=title)
@pytest.mark.parametrize("rows", [65_537, 1_000_003])
def test_a_long_sum_is_what_float64_gives(operator: Any, rows: int) -> None:
    smaller = (1, 2)
    shapes = ((), smaller, (rows, 2)) if operator is KL else ((), (rows, 2), smaller)
    tensors = sample(*shapes)
    found = run(operator, tensors, reduction=0)
    g, s, t = (array.astype(np.float64) for array in tensors.values())
    terms = -(g * t) if operator is KL else g * np.log(t) - g * s + g
    expected = np.broadcast_to(terms, (rows, 2)).sum(0, keepdims=True)
    size = np.abs(terms).sum(0, keepdims=True) + (0 if operator is KL else 2 * rows * abs(g))
    assert_within(found, expected, ulp(expected, np.float32) + SINGLE_NOISE * size)


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_compute_answers_what_the_default_path_gives(operator: Any) -> None:
    tensors = sample((5, 7))
    assert bits(compute(operator, **tensors)) == bits(run(operator, tensors))
