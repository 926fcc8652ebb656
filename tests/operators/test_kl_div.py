"""aclnnKlDiv: prototype, values against torch, the empty exit, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.kl_div import kl_div
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, NAN
from .losses import functional, of_terms, stretched
from .subject import (
    BATCHMEAN,
    MEAN,
    NONE,
    SUM,
    WITH_BF16,
    Cells,
    Subject,
    Tensors,
    between,
    every,
)

INPUTS = ("self", "target")
NOTHING = {"self": {"shape": (0, 3)}}
# The checks, in order [src:kl-div]
TABLE = Table(
    kl_div,
    {"reduction": 0},
    [
        *null(*INPUTS, "out"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "out")),
        *shape(NINE, *INPUTS),
        *(
            Fault({"reduction": code}, AttributeValueError, ("reduction",))
            for code in (4, -1, 7, 2**40, 2**32 + 1)
        ),
        Fault({**NOTHING, "reduction": MEAN}, ShapeError, ("out",)),
        Fault({**NOTHING, "reduction": SUM, "out": {"shape": (0,)}}, ShapeError, ("out",)),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        *shape((), "out"),
        Fault({"reduction": BATCHMEAN}, ShapeError, ("out",)),
    ],
)
# [src:kl-div]: self, target, log_target, element
CELLS = [
    (-1.0, 0.0, False, 0.0),
    (-1.0, -0.0, False, 0.0),
    (INF, 0.0, False, NAN),
    (-INF, 0.0, False, NAN),
    (NAN, 0.0, False, NAN),
    (-1.0, -1.5, False, NAN),
    (0.5, INF, False, INF),
    (-0.5, INF, False, INF),
    (INF, 0.5, False, -INF),
    (-INF, 0.5, False, INF),
    (NAN, 0.5, False, NAN),
    (-1.0, NAN, False, NAN),
    (-2.0, 1.0, False, 2.0),
    (-1.0, -INF, True, NAN),
    (-1.0, INF, True, INF),
    (-1.0, 89.0, True, INF),  # e^88.7228 is FLOAT's largest number
    (99.0, 89.0, True, -INF),
    (INF, -1.0, True, -INF),
    (-INF, -1.0, True, INF),
    (-INF, INF, True, INF),
    (INF, INF, True, NAN),
    (NAN, -1.0, True, NAN),
    (-1.0, NAN, True, NAN),
    (-2.0, 0.0, True, 2.0),
]


def torch_says(tensors: Tensors, reduction: int, log_target: bool = False) -> Any:
    """torch's, its batchmean divided by the first extent of what both broadcast to."""
    code = SUM if reduction == BATCHMEAN else reduction
    found = functional("kl_div", *INPUTS)(tensors, code, log_target=log_target)
    space = np.broadcast_shapes(*(tensor.shape for tensor in tensors.values()))
    return found / (space or (1,))[0] if reduction == BATCHMEAN else found


def terms(tensors: Tensors, *, log_target: bool = False) -> Any:
    """The size of what is added up, where it may cancel."""
    x, t = tensors["self"], tensors["target"]
    weight, logarithm = (np.exp(t), t) if log_target else (t, np.log(t))
    return weight * (np.abs(logarithm) + np.abs(x))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclTensor* target, int64_t reduction, bool logTarget, "
        "aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"promotion can be cast to the dtype of out"}),
    attributes={"reduction": MEAN},
    values={"self": between(-5, 0), "target": between(0.02, 0.98)},
    cells=Cells("self target log_target", CELLS),
    torch=torch_says,
    calls=every(
        {},
        *stretched(*INPUTS),
        reduction=(NONE, MEAN, SUM, BATCHMEAN),
        log_target=(False, True),
    ),
    noise=of_terms(terms),
    casts=FLOATS,
    stretches=True,
)


def test_batchmean_divides_by_the_first_extent_of_what_both_broadcast_to() -> None:
    # F4 of [src:worked-examples]; torch divides by that of self, 1
    tensors = {"self": np.zeros((1, 2)), "target": np.array([[1.0, 2], [3, 4], [5, 6]])}
    found = SUBJECT.exact(tensors, reduction=BATCHMEAN)
    np.testing.assert_allclose(found, 9.67501835, rtol=0, atol=5e-9)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((0, 3), (0, 3)), NAN),
        (((3, 0), (3, 0)), 0),
        (((2, 0), (3,)), 0),  # which broadcast to nothing
        (((0, 2), (3,)), NAN),
        (((1, 3), (0, 3)), 0),
        (((), (0,)), 0),
    ],
    ids=str,
)
def test_of_nothing_the_batchmean_is_nan_if_self_has_no_rows_and_else_0(
    shapes: tuple[tuple[int, ...], ...], expected: float
) -> None:
    tensors = {n: np.zeros(s, np.float32) for n, s in zip(INPUTS, shapes, strict=True)}
    found = SUBJECT.run(tensors, reduction=BATCHMEAN)
    assert found.shape == ()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=MEAN), NAN)
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=SUM), 0)


def test_nothing_is_written_where_shapes_of_nothing_do_not_even_broadcast() -> None:
    tensors = {"self": np.zeros((2, 0), np.float32), "target": np.zeros(3, np.float32)}
    found = SUBJECT.run(tensors, out=np.full((2, 2), 7, np.float32), reduction=NONE)
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


@pytest.mark.parametrize("one", [(1,), (1, 1), (1,) * 9], ids=str)
def test_what_is_reduced_goes_into_one_element_of_any_rank(one: tuple[int, ...]) -> None:
    tensors = SUBJECT.draw(np.float32)
    expected = SUBJECT.run(tensors, reduction=SUM)
    found = SUBJECT.run(tensors, out=np.empty(one, np.float32), reduction=SUM)
    assert found.shape == one
    assert found.item() == expected
    nothing = {name: array[:0] for name, array in tensors.items()}
    found = SUBJECT.run(nothing, out=np.empty(one, np.float32), reduction=MEAN)
    assert found.shape == one
    assert np.isnan(found).all()
