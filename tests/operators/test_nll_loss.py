"""The negative log-likelihood of rows and of pixels, and its gradients: labels, weights, sums."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.declare.cuts import BLOCK
from npucall.errors import PARAM_INVALID, ShapeError
from npucall.operators.nll_loss import nll_loss
from npucall.operators.nll_loss2d import nll_loss2d
from npucall.operators.nll_loss2d_backward import nll_loss2d_backward
from npucall.operators.nll_loss_backward import nll_loss_backward

from .calls import INF, LOCAL, MEAN, NAN, NONE, SUM, refusal, run

LABELS = [2, 0, 1, 3, 2, 0]
WEIGHT = np.arange(1, 5, dtype=np.float32) / 4
NO_CLASS = [-1, 4, -100, 2**32 + 1, -(2**63), 2**63 - 1]


def rows(target: Any = LABELS) -> dict[str, Any]:
    """Inputs of the loss of rows of four classes."""
    random = np.random.default_rng(3)
    self = random.uniform(-4, 0, (len(target), 4)).astype(np.float32)
    return {"self": self, "target": np.asarray(target), "weight": WEIGHT}


def pixels(target: Any) -> dict[str, Any]:
    """The same numbers as an image of one row of pixels."""
    given = rows(target)
    image = np.moveaxis(given["self"][np.newaxis, np.newaxis], -1, 1).copy()
    return {**given, "self": image, "target": given["target"][np.newaxis, np.newaxis]}


def gradient(tensors: dict[str, Any], g: Any, total: float = 2) -> dict[str, Any]:
    """Inputs of the gradient, of those of the loss."""
    more = {"grad_output": np.float32(g), "total_weight": np.float32(total)}
    return {**tensors, **more}


@each("label", NO_CLASS)
def test_a_label_that_is_no_class_counts_for_nothing(label: int) -> None:
    tensors = rows([1, label, 3])
    tensors["self"][1] = NAN
    losses, total = run(nll_loss, tensors, reduction=NONE, ignore_index=7)
    expected = -WEIGHT[[1, 0, 3]] * tensors["self"][[0, 1, 2], [1, 0, 3]]
    np.testing.assert_array_equal(losses, [expected[0], 0, expected[2]])
    assert total == 0
    for reduction in (SUM, MEAN):
        assert run(nll_loss, tensors, reduction=reduction, ignore_index=7)[1] == 1.5
    image = pixels([1, label, 3])
    found = run(nll_loss2d, image, reduction=SUM, ignore_index=7)
    assert [array.item() for array in found] == [
        array.item() for array in run(nll_loss, rows([1, label, 3]), reduction=SUM, ignore_index=7)
    ]


@each("label", NO_CLASS)
def test_a_label_that_is_no_class_leaves_its_row_of_the_gradient_0(label: int) -> None:
    tensors = gradient(rows([1, label, 3]), [1, 2, 3])
    found = run(nll_loss_backward, tensors, reduction=NONE, ignore_index=7)
    expected = np.zeros((3, 4))
    expected[0, 1], expected[2, 3] = -WEIGHT[1], -3 * WEIGHT[3]
    np.testing.assert_array_equal(found, expected)
    image = gradient(pixels([1, label, 3]), [[[1, 2, 3]]])
    found = run(nll_loss2d_backward, image, reduction=NONE, ignore_index=7)
    np.testing.assert_array_equal(np.moveaxis(found, 1, -1)[0, 0], expected)


def test_pixels_are_rows_of_their_own() -> None:
    for reduction in (NONE, MEAN, SUM):
        options = {"reduction": reduction, "ignore_index": 1}
        found = run(nll_loss2d, pixels(LABELS), **options)
        for one, other in zip(found, run(nll_loss, rows(), **options), strict=True):
            np.testing.assert_array_equal(one.reshape(-1), other.reshape(-1))


def test_a_single_row_of_classes_has_one_label_and_one_loss() -> None:
    self = np.array([-1, -2, -3, -4], np.float32)
    tensors = {"self": self, "target": np.array(1), "weight": WEIGHT}
    found = [run(nll_loss, tensors, reduction=r, ignore_index=-100) for r in (NONE, MEAN, SUM)]
    assert [(loss.item(), total.item()) for loss, total in found] == [(1, 0), (2, 0.5), (1, 0.5)]
    assert {loss.shape for loss, _ in found} == {()}
    found = run(nll_loss, tensors, out=np.zeros(1, np.float32), reduction=NONE, ignore_index=-100)
    assert found[0].tolist() == [1]


def test_if_no_row_counts_the_mean_is_nan_and_the_sum_0() -> None:
    single = {"self": rows()["self"][0], "target": np.array(2), "weight": WEIGHT}
    for tensors in (rows([2, 2]), single):
        mean, total = run(nll_loss, tensors, reduction=MEAN, ignore_index=2)
        assert np.isnan(mean)
        assert total == 0
        found = run(nll_loss, tensors, reduction=SUM, ignore_index=2)
        assert [array.item() for array in found] == [0, 0]


def test_float16_sums_are_not_rounded_before_they_are_divided() -> None:
    tensors = {
        "self": np.full((40, 1), -60000, np.float16),
        "target": np.zeros(40, np.int64),
        "weight": np.full(1, 2, np.float16),
    }
    assert run(nll_loss, tensors, reduction=MEAN, ignore_index=-100)[0] == 60000
    assert np.isinf(run(nll_loss, tensors, reduction=SUM, ignore_index=-100)[0])


def test_many_rows_are_added_up_in_blocks_of_their_own_order() -> None:
    count = 2 * BLOCK + 5
    random = np.random.default_rng(5)
    tensors = {
        "self": random.uniform(-1, 0, (count, 2)).astype(np.float32),
        "target": random.integers(0, 2, count),
        "weight": np.ones(2, np.float32),
    }
    losses, _ = run(nll_loss, tensors, reduction=NONE, ignore_index=-100)
    blocks = [np.sum(losses[n : n + BLOCK], dtype=np.float64) for n in range(0, count, BLOCK)]
    loss, total = run(nll_loss, tensors, reduction=SUM, ignore_index=-100)
    assert loss == np.float32(blocks[0] + blocks[1] + blocks[2])
    assert total == count


def test_a_reduced_loss_of_one_element_has_any_rank() -> None:
    outputs = {name: np.zeros((1, 1, 1), np.float32) for name in ("out", "total_weight_out")}
    given = {**pixels(LABELS), "reduction": MEAN, "ignore_index": -100}
    LOCAL.options(outputs=outputs).run(nll_loss2d, **given)
    expected = LOCAL.run(nll_loss2d, **given)
    assert [array.item() for array in outputs.values()] == [array.item() for array in expected]


def test_the_total_weight_is_used_as_given_and_for_mean_only() -> None:
    tensors = gradient(rows([1]), 2, total=0)
    tensors["weight"] = np.array([1, -3, 0, 1], np.float32)
    found = run(nll_loss_backward, tensors, reduction=MEAN, ignore_index=-100)
    assert found.tolist() == [[0, INF, 0, 0]]  # -(2 / 0) * -3
    found = run(nll_loss_backward, tensors, reduction=SUM, ignore_index=-100)
    assert found.tolist() == [[0, 6, 0, 0]]
    image = gradient(pixels([1]), 2, total=0)
    assert np.isinf(run(nll_loss2d_backward, image, reduction=MEAN, ignore_index=-100)).sum() == 1


@each("value", [INF, -INF, NAN])
def test_a_gradient_that_is_no_number_stays_in_its_row(value: float) -> None:
    tensors = gradient(rows([1, 0, 1]), [1, value, value])
    tensors |= {"weight": np.ones(4, np.float32), "self": np.full((3, 4), NAN, np.float32)}
    found = run(nll_loss_backward, tensors, reduction=NONE, ignore_index=0)
    np.testing.assert_array_equal(found, [[0, -1, 0, 0], [0, 0, 0, 0], [0, -value, 0, 0]])


@each(
    "self target passes",
    [
        ((4,), (), True),
        ((1,), (1,), True),
        ((4,), (1,), False),
        ((4,), (4,), False),  # the software lets it pass
        ((1, 4), (), False),  # likewise
        ((1, 4), (1,), True),
    ],
)
def test_there_is_one_label_for_each_row(self: Any, target: Any, passes: bool) -> None:
    shapes = {"self": self, "out": self, "target": target, "weight": self[-1:], "grad_output": (1,)}
    assert_shapes(shapes, 1, () if passes else ("target",))


@each(
    "reduction self grad_output passes",
    [
        (NONE, (3, 4), (3,), True),
        (MEAN, (3, 4), (3,), False),
        (SUM, (3, 4), (1,), True),
        (MEAN, (3, 4), (), True),
        (SUM, (3, 4), (1, 1), False),
        (NONE, (4,), (), True),
        (NONE, (4,), (1,), True),
        (NONE, (4,), (4,), False),
    ],
)
def test_the_gradient_has_an_element_for_each_row_without_reduction_only(
    reduction: int, self: Any, grad_output: Any, passes: bool
) -> None:
    shapes = {"self": self, "out": self, "target": self[:-1], "grad_output": grad_output}
    assert_shapes(shapes, reduction, () if passes else ("grad_output",))


def assert_shapes(shapes: dict[str, Any], reduction: int, blamed: tuple[str, ...]) -> None:
    """That the gradient takes tensors of four classes in these shapes, or blames one of them."""
    changes: dict[str, Any] = {name: {"shape": shape} for name, shape in shapes.items()}
    changes.setdefault("weight", {"shape": (4,)})
    answer = refusal(nll_loss_backward, {**changes, "reduction": reduction})
    assert answer == ((ShapeError, PARAM_INVALID, blamed) if blamed else None)
