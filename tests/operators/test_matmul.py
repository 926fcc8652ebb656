"""aclnnMatmul: prototype, shapes and values against torch, precisions, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, FormatError, ShapeError
from npucall.operators import CATALOGUE
from npucall.operators.matmul import COLUMNS, INNER, ROWS, matmul
from npucall.products import A2, ASCEND_310P, ASCEND_910
from npucall.tensors import Format, TensorSpec

from .arrangements import ASCEND_910 as OLD
from .arrangements import NEWER as NEW
from .faults import Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import THREE, TWO, WITH_BF16, Given, Subject, aten_of

PAIR = ("self", "mat2")
SEVEN = (1,) * 5 + (2, 3)
# Shapes of self and mat2.
SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((2, 1, 2, 3), (4, 3, 5)),
    ((1, 2, 1, 2, 2, 3), (2, 1, 1, 2, 3, 1)),
    ((7, 40), (40, 9)),
]

# The checks, in order [src:matmul]
TABLE = Table(
    matmul,
    {
        "mat2": {"dtype": FLOAT, "shape": (3, 4)},
        "out": {"dtype": FLOAT, "shape": (2, 4)},
        "cube_math_type": 1,
    },
    [
        *null(*PAIR, "out"),
        *dtypes(INT32, DOUBLE, of=(*PAIR, "out")),
        *(Fault({name: {"dtype": BF16}}, DTypeError, PAIR) for name in PAIR),
        Fault({"self": {"dtype": BF16}, "mat2": {"dtype": FLOAT16}}, DTypeError, PAIR),
        *(Fault({"cube_math_type": n}, AttributeValueError, ("cube_math_type",)) for n in (5, -1)),
        *(fault for name in PAIR for each in ((), SEVEN) for fault in shape(each, name)),
        Fault({"self": {"shape": (2, 4)}}, ShapeError, PAIR),
        Fault({"mat2": {"shape": (2,)}}, ShapeError, PAIR),
        Fault({"self": {"shape": (5, 2, 3)}, "mat2": {"shape": (4, 3, 4)}}, ShapeError, PAIR),
        *shape((4, 2), "out"),
        *shape((1, 2, 4), "out"),
        *(Fault({n: {"format": Format.FRACTAL_NZ}}, FormatError, (n,)) for n in ("self", "out")),
    ],
)
WITHOUT_FLOAT = Table(
    matmul,
    TABLE.attributes,
    [Fault({"cube_math_type": n}, AttributeValueError, ("cube_math_type",)) for n in (0, 3)],
    OLD,
)


def sizes(tensors: dict[str, Any], _: Any, **__: Any) -> Any:
    return np.matmul(*(np.abs(array) for array in tensors.values()))


def pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Given]:
    return [Given(shapes=dict(zip(PAIR, both, strict=True))) for both in shapes]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=THREE,
    older=TWO,
    typed=(*PAIR, "out"),
    tables=(WITHOUT_FLOAT,),
    shapes={"self": (12, 17), "mat2": (17, 5)},
    torch=aten_of(matmul, "matmul"),
    calls=pairs(*SHAPES),
    noise=sizes,
)


def drawn(*shapes: tuple[int, ...], kind: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(5)
    return [random.uniform(-1, 1, each).astype(kind) for each in shapes]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((ROWS + 3, 5), (5, 7)),
        ((3, 5), (5, COLUMNS + 2)),
        ((2, INNER + 5), (INNER + 5, 3)),
        ((ROWS + 1, 2 * INNER + 1), (2 * INNER + 1, COLUMNS + 1)),
        ((3000, 4, 9), (9, 5)),
        ((2 * INNER,), (2 * INNER,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_products_of_several_blocks_have_no_seams(first: Any, second: Any, kind: Any) -> None:
    one, other = drawn(first, second, kind=kind)
    found = LOCAL.run(matmul, one, other)
    exact = np.matmul(one.astype(np.float64), other.astype(np.float64))
    unit = float(np.finfo(np.float32).eps) if kind is np.float32 else 2.0**-8
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=unit * 4, atol=1e-4)
    exactly = compute(matmul, one.astype(np.float64), other.astype(np.float64))
    np.testing.assert_allclose(exactly, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("first", "second"),
    [((2, 0), (0, 3)), ((0,), (0,)), ((4, 2, 0), (0,)), ((0, 3), (3, 2)), ((0, 2, 3), (3, 2))],
    ids=str,
)
def test_of_nothing_sums_are_0(first: Any, second: Any) -> None:
    one, other = np.ones(first, np.float16), np.ones(second, np.float16)
    found = LOCAL.run(matmul, one, other)
    expected = np.matmul(np.ones(first), np.ones(second))
    assert (found.dtype, found.shape) == (np.float16, expected.shape)
    assert not found.any()


def test_short_floats_are_added_in_float32_and_rounded_once() -> None:
    row = np.array([[2048, 1, 1]], np.float16)  # in FLOAT16 the ones would be lost
    assert LOCAL.run(matmul, row, np.ones((3, 1), np.float16)).tolist() == [[2050]]
    large = np.array([[300, -300]], np.float16)
    found = LOCAL.run(matmul, large, np.array([[300], [299]], np.float16))
    assert found.tolist() == [[300]]


def test_special_numbers_stay_in_their_rows_and_columns() -> None:
    one = np.array([[1, NAN], [INF, 1], [1, 2]], np.float32)
    found = LOCAL.run(matmul, one, np.array([[1, 0], [1, 1]], np.float32))
    np.testing.assert_array_equal(found, [[NAN, NAN], [INF, NAN], [3, 2]])


def test_float16_beside_float_is_multiplied_in_float() -> None:
    one, other = drawn((3, 4), (4, 2))
    half = one.astype(np.float16)
    found = LOCAL.run(matmul, half, other)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, LOCAL.run(matmul, half.astype(np.float32), other))


def test_ascend_950_takes_bfloat16_beside_others() -> None:
    for name in PAIR:
        fault = Fault({name: {"dtype": BF16}}, DTypeError, PAIR)
        assert [TABLE.refusal(fault, soc=soc) for soc in NEW] == [fault.answer] * 2 + [None]


def kernel(kind: int, soc: str, dtype: Any = FLOAT) -> Any:
    client = npucall_client.connect("local:", soc=soc)
    arrays = [np.ones(shape, dtype.numpy) for shape in ((2, 3), (3, 4))]
    return client.plan(matmul, *arrays, kind).kernel_dtype


def test_a_lower_precision_rounds_float_to_float16_where_the_product_has_no_other() -> None:
    assert [kernel(n, NEW[0]) for n in range(5)] == [FLOAT, FLOAT, FLOAT16, FLOAT, FLOAT]
    assert [kernel(n, OLD) for n in (1, 2, 4)] == [FLOAT16, FLOAT16, FLOAT]
    assert kernel(2, NEW[0], BF16) is BF16
    one = np.array([[1 + 2.0**-12]], np.float32)
    assert LOCAL.run(matmul, one, one, 2).tolist() == [[1]]
    assert LOCAL.run(matmul, one, one, 0)[0, 0] > 1


def test_the_products_count_as_what_is_computed() -> None:
    specs = {n: TensorSpec(FLOAT, s) for n, s in zip(PAIR, ((5, 6, 20), (20, 40)), strict=True)}
    call = Call(matmul, {**specs, "cube_math_type": 0}, PAIR)
    assert prepare(call, A2, CATALOGUE).computation == 5 * 6 * 20 * 40
