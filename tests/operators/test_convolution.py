"""Convolution: worked numbers, blocks, and what the mask switches off."""

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators import CATALOGUE, _convolution

from .calls import LOCAL, numbers

FORWARD = CATALOGUE.find("aclnnConvolution")
BACKWARD = CATALOGUE.find("aclnnConvolutionBackward")


def image(*rows: list[float]) -> Any:
    """One channel of one image."""
    return np.array([[rows]], np.float32)


IMAGE, WEIGHT = image([1, 2, 3], [4, 5, 6], [7, 8, 9]), image([1, 0], [-1, 2])
GRADIENT = image([1, 2], [3, 4])


def test_worked_numbers() -> None:
    # Computed with torch in float64, and by hand.
    assert np.array_equal(LOCAL.run(FORWARD, IMAGE, WEIGHT)[0, 0], [[7, 9], [13, 15]])
    of_input, of_weight, of_bias = LOCAL.run(BACKWARD, GRADIENT, IMAGE, WEIGHT)
    assert np.array_equal(of_input[0, 0], [[1, 2, 0], [2, 4, 4], [-3, 2, 8]])
    assert np.array_equal(of_weight[0, 0], [[37, 47], [67, 77]])
    assert of_bias.tolist() == [10]


def test_padding_by_sides_is_that_of_the_top_the_bottom_the_left_and_the_right() -> None:
    found = LOCAL.run(FORWARD, IMAGE, WEIGHT, padding=[1, 0, 0, 2])
    expected = LOCAL.run(FORWARD, np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (0, 2))), WEIGHT)
    assert np.array_equal(found, expected)


def test_what_the_mask_switches_off_is_none() -> None:
    answer = LOCAL.run(BACKWARD, GRADIENT, IMAGE, WEIGHT, output_mask=[True, False, True])
    assert answer.grad_weight is None
    assert answer.grad_bias.tolist() == [10]


def test_the_gradients_of_a_batch_without_images_are_0() -> None:
    none = IMAGE[:0]
    answer = LOCAL.run(BACKWARD, GRADIENT[:0], none, WEIGHT, bias_sizes=[1])
    assert answer.grad_input.shape == none.shape
    assert not answer.grad_weight.any()
    assert answer.grad_bias.tolist() == [0]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_small_blocks_give_what_large_ones_give(
    transposed: bool, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, weight = numbers((3, 4, 7, 5), (4, 4 // groups, 3, 2))
    more: Any = {
        "stride": (2, 1), "padding": (1,), "dilation": (1, 2), "groups": groups,
        "transposed": transposed,
    }  # fmt: skip
    result = compute(FORWARD, images, weight, **more)
    (gradient,) = numbers(result.shape)
    whole = [result, *compute(BACKWARD, gradient, images, weight, **more)]
    monkeypatch.setattr(_convolution, "_MATRIX", 40)
    monkeypatch.setattr(_convolution, "_WEIGHTS", 12)
    result = compute(FORWARD, images, weight, **more)
    pieces = [result, *compute(BACKWARD, gradient, images, weight, **more)]
    assert all(np.allclose(a, b, rtol=1e-12) for a, b in zip(whole, pieces, strict=True))
