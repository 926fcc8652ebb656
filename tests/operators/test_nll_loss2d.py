"""aclnnNLLLoss2d: prototype, values against torch, labels, totals, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import ShapeError
from npucall.operators.nll_loss import nll_loss
from npucall.operators.nll_loss2d import nll_loss2d
from npucall.operators.nll_loss2d_backward import nll_loss2d_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import Fault, Table, dtype, null, reductions_beyond_2, shape
from .gradients import FLOATS, LOCAL, NAN
from .nll import given, sizes_of, torch_backward
from .subject import MEAN, NONE, SUM, WITH_BF16, Subject, aten_of, between, every, labels

SHAPE, PIXELS = (2, 3, 4, 5), (2, 4, 5)


# The checks, in order [src:nll-loss]
TABLE = Table(
    nll_loss2d,
    {
        "self": given(SHAPE),
        "target": given(PIXELS, INT64),
        "weight": given((3,)),
        "out": given(PIXELS),
        "total_weight_out": given((1,)),
        "reduction": NONE,
        "ignore_index": -100,
    },
    [
        *null("self", "target", "weight", "out", "total_weight_out"),
        *dtype(DOUBLE, "self"),
        *dtype(FLOAT16, "self"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *dtype(INT32, "total_weight_out"),
        *dtype(BOOL, "total_weight_out"),
        *dtype(FLOAT, "target"),
        *dtype(INT8, "target"),
        *reductions_beyond_2(),
        *shape((2, 3, 20), "self"),
        *shape((4,), "weight"),
        *shape((3, 1), "weight"),  # the software looks at its first extent alone
        *shape((), "weight"),
        *shape((2, 20), "target"),
        *shape((2, 5, 4), "target"),
        *shape((1, 4, 5), "target"),
        *shape((2, 4), "out"),
        Fault({"reduction": 0, "out": {"shape": (1,)}}, ShapeError, ("out",)),
        Fault({"reduction": 1}, ShapeError, ("out",)),
        Fault({"reduction": 2, "out": {"shape": (2,)}}, ShapeError, ("out",)),
        *shape((2,), "total_weight_out"),
        *shape((0,), "total_weight_out"),
    ],
)
torch_says = aten_of(nll_loss2d, "nll_loss2d_forward")


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
    shapes={"self": SHAPE, "target": PIXELS, "weight": (3,)},
    values={"target": labels(3), "weight": between(0.25, 2)},
    torch=torch_says,
    calls=every(reduction=(NONE, MEAN, SUM), ignore_index=(-100, 2, 0)),
    noise=sizes_of(torch_says),
    casts=(*FLOATS, np.float64, np.complex64),
)


def sample(kind: Any = np.float32) -> dict[str, Any]:
    random = np.random.default_rng(4)
    tensors = {"self": random.uniform(-4, 0, SHAPE), "weight": np.array([0.5, 1, 2])}
    tensors = {name: array.astype(kind) for name, array in tensors.items()}
    return tensors | {"target": random.integers(0, 3, PIXELS)}


def run(tensors: dict[str, Any], reduction: int, ignore_index: int = -100) -> Any:
    return LOCAL.run(nll_loss2d, **tensors, reduction=reduction, ignore_index=ignore_index)


def test_pixels_are_rows_of_their_own() -> None:
    tensors = sample()
    rows = tensors | {
        "self": np.moveaxis(tensors["self"], 1, -1).reshape(-1, 3),
        "target": tensors["target"].reshape(-1),
    }
    for reduction in (NONE, MEAN, SUM):
        options = {"reduction": reduction, "ignore_index": 1}
        for one, other in zip(
            run(tensors, **options), LOCAL.run(nll_loss, **rows, **options), strict=True
        ):
            np.testing.assert_array_equal(one.reshape(-1), other.reshape(-1))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_labels_of_every_integer_type_mean_the_same(kind: Any) -> None:
    tensors = sample()
    found = run(tensors | {"target": tensors["target"].astype(kind)}, NONE, 2)
    np.testing.assert_array_equal(found[0], run(tensors, NONE, 2)[0])


@pytest.mark.parametrize("label", [-1, 3, 2**32 + 1, -(2**63)])
def test_a_label_that_is_no_class_counts_for_nothing(label: int) -> None:
    tensors = sample()
    tensors["target"][...] = 2
    tensors["target"][1, 2, 3] = label
    tensors["self"][1, :, 2, 3] = NAN
    losses, _ = run(tensors, NONE)
    assert losses[1, 2, 3] == 0
    assert np.count_nonzero(losses) == 39
    assert run(tensors, MEAN)[1] == run(tensors, SUM)[1] == 78


def test_a_reduced_loss_of_one_element_has_any_rank() -> None:
    tensors = sample()
    outputs = {name: np.zeros((1, 1, 1), np.float32) for name in ("out", "total_weight_out")}
    LOCAL.options(outputs=outputs).run(nll_loss2d, **tensors, reduction=MEAN)
    assert [array.item() for array in outputs.values()] == [a.item() for a in run(tensors, MEAN)]


@pytest.mark.parametrize("of", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_of_nothing_the_mean_is_nan_and_the_total_weight_0(of: tuple[int, ...]) -> None:
    tensors = {
        "self": np.zeros(of, np.float16),
        "target": np.zeros((of[0], *of[2:]), np.int64),
        "weight": np.zeros(of[1], np.float16),
    }
    for reduction, expected in ((NONE, np.zeros((of[0], *of[2:]))), (MEAN, NAN), (SUM, 0)):
        loss, total = run(tensors, reduction)
        np.testing.assert_array_equal(loss, expected)
        assert (total.item(), total.shape, total.dtype) == (0, (), np.float16)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_loss_and_gradient_one_behind_the_other_are_autograds(
    reduction: int, ignore_index: int
) -> None:
    pytest.importorskip("torch")
    tensors = sample(np.float64)
    options = {"reduction": reduction, "ignore_index": ignore_index}
    loss, total = compute(nll_loss2d, **tensors, **options)
    g = np.random.default_rng(6).uniform(-1, 1, loss.shape)
    found = compute(nll_loss2d_backward, g, **tensors, **options, total_weight=total)
    expected = torch_backward(tensors, g, **options)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-14)
    np.testing.assert_allclose(found, expected[1], rtol=1e-14)
