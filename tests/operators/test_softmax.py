"""aclnnSoftmax: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.softmax import softmax
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .softmaxes import ALONG_EVERY_DIM, EMPTY
from .subject import THREE, TWO, WITH_BF16, Subject

# The checks, in order [src:softmax]
TABLE = Table(
    softmax,
    {"dim": 0},
    [
        *null("self", "out"),
        *dtype(INT32, "self", "out"),
        *(Fault({"dim": dim}, AttributeValueError, ("dim",)) for dim in (9, -10)),
        *shape(NINE, "self"),
        Fault({"out": {"shape": (5, 3)}}, ShapeError, ("self",)),
        *shape((4, 3), "self"),
    ],
)


def torchs(tensors: dict[str, Any], dim: int) -> Any:
    import torch

    return torch.softmax(torch.tensor(tensors["self"]), dim).numpy()


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, int64_t dim, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P, ASCEND_310B),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes={"dim": 0},
    torch=torchs,
    calls=ALONG_EVERY_DIM,
    casts=(*FLOATS, np.float64),
)

E, E2 = float(np.exp(-1)), float(np.exp(-2))
# a row, and its result
ROWS = [
    ([0, 0, 0], [1 / 3, 1 / 3, 1 / 3]),
    ([1, 2, 3], [E2 / (1 + E + E2), E / (1 + E + E2), 1 / (1 + E + E2)]),
    ([60000, 60000, -60000], [0.5, 0.5, 0]),
    ([-INF, 0, 0], [0, 0.5, 0.5]),
    ([-INF, -INF, 7], [0, 0, 1]),
    ([-INF, -INF, -INF], [NAN, NAN, NAN]),
    ([INF, 0, 0], [NAN, NAN, NAN]),
    ([INF, INF, -INF], [NAN, NAN, NAN]),
    ([NAN, 0, 0], [NAN, NAN, NAN]),
    ([NAN, INF, -INF], [NAN, NAN, NAN]),
]


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
@pytest.mark.parametrize(("row", "expected"), ROWS)
def test_a_row_is_what_the_formula_says_and_its_neighbours_stay_clean(
    kind: Any, row: Any, expected: Any
) -> None:
    found = LOCAL.run(softmax, np.array([[0, 0, -INF], row, [0, 0, -INF]], kind), dim=1)
    assert found.dtype == kind
    np.testing.assert_array_equal(found[[0, 2]], np.array([[0.5, 0.5, 0]] * 2, kind))
    near = np.array(expected).astype(kind).astype(np.float64)
    np.testing.assert_allclose(found[1].astype(np.float64), near, rtol=2**-22)


def test_the_largest_floats_do_not_overflow() -> None:
    top = np.finfo(np.float32).max
    found = LOCAL.run(softmax, np.array([top, -top, top], np.float32), dim=0)
    assert found.tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
def test_a_single_number_is_1(kind: Any) -> None:
    for dim in (0, -1):
        found = LOCAL.run(softmax, np.array(-3, kind), dim=dim)
        assert (found.dtype, found.shape, float(found)) == (kind, (), 1)


def test_an_empty_self_is_done_before_anything_else_is_checked() -> None:
    for fault in EMPTY:
        assert TABLE.refusal(fault) is None
    unknown = Fault({"self": {"shape": (0, 3), "dtype": BF16}}, DTypeError, ())
    assert TABLE.refusal(unknown, soc="Ascend910A") is None
    missing = Fault({"self": {"shape": (0, 3)}, "out": None}, DTypeError, ())
    assert TABLE.refusal(missing) == TABLE.refusal(*null("out"))


def test_an_empty_self_leaves_zeros_in_an_output_that_has_elements() -> None:
    out = np.full((2, 3), 7, np.float32)
    client = LOCAL.options(outputs={"out": out})
    client.run(softmax, np.empty((0, 5), np.int32), dim=9)
    assert not out.any()
