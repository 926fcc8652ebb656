"""aclnnNLLLoss2dBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT8, INT64
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.nll_loss2d_backward import nll_loss2d_backward
from npucall.products import ASCEND_910

from .faults import Fault, Table, dtype, null, shape
from .gradients import LOCAL, aten, drawn
from .subject import WITH_BF16, Subject, aten_of, between, every, labels

NONE, MEAN, SUM = 0, 1, 2
FLOAT_TENSORS = ("grad_output", "self", "weight", "total_weight", "out")
SHAPE, PIXELS = (2, 3, 4, 5), (2, 4, 5)


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


def pixels(wrong: tuple[int, ...]) -> Fault:
    """A gradient for each label, of which there are others than pixels."""
    changes = {"target": {"shape": wrong}, "grad_output": {"shape": wrong}}
    return Fault(changes, ShapeError, ("target",))


# The checks, in order [src:nll-loss]
TABLE = Table(
    nll_loss2d_backward,
    {
        "grad_output": given(PIXELS),
        "self": given(SHAPE),
        "target": given(PIXELS, INT64),
        "weight": given((3,)),
        "total_weight": given((1,)),
        "out": given(SHAPE),
        "reduction": NONE,
        "ignore_index": -100,
    },
    [
        *null("grad_output", "self", "target", "weight", "out", "total_weight"),
        *dtype(DOUBLE, "self"),
        *dtype(FLOAT16, "grad_output", "weight", "out", "total_weight"),
        *dtype(FLOAT, "target"),
        *dtype(INT8, "target"),
        *shape((1,), "grad_output"),
        *shape((2, 4), "grad_output"),
        *shape((2, 3, 20), "self"),
        pixels((2, 20)),
        pixels((2, 5, 4)),
        pixels((1, 4, 5)),
        *shape((4,), "weight"),
        *shape((2, 3), "weight"),
        *shape((2, 3, 5, 4), "out"),
        *shape((2,), "total_weight"),
        *shape((0,), "total_weight"),
        *(
            Fault(
                {"reduction": r, "grad_output": {"shape": (1,)}},
                AttributeValueError,
                ("reduction",),
            )
            for r in (3, -1)
        ),
    ],
)


def sample(reduction: int, kind: Any = np.float64) -> dict[str, Any]:
    g, weight, total = drawn(PIXELS if reduction == NONE else (), (3,), (), dtype=kind)
    return {
        "grad_output": g,
        "self": np.zeros(SHAPE, kind),
        "target": np.random.default_rng(4).integers(0, 3, PIXELS),
        "weight": weight,
        "total_weight": total,
    }


def torch_gradient(tensors: dict[str, Any], reduction: int, ignore_index: int) -> Any:
    g, x, target, weight, total = map(np.asarray, tensors.values())
    return aten("nll_loss2d_backward", g, x, target, weight, reduction, ignore_index, total)


def run(tensors: dict[str, Any], reduction: int, ignore_index: int = -100) -> Any:
    return LOCAL.run(nll_loss2d_backward, **tensors, reduction=reduction, ignore_index=ignore_index)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, "
        "aclTensor* totalWeight, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910),
    attributes={"reduction": NONE, "ignore_index": -100},
    shapes={
        "grad_output": PIXELS,
        "self": SHAPE,
        "target": PIXELS,
        "weight": (3,),
        "total_weight": (),
    },
    values={"target": labels(3), "total_weight": between(1, 2)},
    torch=aten_of(nll_loss2d_backward, "nll_loss2d_backward"),
    calls=(
        *every(reduction=(NONE,), ignore_index=(-100, 2, 0)),
        *every({"grad_output": ()}, reduction=(MEAN, SUM), ignore_index=(-100, 2, 0)),
    ),
)


def test_the_total_weight_is_an_input_though_it_is_not_const() -> None:
    assert [output.name for output in nll_loss2d_backward.outputs] == ["out"]


def test_only_the_label_of_a_pixel_has_a_gradient() -> None:
    tensors = sample(NONE, np.float32)
    g, target, weight = (tensors[name] for name in ("grad_output", "target", "weight"))
    expected = np.zeros(SHAPE, np.float32)
    for n, h, w in np.ndindex(PIXELS):
        expected[n, target[n, h, w], h, w] = -g[n, h, w] * weight[target[n, h, w]]
    np.testing.assert_array_equal(run(tensors, NONE), expected)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_labels_of_every_integer_type_mean_the_same(kind: Any) -> None:
    tensors = sample(NONE, np.float32)
    found = run(tensors | {"target": tensors["target"].astype(kind)}, NONE, 2)
    np.testing.assert_array_equal(found, run(tensors, NONE, 2))


@pytest.mark.parametrize("label", [-1, 3, 2**32 + 1, -(2**63)])
def test_a_label_that_is_no_class_leaves_its_pixel_0(label: int) -> None:
    tensors = sample(SUM, np.float32)
    tensors["target"][1, 2, 3] = label
    found = run(tensors, SUM)
    assert not found[1, :, 2, 3].any()
    assert np.count_nonzero(found) == 2 * 4 * 5 - 1


def test_a_total_weight_of_0_makes_infinities_for_mean_only() -> None:
    tensors = sample(SUM, np.float32) | {"total_weight": np.zeros(1, np.float32)}
    assert np.isinf(run(tensors, MEAN)).sum() == 2 * 4 * 5
    assert np.isfinite(run(tensors, SUM)).all()


def test_a_weight_of_any_rank_serves() -> None:
    tensors = sample(MEAN, np.float32)
    found = run(tensors | {"weight": tensors["weight"].reshape(1, 3, 1)}, MEAN)
    np.testing.assert_array_equal(found, run(tensors, MEAN))


@pytest.mark.parametrize("of", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...]) -> None:
    tensors = sample(MEAN, np.float16) | {
        "self": np.zeros(of, np.float16),
        "target": np.zeros((of[0], *of[2:]), np.int64),
        "weight": np.zeros(of[1], np.float16),
    }
    found = run(tensors, MEAN)
    assert (found.shape, found.dtype) == (of, np.float16)
