"""aclnnNLLLoss: prototype, values against torch, labels, totals, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.declare.cuts import BLOCK
from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import DTypeError, ShapeError
from npucall.operators.nll_loss import nll_loss
from npucall.operators.nll_loss_backward import nll_loss_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import Fault, Table, dtype, null, reductions_beyond_2, shape
from .gradients import FLOATS, LOCAL, NAN
from .nll import given, sizes_of, torch_backward, worked
from .subject import MEAN, NONE, SUM, WITH_BF16, Subject, aten_of, between, every, labels

LABELS = np.array([2, 0, 1, 3, 2, 0])
ALL = ("self", "weight", "out", "total_weight_out")


def rows(self: tuple[int, ...], target: tuple[int, ...]) -> Fault:
    """Labels of which there is not one for each row."""
    changes = {"self": {"shape": self}, "target": {"shape": target}}
    return Fault(changes, ShapeError, ("self", "target"))


# The checks, in order [src:nll-loss]
TABLE = Table(
    nll_loss,
    {
        "self": given((3, 4)),
        "target": given((3,), INT64),
        "weight": given((4,)),
        "out": given((3,)),
        "total_weight_out": given(()),
        "reduction": NONE,
        "ignore_index": -100,
    },
    [
        *null("self", "target", "weight", "out", "total_weight_out"),
        *dtype(FLOAT16, "weight"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *dtype(INT32, "total_weight_out"),
        *dtype(BOOL, "total_weight_out"),
        Fault({n: {"dtype": DOUBLE} for n in ALL}, DTypeError, ("self",)),
        *dtype(FLOAT, "target"),
        *dtype(INT8, "target"),
        *reductions_beyond_2(),
        *shape((3, 4, 1), "self"),
        *shape((), "self"),
        *shape((3, 1), "target"),
        rows((3, 4), (4,)),
        rows((3, 4), ()),  # in every other respect it would be fine
        rows((4,), (1,)),
        *shape((3,), "weight"),
        *shape((4, 1), "weight"),
        *(Fault({"reduction": 0, "out": {"shape": s}}, ShapeError, ("out",)) for s in ((1,), ())),
        Fault({"reduction": 1}, ShapeError, ("out",)),
        Fault({"reduction": 2, "out": {"shape": (1, 1)}}, ShapeError, ("out",)),
        *shape((2,), "total_weight_out"),
        *shape((0,), "total_weight_out"),
        Fault({"self": {"shape": (3, 0)}, "weight": {"shape": (0,)}}, ShapeError, ("target",)),
    ],
)
torch_says = aten_of(nll_loss, "nll_loss_forward")


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclTensor* target, const aclTensor* weight, "
        "int64_t reduction, int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    typed=("self", "weight"),
    attributes={"reduction": MEAN, "ignore_index": -100},
    shapes={"self": (6, 4), "target": (6,), "weight": (4,)},
    values={"target": labels(4), "weight": between(0.25, 2)},
    torch=torch_says,
    calls=every(reduction=(NONE, MEAN, SUM), ignore_index=(-100, 2, 0)),
    noise=sizes_of(torch_says),
    casts=(*FLOATS, np.float64, np.complex64),
)


def sample(target: Any = LABELS, kind: Any = np.float32) -> dict[str, Any]:
    random = np.random.default_rng(3)
    tensors = {"self": random.uniform(-4, 0, (len(target), 4)), "weight": np.arange(1, 5) / 4}
    return {n: a.astype(kind) for n, a in tensors.items()} | {"target": np.asarray(target)}


def run(tensors: dict[str, Any], reduction: int, ignore_index: int = -100) -> Any:
    return LOCAL.run(nll_loss, **tensors, reduction=reduction, ignore_index=ignore_index)


def test_the_worked_example_comes_out(client: Any) -> None:
    # F6 of [src:worked-examples]
    for reduction, ignore_index, loss, total in worked():
        tensors = {"self": np.log([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]), "weight": [0.5, 2, 3]}
        tensors = {name: np.asarray(array) for name, array in tensors.items()}
        call: Any = {"target": np.array([2, 0]), "reduction": reduction}
        call |= {"ignore_index": ignore_index}
        exact = compute(nll_loss, **tensors, **call)
        np.testing.assert_allclose(exact[0], loss, atol=5e-9, rtol=0)
        assert exact[1] == total
        single = {name: array.astype(np.float32) for name, array in tensors.items()}
        found = client.run(nll_loss, **single, **call)
        np.testing.assert_allclose(found[0], loss, rtol=2e-7)
        assert found[1] == total


def test_a_single_row_of_classes_has_one_label_and_one_loss() -> None:
    tensors = sample() | {"self": np.array([-1, -2, -3, -4], np.float32), "target": np.array(1)}
    found = [run(tensors, reduction) for reduction in (NONE, MEAN, SUM)]
    assert [(loss.item(), total.item()) for loss, total in found] == [(1, 0), (2, 0.5), (1, 0.5)]
    assert {loss.shape for loss, _ in found} == {()}
    client = LOCAL.options(outputs={"out": np.zeros(1, np.float32)})
    assert client.run(nll_loss, **tensors, reduction=NONE)[0].tolist() == [1]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_labels_of_every_integer_type_mean_the_same(kind: Any) -> None:
    found = run(sample(LABELS.astype(kind)), NONE, 3)
    np.testing.assert_array_equal(found[0], run(sample(), NONE, 3)[0])


@pytest.mark.parametrize("label", [-1, 4, -100, 2**32 + 1, -(2**63), 2**63 - 1])
def test_a_label_that_is_no_class_counts_for_nothing(label: int) -> None:
    tensors = sample([1, label, 3])
    tensors["self"][1] = NAN
    losses, total = run(tensors, NONE, 7)
    expected = -tensors["weight"][[1, 0, 3]] * tensors["self"][[0, 1, 2], [1, 0, 3]]
    np.testing.assert_array_equal(losses, [expected[0], 0, expected[2]])
    assert total == 0
    assert run(tensors, SUM, 7)[1] == run(tensors, MEAN, 7)[1] == 1.5


def test_if_no_row_counts_the_mean_is_nan_and_the_sum_0() -> None:
    for tensors in (sample([2, 2]), sample() | {"self": sample()["self"][0], "target": 2}):
        given = tensors | {"target": np.asarray(tensors["target"])}
        mean, total = run(given, MEAN, 2)
        assert np.isnan(mean)
        assert total == 0
        assert [array.item() for array in run(given, SUM, 2)] == [0, 0]


def test_of_no_rows_the_mean_is_nan_and_the_total_weight_0() -> None:
    for kind in FLOATS:
        tensors = sample(np.zeros(0, np.int64), kind)
        for reduction, expected in ((NONE, []), (MEAN, NAN), (SUM, 0)):
            loss, total = run(tensors, reduction)
            np.testing.assert_array_equal(loss.astype(np.float32), expected)
            assert (total.item(), total.shape, total.dtype) == (0, (), kind)


def test_float16_sums_are_not_rounded_before_they_are_divided() -> None:
    tensors = {"self": np.full((40, 1), -60000, np.float16), "weight": np.full(1, 2, np.float16)}
    tensors["target"] = np.zeros(40, np.int64)
    assert run(tensors, MEAN)[0] == 60000
    assert np.isinf(run(tensors, SUM)[0])


def test_many_rows_are_added_up_in_blocks_of_their_own_order() -> None:
    count = 2 * BLOCK + 5
    random = np.random.default_rng(5)
    tensors = {
        "self": random.uniform(-1, 0, (count, 2)).astype(np.float32),
        "target": random.integers(0, 2, count),
        "weight": np.ones(2, np.float32),
    }
    losses, _ = run(tensors, NONE)
    blocks = [np.sum(losses[n : n + BLOCK], dtype=np.float64) for n in range(0, count, BLOCK)]
    loss, total = run(tensors, SUM)
    assert loss == np.float32(blocks[0] + blocks[1] + blocks[2])
    assert total == count


@pytest.mark.torch
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_loss_and_gradient_one_behind_the_other_are_autograds(
    reduction: int, ignore_index: int
) -> None:
    pytest.importorskip("torch")
    tensors = sample(kind=np.float64)
    options = {"reduction": reduction, "ignore_index": ignore_index}
    loss, total = compute(nll_loss, **tensors, **options)
    g = np.random.default_rng(6).uniform(-1, 1, loss.shape)
    found = compute(nll_loss_backward, g, **tensors, **options, total_weight=total)
    expected = torch_backward(tensors, g, **options)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-14)
    np.testing.assert_allclose(found, expected[1], rtol=1e-14)
