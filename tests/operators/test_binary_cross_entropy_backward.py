"""aclnnBinaryCrossEntropyBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import FormatError, ShapeError
from npucall.operators.binary_cross_entropy_backward import binary_cross_entropy_backward
from npucall.products import ASCEND_310P, ASCEND_910
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN, aten
from .losses import assert_rounded, wide
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, between, every, of_one_shape

# The checks, in order [src:binary-cross-entropy]
TABLE = Table(
    binary_cross_entropy_backward,
    {"reduction": 1},
    [
        *null("grad_output", "self", "target", "out"),
        *shape(NINE, "out"),
        *dtypes(INT32, DOUBLE, of=("self", "grad_output", "target", "out", "weight")),
        Fault({"target": {"format": Format.NCL}}, FormatError, ("self",)),
        Fault({"weight": {"format": Format.NHWC}}, FormatError, ("self",)),
        *shape((3, 2), "out"),
        *shape((1, 2, 3), "target"),
        *shape((4, 3), "weight", "grad_output"),
        *reductions_beyond_2(),
    ],
)
# Any floats promote to one, which can be cast to any; the calls of the table give an output.
UNREACHABLE = frozenset(
    {
        "out not given: self have at most 8 dimensions",
        "dtypes of self, grad_output, target and weight promote to one",
        "promotion can be cast to the dtype of out",
    }
)
# grad_output, self, target, weight, result without a mean; None is absent
CELLS = [
    (3.0, 0.5, 0.0, None, 6.0),
    (3.0, 0.5, 1.0, None, -6.0),
    (3.0, 0.5, 0.25, 2.0, 6.0),
    (3.0, 0.5, 0.5, 2.0, 0.0),
    (3.0, 0.0, 0.0, None, 0.0),
    (3.0, 1.0, 1.0, None, 0.0),
    (3.0, 0.5, 0.0, INF, INF),
    (3.0, 0.5, 0.5, INF, NAN),
    (INF, 0.5, 0.0, 1.0, INF),
    (NAN, 0.5, 0.0, 1.0, NAN),
    (3.0, NAN, 0.0, 1.0, NAN),
    (3.0, 0.5, NAN, 1.0, NAN),
    (3.0, 0.5, 0.0, NAN, NAN),
    (3.0, INF, 0.0, 1.0, INF),
    (3.0, -INF, 0.0, 1.0, -INF),
    (3.0, 0.5, INF, 1.0, -INF),
]
FITTING: list[dict[str, tuple[int, ...]]] = [
    {},
    {"grad_output": (), "target": (), "weight": ()},
    {"grad_output": (12, 1), "target": (17,), "weight": (1, 17)},
    {"weight": (12, 1)},
]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    """torch's, which wants all shapes equal."""
    full = {name: np.broadcast_to(a, tensors["self"].shape) for name, a in wide(tensors).items()}
    g, x, t = (full[name].copy() for name in ("grad_output", "self", "target"))
    weight = full["weight"].copy() if "weight" in full else None
    return aten("binary_cross_entropy_backward", g, x, t, weight, reduction)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=UNREACHABLE,
    attributes={"reduction": MEAN},
    values=dict.fromkeys(("self", "target", "weight"), between(0.02, 0.98)),
    cells=Cells("grad_output self target weight", CELLS),
    torch=torch_gradient,
    calls=every(*FITTING, without=((), ("weight",)), reduction=(NONE, MEAN, SUM)),
    casts=FLOATS,
)


# self, target, result in float64: the variance is 1e-12 at least, also beyond 0 to 1
@pytest.mark.torch
@pytest.mark.parametrize(
    ("x", "t", "expected"),
    [(0.0, 1.0, -1e12), (1.0, 0.0, 1e12), (2.0, 0.0, 2e12), (-1.0, 0.0, -1e12), (1e-13, 0.0, 0.1)],
)
def test_the_divisor_is_1e_12_at_least_as_in_torch(x: float, t: float, expected: float) -> None:
    tensors = {n: np.array([v]) for n, v in {"grad_output": 1.0, "self": x, "target": t}.items()}
    found = SUBJECT.exact(tensors, reduction=NONE)
    np.testing.assert_allclose(found, [expected], rtol=1e-12)
    # torch's 1e-12 is of float32, also in float64
    np.testing.assert_allclose(torch_gradient(tensors, NONE), found, rtol=1e-8)
    single = {name: array.astype(np.float32) for name, array in tensors.items()}
    np.testing.assert_allclose(SUBJECT.run(single, reduction=NONE), [expected], rtol=1e-6)


def test_an_absent_weight_is_one_of_ones() -> None:
    tensors = SUBJECT.draw(np.float16)
    tensors["weight"][...] = 1
    found = SUBJECT.run({**tensors, "weight": None})
    np.testing.assert_array_equal(found, SUBJECT.run(tensors))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["grad_output", "self", "target", "weight"])
def test_an_output_that_is_not_given_has_the_promoted_dtype_of_all_inputs(name: str) -> None:
    tensors = SUBJECT.draw(np.float16)
    tensors[name] = tensors[name].astype(np.float32)
    found = SUBJECT.run(tensors)
    assert_rounded(found, torch_gradient(tensors, MEAN), np.float32)


def test_a_self_of_nine_dimensions_is_refused_where_no_output_is_given() -> None:
    tensors = {name: np.ones(NINE, np.float32) for name in ("grad_output", "self", "target")}
    with pytest.raises(ShapeError, match="self: expected at most 8 dimensions") as caught:
        SUBJECT.run(tensors)
    assert caught.value.aclnn_status == 161002


@pytest.mark.parametrize("name", ["out", "target", "weight", "grad_output"])
def test_shapes_beside_an_empty_self_are_not_looked_at(name: str) -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    (other,) = shape((4, 5), name)
    assert TABLE.refusal(empty, other) is None


def test_the_reduction_is_looked_at_beside_an_empty_self() -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    assert TABLE.refusal(empty, TABLE.faults[-1]) == TABLE.faults[-1].answer


def test_an_output_beside_an_empty_self_is_zeros() -> None:
    tensors = SUBJECT.draw(
        np.float32, every(*of_one_shape("grad_output self target weight", (0, 3)))[0]
    )
    found = SUBJECT.run(tensors, out=np.full((2, 2), 7, np.float32))
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_a_call_may_do_without_a_weight() -> None:
    assert TABLE.refusal(Fault({"weight": None}, ShapeError, ())) is None
