"""Convolution: worked numbers, blocks, and what the mask switches off."""

import random
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ShapeError
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


def test_beyond_what_is_transposed_nothing_is_added_also_of_an_infinite_weight() -> None:
    weight = image([np.inf, 0], [0, 1])
    told: Any = {"transposed": True, "dilation": [3], "padding": [1], "cube_math_type": 1}
    found = LOCAL.run(FORWARD, IMAGE[..., :2], weight, np.array([7], np.float32), **told)
    inf = np.inf
    assert found[0, 0].tolist() == [[inf, 7, 7], [inf, 7, 7], [7, 7, 8], [7, 7, 11]]


def drawn(seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Images, weights, a bias, some of them with numbers that are not finite; and attributes."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    axes, groups, transposed = draw.choice([1, 2, 2, 3]), draw.randint(1, 3), draw.random() < 0.6

    def each(low: int, high: int) -> list[int]:
        return [draw.randint(low, high) for _ in range(axes)]

    own, others = draw.randint(1, 3), draw.randint(1, 3)
    shapes = (draw.randint(1, 2), own * groups, *each(1, 6)), (own * groups, others, *each(1, 3))
    if not transposed:
        shapes = shapes[0], (others * groups, own, *shapes[1][2:])
    arrays = [*(rng.normal(size=shape) for shape in shapes), rng.normal(size=others * groups)]
    for array in draw.sample(arrays[:2], draw.randint(0, 2)):
        array.flat[draw.randrange(array.size)] = draw.choice([np.inf, -np.inf, np.nan])
    told = {"stride": each(1, 3), "padding": each(0, 2), "dilation": each(1, 3)}
    more = [draw.randrange(stride) if transposed else 0 for stride in told["stride"]]
    return arrays, {**told, "transposed": transposed, "output_padding": more, "groups": groups}


@pytest.mark.torch
def test_convolutions_with_numbers_that_are_not_finite_are_torchs() -> None:
    aten = pytest.importorskip("torch").ops.aten
    tensor = pytest.importorskip("torch").from_numpy
    compared = 0
    for seed in range(60):
        arrays, told = drawn(seed)
        images, weight, bias = map(tensor, arrays)
        try:
            expected = [aten.convolution(images, weight, bias, *told.values())]
        except RuntimeError:  # the kernel is larger than the image
            continue
        gradient = np.random.default_rng(seed).normal(size=expected[0].shape)
        expected += aten.convolution_backward(
            tensor(gradient), images, weight, [len(bias)], *told.values(), [True] * 3
        )
        try:
            found = compute(FORWARD, *arrays, **told)
        except ShapeError:  # three axes with more padding than kernel
            continue
        found = [found, *compute(BACKWARD, gradient, *arrays[:2], **told)]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")
        compared += 1
    assert compared > 30


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
