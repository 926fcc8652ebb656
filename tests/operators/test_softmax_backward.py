"""aclnnSoftmaxBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.evaluate import evaluate

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, NAN, assert_rounded, aten, drawn, exact, run, title, wide
from .gradients import SOFTMAX as OPERATOR
from .running import prepared

# operators.md 2.3, in order; "out" may have any supported float, which the service checks last
TABLE = Table(
    OPERATOR,
    {"dim": 0},
    [
        *null("grad_output", "output", "out"),
        *dtype(INT32, "grad_output", "output"),
        Fault({"output": {"dtype": FLOAT16}}, DTypeError, ("output",)),
        Fault({"grad_output": {"dtype": BF16}}, DTypeError, ("output",)),
        Fault({"dim": 9}, AttributeValueError, ("dim",)),
        Fault({"dim": -10}, AttributeValueError, ("dim",)),
        *shape(NINE, "grad_output"),
        Fault({"output": {"shape": (4, 3)}}, ShapeError, ("grad_output",)),
        Fault({"out": {"shape": (5, 3)}}, ShapeError, ("grad_output",)),
        Fault({"grad_output": {"shape": (6, 3)}}, ShapeError, ("grad_output",)),
        *dtype(INT32, "out"),
        *dtype(DOUBLE, "out"),
        *dtype(BOOL, "out"),
    ],
)
EVERY_DIM = [
    (shape, dim)
    for shape in [(4, 6), (3, 5, 7), (17,), (2, 3, 4, 5), ()]
    for dim in range(-max(len(shape), 1), max(len(shape), 1))
]


def forward(x: Any, dim: int) -> Any:
    """The forward result in float64."""
    power = np.exp(x - x.max(dim, keepdims=True))
    return power / power.sum(dim, keepdims=True)


def torchs(g: Any, y: Any, dim: int) -> Any:
    torch = pytest.importorskip("torch")
    return aten("_softmax_backward_data", g, y, dim, torch.float64)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert OPERATOR.prototype == (
        "aclnnStatus aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* output, int64_t dim, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize(("shape", "dim"), EVERY_DIM)
def test_in_float64_the_gradient_is_torchs(shape: tuple[int, ...], dim: int) -> None:
    g, x = drawn(shape, shape)
    y = forward(x.reshape(x.shape or 1), dim).reshape(shape)
    np.testing.assert_allclose(
        exact(OPERATOR, g, y, dim=dim), torchs(g, y, dim), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_it_is_the_gradient_that_autograd_finds_for_the_input(dim: int) -> None:
    torch = pytest.importorskip("torch")
    g, x = drawn((4, 6), (4, 6))
    leaf = torch.tensor(x, requires_grad=True)
    torch.softmax(leaf, dim).backward(torch.tensor(g))
    found = exact(OPERATOR, g, forward(x, dim), dim=dim)
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(kind: Any, dim: int) -> None:
    g, x = drawn((30, 50), (30, 50))
    g, y = g.astype(kind), forward(x, dim).astype(kind)
    exact_g, exact_y = wide(g, y)
    expected = torchs(exact_g, exact_y, dim)
    weighted = np.abs(exact_g * exact_y)
    terms = weighted + weighted.sum(dim, keepdims=True) * exact_y
    assert_rounded(run(OPERATOR, g, y, dim=dim), expected, kind, terms)


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_stay_whole_however_the_work_is_cut(dim: int, block: int) -> None:
    g, x = drawn((3, 5, 7), (3, 5, 7), dtype=np.float32)
    call = prepared(OPERATOR, {"grad_output": g, "output": x}, dim=dim)
    found = np.empty((3, 5, 7), np.float32)
    evaluate(call, {"grad_output": g, "output": x}, {"out": found}, block=block)
    np.testing.assert_array_equal(found, run(OPERATOR, g, x, dim=dim))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["grad_output", "output", "out"])
def test_bf16_is_refused_where_the_product_has_none(soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(fault, soc=soc) == fault.answer


@pytest.mark.parametrize("defect", TABLE.faults[3:], ids=str)
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend310P3"])
def test_one_empty_input_ends_the_checks_behind_the_nulls(soc: str, defect: Fault) -> None:
    other = "output" if "grad_output" in defect.changes else "grad_output"
    empty = Fault({other: {"shape": (0, 3)}}, ShapeError, ())
    assert TABLE.refusal(empty, defect, soc=soc) is None


@pytest.mark.parametrize("missing", TABLE.faults[:3], ids=str)
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend950PR_9589"])
def test_a_null_counts_before_an_empty_input(soc: str, missing: Fault) -> None:
    empty = Fault({name: {"shape": (0, 3)} for name in ("grad_output", "output")}, ShapeError, ())
    assert TABLE.refusal(empty, missing, soc=soc) == missing.answer


@pytest.mark.parametrize(
    "defect", [fault for fault in TABLE.faults[3:] if "shape" not in str(fault.changes)], ids=str
)
def test_on_ascend_950_all_checks_stand_before_the_empty_exit(defect: Fault) -> None:
    empty = {"shape": (0, 3)}
    changes = {name: dict(empty) for name in ("grad_output", "output", "out")}
    for name, change in defect.changes.items():
        changes[name] = changes[name] | change if isinstance(change, dict) else change
    answer = TABLE.refusal(Fault(changes, DTypeError, ()), soc="Ascend950PR_9589")
    # that "out" has a supported dtype is the service's own check, behind the exit
    assert answer == (None if defect.blamed == ("out",) else defect.answer)


def test_on_ascend_950_one_empty_input_is_a_wrong_shape() -> None:
    fault = Fault({"output": {"shape": (0, 3)}}, ShapeError, ("grad_output",))
    assert TABLE.refusal(fault, soc="Ascend950PR_9589") == fault.answer


@pytest.mark.parametrize(("dim", "passes"), [(-1, True), (0, True), (1, False), (-2, False)])
def test_rank_0_counts_as_rank_1(dim: int, passes: bool) -> None:
    changes = {name: {"shape": ()} for name in ("grad_output", "output", "out")}
    answer = TABLE.refusal(Fault(changes | {"dim": dim}, AttributeValueError, ("dim",)))
    assert answer == (None if passes else (AttributeValueError, INVALID, ("dim",)))


# a row of grad_output and of output, and the result
ROWS = [
    ([1, 2, 3], [0, 0, 1], [0, 0, 0]),
    ([1, 2, 4], [0.5, 0.5, 0], [-0.25, 0.25, 0]),
    ([8, 0, 0], [0.25, 0.25, 0.5], [1.5, -0.5, -1]),
    ([INF, 0, 0], [0.5, 0.25, 0.25], [NAN, -INF, -INF]),
    ([NAN, 0, 0], [0.5, 0.25, 0.25], [NAN, NAN, NAN]),
    ([INF, 0, 0], [0, 0.5, 0.5], [NAN, NAN, NAN]),
    ([1, 1, 1], [NAN, 0.5, 0.5], [NAN, NAN, NAN]),
    ([1, 1, 1], [INF, 0, 0], [NAN, NAN, NAN]),
    ([2, 0, 0], [2, 0, 0], [-4, 0, 0]),
]


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "y", "expected"), ROWS)
def test_a_row_is_what_the_formula_says_and_its_neighbours_stay_clean(
    kind: Any, g: Any, y: Any, expected: Any
) -> None:
    rows = [np.array([[1, 0, 0], row, [1, 0, 0]], kind) for row in (g, y)]
    found = run(OPERATOR, *rows, dim=-1).astype(np.float64)
    np.testing.assert_array_equal(found, [[0, 0, 0], expected, [0, 0, 0]])


def test_float16_products_are_added_up_in_float32() -> None:
    # 300 * 256 + 300 * 256 is beyond FLOAT16; times 2^-8 it is not: g y - sum y
    g, y = np.array([[300, 300, 0]], np.float16), np.array([[256, 256, 2**-8]], np.float16)
    found = run(OPERATOR, g, y, dim=1)
    np.testing.assert_array_equal(found, np.array([[-INF, -INF, -600]], np.float16))


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check_that_refuses_on_an_atlas_a2() -> None:
    elsewhere = {
        "grad_output not BF16 where the product has none",
    }
    assert TABLE.refusing() >= TABLE.may_refuse() - elsewhere
