"""What statements of poolings cannot say: numbers written out, planes larger than a block."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ArgumentError
from npucall.operators import _averages
from npucall.operators.adaptive_avg_pool2d import adaptive_avg_pool2d
from npucall.operators.adaptive_avg_pool2d_backward import adaptive_avg_pool2d_backward
from npucall.operators.adaptive_avg_pool3d import adaptive_avg_pool3d_backward
from npucall.operators.avg_pool2d import avg_pool2d
from npucall.operators.avg_pool2d_backward import avg_pool2d_backward
from npucall.operators.avg_pool3d import avg_pool3d, avg_pool3d_backward
from npucall.operators.max_pool2d_with_indices import max_pool2d_with_indices
from npucall.operators.max_pool2d_with_indices_backward import max_pool2d_with_indices_backward

from .calls import LOCAL, numbers

PLANE = np.array([[[1.0, 3, 2], [4, 0, 4], [2, 5, 1]]])


def test_the_largest_of_each_window_and_its_gradient() -> None:
    out, places = compute(max_pool2d_with_indices, PLANE, (2,), (1,))
    assert (out.tolist(), places.tolist()) == ([[[4, 4], [5, 5]]], [[[3, 5], [7, 7]]])
    found = compute(
        max_pool2d_with_indices_backward,
        np.array([[[1.0, 2], [3, 4]]]),
        PLANE,
        places.astype(np.int32),
        (2,),
        (1,),
    )
    assert found.tolist() == [[[0, 0, 0], [1, 0, 2], [0, 7, 0]]]


def slowly(plane: Any, kernel: int, stride: int, padding: int) -> Any:
    """The largest numbers of one plane, window by window."""
    high, wide = plane.shape
    across = range(0, wide + 2 * padding - kernel + 1, stride)
    down = range(0, high + 2 * padding - kernel + 1, stride)
    windows = [
        plane[
            max(y - padding, 0) : y - padding + kernel, max(x - padding, 0) : x - padding + kernel
        ]
        for y, x in product(down, across)
    ]
    return np.reshape([window.max() for window in windows], (len(down), len(across)))


def test_a_plane_larger_than_a_block_is_pooled_in_rows_of_windows() -> None:
    plane = np.random.default_rng(3).normal(size=(1, 400, 500)).astype(np.float32)
    out, places = LOCAL.run(max_pool2d_with_indices, plane, (3,), (2,), (1,))
    assert (out[0] == slowly(plane[0], 3, 2, 1)).all()
    assert (plane.reshape(-1)[places] == out).all()


@pytest.mark.parametrize("index", [9, -1])
def test_an_index_outside_the_plane_is_refused(index: int) -> None:
    places = np.full((1, 2, 2), index, np.int32)
    with pytest.raises(ArgumentError, match=f"indices: expected labels from 0 to 8, found {index}"):
        LOCAL.run(
            max_pool2d_with_indices_backward, np.ones((1, 2, 2), np.float32),
            PLANE.astype(np.float32), places, (2,), (1,),
        )  # fmt: skip


GRADIENT = np.array([[[1.0, 2], [3, 4]]])


def test_the_average_of_each_window_and_its_gradient() -> None:
    # Computed with torch in float64.
    without: Any = {"kernel_size": (2,), "stride": (2,), "padding": (1,)}
    without |= {"count_include_pad": False}
    assert compute(avg_pool2d, PLANE, **without).tolist() == [[[1, 2.5], [3, 2.5]]]
    found = compute(avg_pool2d_backward, GRADIENT, PLANE, **without)
    assert found.tolist() == [[[1, 1, 1], [1.5, 1, 1], [1.5, 1, 1]]]
    assert compute(adaptive_avg_pool2d, PLANE, (2, 2)).tolist() == [[[2, 2.25], [2.75, 2.5]]]
    found = compute(adaptive_avg_pool2d_backward, GRADIENT, PLANE)
    assert found.tolist() == [[[0.25, 0.75, 0.5], [1, 2.5, 1.5], [0.75, 1.75, 1]]]


@pytest.mark.parametrize("block", [6, 60])
def test_averages_in_small_blocks_are_those_in_large_ones(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planes, pooled = numbers((2, 9, 11), (2, 4, 17))
    deep, shared = numbers((1, 4, 3, 5), (1, 2, 4, 3))
    windows: Any = {"kernel_size": (5, 2), "stride": (2, 3), "padding": (2, 1)}
    deeper: Any = {"kernel_size": (2, 3, 2), "stride": (1, 1, 2), "padding": (1, 1, 1)}

    def found() -> list[Any]:
        result = compute(avg_pool2d, planes, **windows)
        return [
            result,
            compute(avg_pool2d_backward, result, planes, **windows),
            compute(adaptive_avg_pool2d, planes, (4, 17)),
            compute(adaptive_avg_pool2d_backward, pooled, planes),
            average := compute(avg_pool3d, deep, **deeper),
            compute(avg_pool3d_backward, average, deep, **deeper),
            compute(adaptive_avg_pool3d_backward, shared, deep),
        ]

    whole = found()
    monkeypatch.setattr(_averages, "BLOCK", block)
    for one, other in zip(found(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_a_block_of_numbers_in_no_window_has_gradients_of_0() -> None:
    wide = 70_000  # of three rows each is a block; the only windows end before the last one
    gradient = np.full((1, 1, wide), 6, np.float32)
    planes = np.zeros((1, 3, wide), np.float32)
    found = LOCAL.run(avg_pool2d_backward, gradient, planes, (3, 1), (3, 1), (1, 0))
    assert found[0, :, ::30_000].tolist() == [[2.0] * 3, [2.0] * 3, [0.0] * 3]
    assert not found[0, 2].any()


def test_an_average_of_many_equal_numbers_is_that_number() -> None:
    plane = np.full((1, 1, 3000), 0.1, np.float32)  # in float32, sums of 1,400 lose four digits
    assert (LOCAL.run(avg_pool2d, plane, (1, 1400), (1,), (0,)) == np.float32(0.1)).all()
