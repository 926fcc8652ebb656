"""Losses and their gradients: integers, sums beyond a dtype, means, digits, what is looked at."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.dtypes import BF16, FLOAT16
from npucall.operators.binary_cross_entropy import binary_cross_entropy
from npucall.operators.binary_cross_entropy_backward import binary_cross_entropy_backward
from npucall.operators.binary_cross_entropy_with_logits import binary_cross_entropy_with_logits
from npucall.operators.binary_cross_entropy_with_logits_backward import (
    binary_cross_entropy_with_logits_backward,
)
from npucall.operators.binary_cross_entropy_with_logits_target_backward import (
    binary_cross_entropy_with_logits_target_backward,
)
from npucall.operators.kl_div import kl_div
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.l1_loss import l1_loss
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.mse_loss_backward import mse_loss_backward
from npucall.operators.smooth_l1_loss import smooth_l1_loss
from npucall.operators.smooth_l1_loss_backward import smooth_l1_loss_backward
from npucall.operators.soft_margin_loss import soft_margin_loss
from npucall.operators.soft_margin_loss_backward import soft_margin_loss_backward
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

from .calls import BATCHMEAN, LOCAL, MEAN, NAN, NONE, SUM, draw, refusal, run
from .ulp import SINGLE_NOISE, assert_within, ulp

LOGITS = ("grad_output", "self", "target", "weight", "pos_weight")
PAIR = ("self", "target")


def of(names: tuple[str, ...], *values: Any, kind: Any = np.float32) -> dict[str, Any]:
    """A tensor of each name, of one number or of several."""
    return {n: np.array(v, kind, ndmin=1) for n, v in zip(names, values, strict=True)}


@each("operator", [binary_cross_entropy, kl_div, smooth_l1_loss, l1_loss])
@each("one", [(1,), (1, 1)])
def test_what_is_reduced_goes_into_one_element_of_any_rank(operator: Any, one: Any) -> None:
    tensors = draw(operator, np.float32)
    changes = {"reduction": SUM, operator.outputs[0].name: {"shape": one}}
    if refusal(operator, changes) is not None:
        assert operator is l1_loss  # which wants rank 0
        return
    found = run(operator, tensors, out=np.empty(one, np.float32), reduction=SUM)
    assert found.shape == one
    assert found.item() == run(operator, tensors, reduction=SUM)


@each(
    "operator weight",
    [
        (binary_cross_entropy, (0, 3)),
        (binary_cross_entropy_with_logits, (4, 5)),  # nobody looks at its shape
    ],
)
def test_of_nothing_all_of_an_output_of_any_shape_is_filled(operator: Any, weight: Any) -> None:
    tensors = dict.fromkeys(PAIR, np.zeros((0, 3), np.float32))
    tensors["weight"] = np.zeros(weight, np.float32)
    for reduction, expected in ((NONE, 0), (MEAN, NAN), (SUM, 0)):
        out = np.full((2, 3), 7, np.float32)
        found = run(operator, tensors, out=out, reduction=reduction)
        np.testing.assert_array_equal(found, np.full((2, 3), expected))


@each(
    "operator",
    [
        binary_cross_entropy_backward,
        binary_cross_entropy_with_logits_backward,
        binary_cross_entropy_with_logits_target_backward,
    ],
)
def test_shapes_beside_an_empty_self_are_not_looked_at(operator: Any) -> None:
    names = [p.name for p in (*operator.inputs, *operator.outputs) if p.name != "self"]
    passing = {n: {"self": {"shape": (0, 3)}, n: {"shape": (4, 5)}} for n in names}
    assert not {name for name, changes in passing.items() if refusal(operator, changes)}


@each(
    "of_self of_target expected",
    [
        ((0, 3), (0, 3), NAN),
        ((3, 0), (3, 0), 0),
        ((2, 0), (3,), 0),  # which broadcast to nothing
        ((0, 2), (3,), NAN),
        ((1, 3), (0, 3), 0),
        ((), (0,), 0),
    ],
)
def test_of_nothing_the_batchmean_is_nan_if_self_has_no_rows_and_else_0(
    of_self: Any, of_target: Any, expected: float
) -> None:
    tensors = {"self": np.zeros(of_self, np.float32), "target": np.zeros(of_target, np.float32)}
    for reduction, result in ((BATCHMEAN, expected), (MEAN, NAN), (SUM, 0)):
        found = run(kl_div, tensors, reduction=reduction)
        assert found.shape == ()
        np.testing.assert_array_equal(found, result)


def test_an_output_is_zeros_where_shapes_of_nothing_do_not_even_broadcast() -> None:
    tensors = {"self": np.zeros((2, 0), np.float32), "target": np.zeros(3, np.float32)}
    found = run(kl_div, tensors, out=np.full((2, 2), 7, np.float32), reduction=NONE)
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


@each("target", [(1, 4), (1, 1), (4,), ()])
def test_the_gradient_of_a_target_beside_an_empty_self_is_0(target: Any) -> None:
    shapes = {"grad_output": (), "self": (0, 4), "target": target}
    tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    for reduction in (NONE, MEAN, SUM, BATCHMEAN):
        found = run(kl_div_target_backward_builtin, tensors, reduction=reduction)
        np.testing.assert_array_equal(found, np.zeros(target))


def test_tiny_losses_keep_their_digits() -> None:
    found = run(binary_cross_entropy, of(PAIR, 1e-9, 0), reduction=NONE)
    np.testing.assert_allclose(found, 1e-9, rtol=1e-6)
    found = run(soft_margin_loss, of(PAIR, 40, 1), reduction=NONE)
    np.testing.assert_allclose(found, np.exp(-40.0), rtol=1e-6)


@each(
    "x t expected",
    [(0.0, 1.0, -1e12), (1.0, 0.0, 1e12), (2.0, 0.0, 2e12), (-1.0, 0.0, -1e12), (1e-13, 0.0, 0.1)],
)
def test_the_divisor_of_the_gradient_is_1e_12_at_least(x: float, t: float, expected: float) -> None:
    # The variance, also of numbers beyond 0 to 1; torch's 1e-12 is of float32, also in float64.
    tensors = of(LOGITS[:3], 1.0, x, t, kind=np.float64)
    found = compute(binary_cross_entropy_backward, **tensors, reduction=NONE)
    np.testing.assert_allclose(found, [expected], rtol=1e-12)
    single = {name: array.astype(np.float32) for name, array in tensors.items()}
    found = run(binary_cross_entropy_backward, single, reduction=NONE)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


@each("x", [-1e30, -85.0, 85.0, 1e30])
def test_large_logits_do_not_overflow(x: float) -> None:
    found = run(binary_cross_entropy_with_logits, of(PAIR, x, 0), reduction=NONE)
    np.testing.assert_array_equal(found, np.array([max(x, 0)], np.float32))  # what is left cancels


@each("x", [-85.0, -20.0, 20.0, 85.0, 200.0])
def test_large_logits_neither_overflow_nor_lose_the_gradient(x: float) -> None:
    tensors = of(LOGITS, 1, x, 0, 1, 1)
    found = run(binary_cross_entropy_with_logits_backward, tensors, reduction=NONE)
    np.testing.assert_allclose(found, [1 / (1 + np.exp(-x))], rtol=1e-6)  # e^-85 is 1.2e-37


# ln sigmoid(20) is -2e-9, which only a large weight makes seen
@each("x weight", [(-200, 2), (-20, 2), (20, 2), (20, 1e12), (200, 2)])
def test_large_logits_neither_overflow_nor_lose_the_gradient_of_the_target(
    x: float, weight: float
) -> None:
    tensors = of(LOGITS, 1, x, 0, 1, weight)
    found = run(binary_cross_entropy_with_logits_target_backward, tensors, reduction=NONE)
    expected = weight * np.logaddexp(0, -x) - np.logaddexp(0, x)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


@each("name", ["weight", "pos_weight"])
def test_a_weight_is_rounded_to_the_dtype_of_self_and_target(name: str) -> None:
    tensors = {"self": np.zeros(2, np.float16), "target": np.ones(2, np.float16)}
    wide = np.array([1 + 2.0**-12, 3], np.float32)
    expected, found = (
        run(binary_cross_entropy_with_logits, {**tensors, name: weight}, reduction=NONE)
        for weight in (wide.astype(np.float16), wide)
    )
    np.testing.assert_array_equal(found, expected)
    mixed = {"self": np.zeros(4096, np.float32), "target": np.ones(4096, np.float16)}
    mixed[name] = np.array([1 + 2.0**-12] * 4096, np.float32)
    found = run(binary_cross_entropy_with_logits, mixed, reduction=SUM)
    assert found == np.float16(4097 * np.log(2))  # in FLOAT nothing of it is lost


@each("kind", [np.int32, np.bool_, np.float64, np.uint8])
@each("name", ["weight", "pos_weight"])
def test_weights_may_have_any_real_dtype(kind: Any, name: str) -> None:
    tensors = draw(binary_cross_entropy_with_logits, np.float32)
    weight = (tensors["self"] > 0.5).astype(kind)
    expected, found = (
        run(binary_cross_entropy_with_logits, {**tensors, name: each})
        for each in (weight.astype(np.float32), weight)
    )
    np.testing.assert_array_equal(found, expected)


def test_a_beta_counts_as_a_float32() -> None:
    tenth = np.float32(0.1)
    below = np.nextafter(tenth, np.float32(0))
    tensors = {"self": np.array([0.1, below], np.float32), "target": np.zeros(2, np.float32)}
    far, near = tenth - np.float32(0.5) * tenth, np.float32(0.5) * below * below / tenth
    found = run(smooth_l1_loss, tensors, reduction=NONE, beta=0.1)
    np.testing.assert_array_equal(found, [far, near])
    exact = of(("grad_out", *PAIR), 1.0, 0.05, 0.0, kind=np.float64)
    assert compute(smooth_l1_loss_backward, **exact, beta=0.1) == [0.05 / float(tenth)]


def test_a_sum_of_float16_is_right_in_a_wider_output() -> None:
    tensors = {"self": np.full(7, 10000, np.float16), "target": np.zeros(7, np.float32)}
    found = run(binary_cross_entropy_with_logits, tensors, reduction=SUM)
    assert (found.dtype, found.item()) == (np.float32, 70000)


def test_int64_is_computed_in_integers_without_a_reduction_and_as_a_sum() -> None:
    large = 2**53
    tensors = {"self": np.array([large + 1, 5]), "target": np.array([[0], [2]])}
    found = run(l1_loss, tensors, reduction=NONE)
    np.testing.assert_array_equal(found, [[large + 1, 5], [large - 1, 3]])
    found = run(l1_loss, tensors, reduction=SUM)
    assert (found.dtype, found.item()) == (np.int64, 2 * large + 8)


def test_an_integer_self_beside_a_floating_target_passes_where_something_is_reduced() -> None:
    tensors = {"self": np.array([3, 1]), "target": np.array([1, 0.5], np.float32)}
    assert run(l1_loss, tensors, reduction=MEAN) == 1.25
    assert run(l1_loss, tensors, reduction=SUM) == 2.5


def test_integers_lose_what_their_promoted_dtype_has_not_before_the_difference() -> None:
    tensors = {"self": np.array([2048], np.float16), "target": np.array([2049])}
    np.testing.assert_array_equal(run(l1_loss, tensors, reduction=NONE), [0])


def test_a_difference_beyond_float16_is_finite_once_the_mean_brings_it_back() -> None:
    tensors = of(LOGITS[:3], [1] * 4, [6e4] * 4, [-6e4] * 4, kind=np.float16)
    found = run(mse_loss_backward, tensors, reduction=MEAN)
    np.testing.assert_array_equal(found, [60000] * 4)  # 240000 / 4


def test_a_mean_divides_by_the_elements_of_self_also_where_others_stretch_it() -> None:
    ones, x, t = np.ones((4, 2)), np.array([3.0, 5.0]), np.zeros(2)
    found = compute(mse_loss_backward, ones, x, t, reduction=MEAN)
    np.testing.assert_array_equal(found, [[3, 5]] * 4)  # 2 * x / 2, and not / 8
    x = np.array([3.0, 0.5])
    found = compute(smooth_l1_loss_backward, ones, x, t, reduction=MEAN, beta=1.0)
    np.testing.assert_array_equal(found, [[0.5, 0.25]] * 4)  # 1 / 2 and 0.5 / 2, and not / 8


def test_a_mean_divides_by_the_elements_of_the_result_unlike_torchs() -> None:
    found = compute(
        soft_margin_loss_backward, np.full((4, 1), 8.0), np.zeros(2), np.ones((4, 2)), MEAN
    )
    np.testing.assert_array_equal(found, [[-0.5] * 2] * 4)  # -1 / 2 * 8 / 8; torch divides by 2
    x, t = np.array([3.0, 0]), np.array([1.0, 2])
    found = compute(l1_loss_backward, np.full((3, 1), 6.0), x, t, reduction=MEAN)
    np.testing.assert_array_equal(found, [[1, -1]] * 3)  # 6 / 6; torch does not count grad_output


@each("product", [ASCEND_910, ASCEND_310P, ASCEND_310B])
@each("name", LOGITS[:3])
def test_older_products_take_bf16_beside_another_float(product: Any, name: str) -> None:
    # Only the promoted dtype, FLOAT here, has to be in the list.
    short = {n: {"dtype": FLOAT16} for n in LOGITS[:3] if n != name}
    for others in ({}, short):
        changes = {**others, name: {"dtype": BF16}}
        assert refusal(l1_loss_backward, changes, product) is None


@each("rows", [65_537, 300_003])
def test_long_sums_of_gradients_are_what_float64_gives(rows: int) -> None:
    random = np.random.default_rng(0)
    g, t = np.float32(-1.25), random.uniform(0.05, 1.5, (rows, 2)).astype(np.float32)
    found = LOCAL.run(kl_div_backward, g, np.zeros((1, 2), np.float32), t, reduction=NONE)
    assert_summed(found, -np.float64(g) * t.astype(np.float64))
    s, t = (
        random.uniform(-3, 0.5, (rows, 2)).astype(np.float32),
        np.array([[0.75, 1.25]], np.float32),
    )
    found = LOCAL.run(kl_div_target_backward_builtin, g, s, t, reduction=NONE)
    logs = np.log(t.astype(np.float64))
    assert_summed(found, np.float64(g) * (logs - s + 1), np.abs(g) * (np.abs(logs) + np.abs(s) + 1))


def assert_summed(found: Any, parts: Any, sizes: Any = None) -> None:
    expected = parts.sum(0, keepdims=True)
    noise = SINGLE_NOISE * np.abs(parts if sizes is None else sizes).sum(0, keepdims=True)
    assert_within(found, expected, ulp(expected, np.float32) + noise)


def test_sums_of_several_blocks_have_the_same_bits_in_many_threads() -> None:
    shapes = {"grad_output": (300, 1), "self": (300, 1), "target": (1, 257)}
    random = np.random.default_rng(1)
    tensors = {n: random.uniform(0.05, 1, each).astype(BF16.numpy) for n, each in shapes.items()}
    expected = run(kl_div_backward, tensors).tobytes()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: run(kl_div_backward, tensors).tobytes(), range(8)))
    assert found == [expected] * 8
