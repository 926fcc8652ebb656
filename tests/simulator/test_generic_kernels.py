"""The formulas of the operators that npucall does not declare."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from npucall.dtypes import AnyArray

from . import launches

Launch = Callable[..., None]

INT8, FLOAT = np.dtype(np.int8), np.dtype(np.float32)


def f32(*values: object) -> AnyArray:
    return np.array(values, np.float32)


def test_rsub_scales_its_first_tensor(launch: Launch) -> None:
    out = f32(0, 0)
    launch("aclnnRsub", f32(10, 20), f32(1, 2), np.float32(0.5), out)
    assert out.tolist() == [-4.0, -8.0]


def test_inplace_add_writes_its_first_tensor(launch: Launch) -> None:
    target = f32(1, 2)
    launch("aclnnInplaceAdd", target, f32(1), np.int64(3))
    assert target.tolist() == [4.0, 5.0]


def test_rsub_computes_half_precision_in_single(launch: Launch) -> None:
    out = np.empty(1, ml_dtypes.bfloat16)
    self, other = np.array([[1.0078125], [1]], ml_dtypes.bfloat16)
    launch("aclnnRsub", self, other, np.float32(1.0234375), out)
    assert out.tolist() == [-0.031494140625]


def test_maximum_takes_the_larger_element(launch: Launch) -> None:
    out = f32(0, 0)
    launch("aclnnMaximum", f32(1, 4), f32(3, 2), out)
    assert out.tolist() == [3.0, 4.0]


def test_inplace_sigmoid_writes_its_only_tensor(launch: Launch) -> None:
    tensor = f32(0, np.log(3))
    launch("aclnnInplaceSigmoid", tensor)
    np.testing.assert_allclose(tensor, [0.5, 0.75], rtol=1e-6)


def test_mm_multiplies_matrices(launch: Launch) -> None:
    out = np.empty((1, 1), np.float32)
    launch("aclnnMm", f32([1, 2]), f32([3], [4]), out, 1)
    assert out.tolist() == [[11.0]]


def test_mm_fails_for_a_type_of_arithmetic_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="cubeMathType"):
        launches.launch("aclnnMm", f32([1]), f32([1]), f32([0]), 77)


def test_relu_keeps_what_is_positive(launch: Launch) -> None:
    out = f32(9, 9)
    launch("aclnnRelu", f32(-1, 2), out)
    assert out.tolist() == [0.0, 2.0]


def test_inplace_relu_writes_its_only_tensor(launch: Launch) -> None:
    tensor = f32(-1, 2)
    launch("aclnnInplaceRelu", tensor)
    assert tensor.tolist() == [0.0, 2.0]


def test_exp2_of_three_is_eight(launch: Launch) -> None:
    out = f32(0)
    launch("aclnnExp2", f32(3), out)
    assert out.tolist() == [8.0]


def test_reduce_nansum_adds_along_the_dimensions_named(launch: Launch) -> None:
    out = np.empty((2, 1), np.float32)
    launch("aclnnReduceNansum", f32([1, 2], [3, np.nan]), [1], True, FLOAT, out)
    assert out.tolist() == [[3.0], [3.0]]


def test_cat_puts_one_tensor_behind_the_other(launch: Launch) -> None:
    out = np.empty(3, np.float32)
    launch("aclnnCat", [f32(1), f32(2, 3)], 0, out)
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_split_with_size_writes_each_tensor_of_a_list(launch: Launch) -> None:
    parts = [f32(0), f32(0, 0)]
    launch("aclnnSplitWithSize", f32(1, 2, 3), [1, 2], 0, parts)
    assert [part.tolist() for part in parts] == [[1.0], [2.0, 3.0]]


def test_cumsum_adds_in_the_type_named(launch: Launch) -> None:
    out = np.empty(2, np.int8)
    launch("aclnnCumsum", f32(1.5, -2.5), 0, INT8, out)
    assert out.tolist() == [1, -1]


def test_inplace_copy_broadcasts_into_its_first_tensor(launch: Launch) -> None:
    target = f32(0, 0)
    launch("aclnnInplaceCopy", target, f32(7))
    assert target.tolist() == [7.0, 7.0]


def test_the_same_seed_gives_the_same_random_numbers(launch: Launch) -> None:
    first, second, third = np.empty((3, 4), np.float32)
    for target, seed in (first, 1), (second, 1), (third, 2):
        launch("aclnnInplaceNormal", target, 0.0, 1.0, seed, 0)
    assert first.tolist() == second.tolist() != third.tolist()


def test_a_number_of_more_than_32_bits_arrives_whole(launch: Launch) -> None:
    first, second = np.empty((2, 4), np.float32)
    for target, seed in (first, 1), (second, 2**40 + 1):
        launch("aclnnInplaceNormal", target, 0.0, 1.0, seed, 0)
    assert first.tolist() != second.tolist()


def test_each_tensor_of_a_list_gets_its_own_scalar(launch: Launch) -> None:
    out = [f32(0), f32(0)]
    launch("aclnnForeachAddScalarList", [f32(1), f32(2)], [np.float32(10), np.float32(20)], out)
    assert [tensor.tolist() for tensor in out] == [[11.0], [22.0]]


def test_resize_repeats_elements_by_an_array_of_floats(launch: Launch) -> None:
    out = np.empty((1, 1, 1, 4), np.float32)
    launch("aclnnResize", f32([[[1, 2]]]), [1.0, 1.0, 1.0, 2.0], "nearest", out)
    assert out.tolist() == [[[[1.0, 1.0, 2.0, 2.0]]]]


def test_quantisation_rounds_and_saturates(launch: Launch) -> None:
    out = np.empty(3, np.int8)
    launch("aclnnAscendQuantV3", f32(0.6, 3, 900), f32(2), None, False, "round", 2, -1, out)
    assert out.tolist() == [1, 6, 127]


def test_the_gradient_of_an_embedding_leaves_out_the_padding(launch: Launch) -> None:
    out = np.empty((3, 1), np.float32)
    indices = np.array([0, 2, 2], np.int64)
    launch("aclnnEmbeddingDenseBackward", f32([1], [2], [4]), indices, 3, 0, False, out)
    assert out.tolist() == [[0.0], [0.0], [6.0]]


def test_the_mask_of_a_layer_norm_leaves_out_a_gradient(launch: Launch) -> None:
    x, mean, rstd = f32([1, 3]), f32([2]), f32([1])
    weight, bias = f32(0, 0), f32(0, 0)
    mask = [False, True, True]
    launch(
        "aclnnLayerNormBackward", f32([5, 7]), x, [2], mean, rstd, None, None, mask, None, weight,
        bias,
    )  # fmt: skip
    assert (weight.tolist(), bias.tolist()) == ([-5.0, 7.0], [5.0, 7.0])


def test_the_input_gradient_of_a_layer_norm_of_a_constant_gradient_is_zero(launch: Launch) -> None:
    out, mask = f32([9, 9]), [True, False, False]
    rest = (None, None)
    launch(
        "aclnnLayerNormBackward", f32([5, 5]), f32([1, 3]), [2], f32([2]), f32([1]), None, None,
        mask, out, *rest,
    )  # fmt: skip
    assert out.tolist() == [[0.0, 0.0]]


def test_the_gradients_of_a_convolution_of_one_pixel(launch: Launch) -> None:
    x, weight, grad = f32([[[3]]]), f32([[[2]]]), f32([[[5]]])
    outputs = f32([[[0]]]), f32([[[0]]]), f32(0)
    ones, zeros = [1, 1], [0, 0]
    launch(
        "aclnnConvolutionBackward", grad, x, weight, [1], ones, zeros, ones, False, zeros, 1,
        [True, True, True], 0, *outputs,
    )  # fmt: skip
    assert [array.item() for array in outputs] == [10.0, 15.0, 5.0]


def test_a_padded_convolution_in_two_groups_has_the_gradient_of_its_sums(launch: Launch) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    weight, grad = np.ones((2, 1, 3, 3), np.float32), np.ones((1, 2, 2, 2), np.float32)
    grad_input, grad_weight = np.empty_like(x), np.empty_like(weight)
    ones = [1, 1]
    launch(
        "aclnnConvolutionBackward", grad, x, weight, [2], ones, ones, ones, False, [0, 0], 2,
        [True, True, False], 0, grad_input, grad_weight, None,
    )  # fmt: skip
    assert grad_input.tolist() == np.full((1, 2, 2, 2), 4.0).tolist()
    assert grad_weight[:, 0, 1, 1].tolist() == [6.0, 22.0]


def test_the_vendor_scales_by_a_double(launch: Launch) -> None:
    out = f32(0)
    launch("aclnnVendorScale", f32(3), 1.5, out, package="custom")
    assert out.tolist() == [4.5]
