"""aclnnLogSoftmax: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.log_softmax import log_softmax
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .softmaxes import ALONG_EVERY_DIM, EMPTY
from .subject import THREE, TWO, WITH_BF16, Subject

# The checks, in order [src:softmax]
TABLE = Table(
    log_softmax,
    {"dim": 0},
    [
        *null("self", "out"),
        *(Fault({"dim": dim}, AttributeValueError, ("dim",)) for dim in (9, -10)),
        *dtype(INT32, "self", "out"),
        *shape(NINE, "self", "out"),
        *shape((5, 3), "out"),
        Fault({"self": {"shape": (4, 3)}}, ShapeError, ("out",)),
    ],
)


def torchs(tensors: dict[str, Any], dim: int) -> Any:
    import torch

    return torch.log_softmax(torch.tensor(tensors["self"]), dim).numpy()


def terms(tensors: dict[str, Any], _: Any, dim: int) -> Any:
    """What is added up: how far an element is below the largest, and the logarithm of a sum.

    The rounding of that sum, which is 1 or more, changes its logarithm by as much.
    """
    below = tensors["self"].max(dim, keepdims=True) - tensors["self"]
    return below + 1 + np.log(np.exp(-below).sum(dim, keepdims=True))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, int64_t dim, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    unreachable=frozenset(
        {
            "self not BF16 where the product has none",
            "if the call gives it: out not BF16 where the product has none",
        }
    ),
    attributes={"dim": 0},
    torch=torchs,
    calls=ALONG_EVERY_DIM,
    noise=terms,
)

LN2, LN3 = float(np.log(2)), float(np.log(3))
# a row, and its result
ROWS = [
    ([0, 0, 0], [-LN3, -LN3, -LN3]),
    ([1, 1, -INF], [-LN2, -LN2, -INF]),
    ([60000, 60000, -60000], [-LN2, -LN2, -120000]),
    ([-INF, -INF, 7], [-INF, -INF, 0]),
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
    of_kind = np.array(row, kind)
    if row[0] == 60000:  # which is no BF16
        expected = [-LN2, -LN2, -2 * float(of_kind[0]) - LN2]
    found = LOCAL.run(log_softmax, np.array([[0, -INF, -INF], row, [0, -INF, -INF]], kind), dim=1)
    assert found.dtype == kind
    np.testing.assert_array_equal(found[[0, 2]], np.array([[0, -INF, -INF]] * 2, kind))
    with np.errstate(over="ignore"):
        near = np.array(expected).astype(kind).astype(np.float64)
    np.testing.assert_allclose(found[1].astype(np.float64), near, rtol=2**-22)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
def test_a_single_number_is_0(kind: Any) -> None:
    for dim in (0, -1):
        found = LOCAL.run(log_softmax, np.array(-3, kind), dim=dim)
        assert (found.dtype, found.shape, float(found)) == (kind, (), 0)


@pytest.mark.parametrize("of_x", [*FLOATS, np.float64], ids=title)
@pytest.mark.parametrize("of_out", [*FLOATS, np.float64], ids=title)
def test_self_is_converted_to_the_dtype_of_the_output_first(of_x: Any, of_out: Any) -> None:
    x = np.random.default_rng(3).uniform(-9, 9, (5, 7)).astype(of_x)
    found = SUBJECT.run({"self": x}, out=np.zeros(x.shape, of_out), dim=1)
    expected = SUBJECT.run({"self": x.astype(of_out)}, dim=1)
    assert expected.dtype == of_out
    np.testing.assert_array_equal(found, expected)


def test_a_float_beyond_float16_is_infinite_before_it_is_computed_with() -> None:
    x = np.array([70000, 0], np.float32)
    found = SUBJECT.run({"self": x}, out=np.zeros(2, np.float16), dim=0)
    np.testing.assert_array_equal(found, np.array([NAN, NAN], np.float16))


@pytest.mark.parametrize("name", ["self", "out"])
@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_behind_dim_where_the_product_has_none(name: str, soc: str) -> None:
    short = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(short, soc=soc) == short.answer
    dim = Fault({"dim": 2}, AttributeValueError, ("dim",))
    assert TABLE.refusal(short, dim, soc=soc) == dim.answer


def test_an_empty_self_is_done_behind_all_checks() -> None:
    fits = {"self": {"shape": (0, 3)}, "out": {"shape": (0, 3)}}
    assert TABLE.refusal(Fault(fits, ShapeError, ())) is None
    assert all(TABLE.refusal(fault) is not None for fault in EMPTY)
