"""aclnnSiluBackward: prototype, values against torch, edges, checks in order, and Ascend 950."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.dtypes import BF16, DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, NpucallError, ShapeError
from npucall.products import ASCEND_910

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import (
    FLOATS,
    INF,
    NAN,
    STRETCHED,
    assert_rounded,
    aten,
    drawn,
    exact,
    run,
    title,
    wide,
)
from .gradients import SILU as OPERATOR
from .subject import WITH_BF16, Cells, Subject, aten_of, between, exactly

NEWEST = "Ascend950PR_9589"
# The checks, in order [src:silu], on products other than Ascend 950
TABLE = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "self", "grad_input"),
        *dtype(INT32, "grad_output", "self", "grad_input"),
        *dtype(FLOAT16, "grad_output"),
        Fault({"grad_input": {"dtype": BF16}}, DTypeError, ("grad_output",)),
        *dtype(BF16, "self"),
        *shape(NINE, "grad_output", "self"),
        *shape((4, 3), "grad_output"),
        Fault({"grad_input": {"shape": (6, 3)}}, ShapeError, ("grad_output",)),
        *shape((1, 3), "self"),
    ],
)
ON_950 = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "self", "grad_input"),
        *dtype(INT32, "grad_output", "self", "grad_input"),
        Fault({"grad_input": {"dtype": BF16}}, DTypeError, ("grad_output",)),
        *shape(NINE, "grad_output", "self"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        *shape((3, 2), "grad_input"),
    ],
    NEWEST,
)
NEWER = npucall_client.connect("local:", soc=NEWEST)


def torchs(g: Any, x: Any) -> Any:
    return aten("silu_backward", g, x)


# g, x, expected
CELLS = [
    (3.0, 0.0, 1.5),
    (3.0, -0.0, 1.5),
    (2.0, 200.0, 2.0),
    (2.0, -200.0, 0.0),
    (2.0, 60000.0, 2.0),
    (2.0, -60000.0, 0.0),
    (2.0, INF, NAN),  # as torch
    (2.0, -INF, NAN),
    (2.0, NAN, NAN),
    (NAN, 1.0, NAN),
    (INF, 1.0, INF),
    (INF, -3.0, -INF),
    (0.0, 1.0, 0.0),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput",
    documented=(*WITH_BF16, ASCEND_910),
    tables=(ON_950,),
    # They need two defects, or an output that is left to the operator: below.
    unreachable=frozenset(
        {
            "on Ascend950 with inputs of two dtypes: dtype of grad_input is FLOAT",
            "not on Ascend950: dtype of self is that of grad_output",
            "dtype of grad_output, self and grad_input is one that the product takes",
            "not on Ascend950: shape of self is that of grad_output",
        }
    ),
    values={"self": between(-20, 20)},
    cells=Cells("grad_output self", CELLS),
    torch=aten_of(OPERATOR, "silu_backward"),
    noise=exactly,
)


def test_far_below_0_a_float_keeps_what_is_left() -> None:
    x = np.linspace(-103, -80, 231, dtype=np.float32)  # below -88.7 e^-x is beyond FLOAT
    (exactly,) = wide(x)
    expected = (1 + exactly) * np.exp(exactly)  # the sigmoid is e^x, and its square nothing
    assert_rounded(run(OPERATOR, np.ones_like(x), x), expected, np.float32)


@pytest.mark.torch
def test_edge_values_are_torchs() -> None:
    g, x = np.full(3, 2.0), np.array([INF, -INF, NAN])
    np.testing.assert_array_equal(exact(OPERATOR, g, x), torchs(g, x))


@pytest.mark.parametrize(("of_g", "of_x", "shape"), STRETCHED)
def test_on_ascend_950_inputs_broadcast(of_g: Any, of_x: Any, shape: Any) -> None:
    g, x = drawn(of_g, of_x, dtype=np.float32)
    found = run(OPERATOR, g, x, client=NEWER)
    full = run(OPERATOR, *map(np.copy, np.broadcast_arrays(g, x)))
    assert found.shape == shape
    np.testing.assert_array_equal(found, full)


@pytest.mark.parametrize("of_g", FLOATS, ids=title)
@pytest.mark.parametrize("of_x", FLOATS, ids=title)
def test_on_ascend_950_inputs_of_two_dtypes_give_float(of_g: Any, of_x: Any) -> None:
    g, x = drawn((4, 6), dtype=of_g) + drawn((4, 6), dtype=of_x)
    found = run(OPERATOR, g, x, client=NEWER)
    assert found.dtype == (of_g if of_g is of_x else np.float32)
    single = run(OPERATOR, g.astype(np.float32), x.astype(np.float32))
    np.testing.assert_array_equal(found, single.astype(found.dtype))


@pytest.mark.parametrize("kind", [FLOAT16, BF16])
def test_on_ascend_950_two_dtypes_need_a_float_output(kind: Any) -> None:
    mixed = {"grad_output": {"dtype": FLOAT16}, "self": {"dtype": BF16}}
    wrong = Fault({**mixed, "grad_input": {"dtype": kind}}, DTypeError, ("grad_input",))
    assert ON_950.refusal(wrong) == wrong.answer
    assert ON_950.refusal(Fault(mixed, DTypeError, ())) is None  # FLOAT


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910_9391", "Ascend910A"])
@pytest.mark.parametrize(
    ("of_x", "shape_of_x", "error"),
    [(np.float16, (2, 3), DTypeError), (np.float32, (1, 3), ShapeError)],
)
def test_elsewhere_inputs_are_alike_also_where_the_output_is_left_to_the_operator(
    soc: str, of_x: Any, shape_of_x: Any, error: type[NpucallError]
) -> None:
    client = npucall_client.connect("local:", soc=soc)
    with pytest.raises(error) as caught:
        run(OPERATOR, np.ones((2, 3), np.float32), np.ones(shape_of_x, of_x), client=client)
    assert (caught.value.aclnn_status, caught.value.parameter) == (INVALID, "self")


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none_behind_the_equality(soc: str) -> None:
    names = ("grad_output", "self", "grad_input")
    every = Fault({name: {"dtype": BF16} for name in names}, DTypeError, ("grad_output",))
    assert TABLE.refusal(every, soc=soc) == every.answer
    alone = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(alone, soc=soc) == alone.answer


@pytest.mark.parametrize("name", ["grad_output", "self", "grad_input"])
def test_double_is_taken_nowhere(name: str) -> None:
    fault = Fault({name: {"dtype": DOUBLE}}, DTypeError, (name,))
    for soc in ("Ascend910B1", NEWEST):
        assert TABLE.refusal(fault, soc=soc) == fault.answer


def test_two_empty_inputs_that_differ_in_shape_are_refused_but_on_ascend_950() -> None:
    changes = {"grad_output": {"shape": (0, 3)}, "self": {"shape": (1, 3)}}
    empty = Fault({**changes, "grad_input": {"shape": (0, 3)}}, ShapeError, ("self",))
    assert TABLE.refusal(empty) == empty.answer
    assert TABLE.refusal(empty, soc=NEWEST) is None
