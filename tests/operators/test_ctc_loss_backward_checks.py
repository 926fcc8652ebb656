"""aclnnCtcLossBackward: what is refused, in order, and the products' dtypes."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.dtypes import BF16, BOOL, DTYPES, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.ctc_loss_backward import ctc_loss_backward

from .arrangements import ASCEND_310, NEWER, SOCS, dtypes_taken
from .faults import Fault, Table, dtype, null, shape

FLOAT_TENSORS = ("grad_out", "log_probs", "neg_log_likelihood", "log_alpha", "out")


def given(shape: tuple[int, ...], dtype: Any = FLOAT) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape}


def lengths(name: str, wrong: tuple[int, ...], *besides: str) -> Fault:
    return Fault({name: wrong}, AttributeValueError, (name, *besides))


def many_states(kind: Any) -> Fault:
    """Room for 1001 labels, in tensors of a short float."""
    tensors: dict[str, Any] = {name: {"dtype": kind} for name in FLOAT_TENSORS}
    tensors["log_alpha"] = given((2, 5, 2003), kind)
    return Fault(tensors, DTypeError, ("log_probs",))


# operators.md 2.3, in order
TABLE = Table(
    ctc_loss_backward,
    {
        "grad_out": given((2,)),
        "log_probs": given((5, 2, 4)),
        "targets": given((2, 3), INT64),
        "input_lengths": (5, 4),
        "target_lengths": (3, 2),
        "neg_log_likelihood": given((2,)),
        "log_alpha": given((2, 5, 7)),
        "blank": 0,
        "zero_infinity": False,
        "out": given((5, 2, 4)),
    },
    [
        *null(
            *("grad_out", "log_probs", "targets", "input_lengths", "target_lengths"),
            *("neg_log_likelihood", "log_alpha", "out"),
        ),
        *shape((0, 2, 4), "log_probs"),
        *shape((), "log_probs"),
        *shape((2, 1), "grad_out", "neg_log_likelihood"),
        *shape((5, 2), "log_probs"),
        *shape((2, 5), "log_alpha"),
        *shape((), "targets"),
        *shape((2, 3, 1), "targets"),
        *shape((5, 8), "out"),
        *(Fault({"blank": blank}, AttributeValueError, ("blank",)) for blank in (4, -1)),
        lengths("target_lengths", (1500, 0), "log_alpha"),
        Fault({"targets": {"shape": (2, 2)}}, ShapeError, ("targets", "target_lengths")),
        *shape((3,), "grad_out"),
        *shape((5, 3, 4), "out"),
        *shape((3,), "neg_log_likelihood"),
        *shape((3, 5, 7), "log_alpha"),
        lengths("input_lengths", (5,)),
        lengths("target_lengths", (3, 2, 1)),
        *shape((3, 3), "targets"),
        *shape((4, 2, 4), "out"),
        *shape((2, 4, 7), "log_alpha"),
        lengths("input_lengths", (4, 6), "log_probs"),
        *shape((5, 2, 3), "out"),
        Fault({"targets": {"shape": (6,)}}, ShapeError, ("targets", "target_lengths")),
        *dtype(INT32, "log_probs"),
        many_states(FLOAT16),
        many_states(BF16),
        *dtype(FLOAT16, "grad_out", "neg_log_likelihood", "log_alpha", "out"),
        *dtype(INT8, "targets"),
        lengths("input_lengths", (5, -1)),
        lengths("target_lengths", (3, -1)),
    ],
)


@pytest.mark.parametrize("soc", SOCS)
def test_products_take_the_dtypes_of_the_documents(soc: str) -> None:
    expected = {"FLOAT", "DOUBLE"} | ({"FLOAT16", "BF16"} if soc in NEWER else set())
    taken = dtypes_taken(TABLE, FLOAT_TENSORS, soc)
    assert taken == (expected if soc != ASCEND_310 else set())


def test_targets_have_one_of_five_dtypes() -> None:
    faults = {kind: Fault({"targets": {"dtype": kind}}, DTypeError, ()) for kind in DTYPES}
    taken = {kind for kind, fault in faults.items() if TABLE.refusal(fault) is None}
    assert taken == {INT32, INT64, BOOL, FLOAT, FLOAT16}


# C, N, A: the most that there may be, and one more of each.
LIMITS = [
    ((200_000, 8180, 2002), True),
    ((200_001, 8180, 2002), False),
    ((200_000, 8181, 2002), False),
    ((200_000, 8180, 2003), False),
]


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16, BF16])
@pytest.mark.parametrize("soc", NEWER)
@pytest.mark.parametrize(("extents", "small"), LIMITS)
def test_short_floats_have_limits_on_atlas_a2_and_a3(
    extents: tuple[int, int, int], small: bool, soc: str, kind: Any
) -> None:
    classes, items, states = extents
    changes = {
        **dict.fromkeys(("log_probs", "out"), given((5, items, classes), kind)),
        **dict.fromkeys(("grad_out", "neg_log_likelihood"), given((items,), kind)),
        "log_alpha": given((items, 5, states), kind),
        "targets": {"shape": (items, 3)},
        **dict.fromkeys(("input_lengths", "target_lengths"), (1,) * items),
    }
    fault = Fault(changes, DTypeError, ("log_probs",))
    passes = small or kind is FLOAT or "950" in soc
    assert TABLE.refusal(fault, soc=soc) == (None if passes else fault.answer)


@pytest.mark.parametrize(
    ("states", "longest", "passes"), [(7, 3, True), (8, 3, True), (6, 3, False), (0, 0, False)]
)
def test_log_alpha_has_room_for_the_longest_labels(states: int, longest: int, passes: bool) -> None:
    changes = {"log_alpha": {"shape": (2, 5, states)}, "target_lengths": (longest, 0)}
    fault = Fault(changes, AttributeValueError, ("target_lengths", "log_alpha"))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check() -> None:
    assert TABLE.refusal() is None
    assert TABLE.refusing() == TABLE.may_refuse()
