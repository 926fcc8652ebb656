"""What the truth is, and what a look at an answer finds: every way in which it can be wrong."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.dtypes import BF16, FLOAT, FLOAT16, DType
from npucall.errors import DTypeError, NpucallError, OperatorUnavailableError, ShapeError
from npucall.tensors import TensorSpec
from npucall.wire.replies import Reply, ServerIdentity, Timings
from npucall_conformance.cases.arrangements import DENSE, GAPS, STEP, TRANSPOSED, Arrangement, put
from npucall_conformance.cases.blocks import cases_of
from npucall_conformance.cases.made_call import MadeCall, call_of
from npucall_conformance.judging.check import (
    CheckResult,
    Expectation,
    check,
    expectation_of,
)
from npucall_conformance.judging.truth import Expected, expected
from npucall_conformance.statements.kl_div_backward import KL_DIV_BACKWARD
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.parts import Contradiction, Invalid, Refusal, Setup
from npucall_conformance.wire import WireAnswer

from .opinions import contradictions


def call() -> MadeCall:
    return call_of(next(iter(cases_of(KL_DIV_BACKWARD, "grid"))), seed=0)


def test_opinions_that_differ_are_found() -> None:
    def loops(given: Arguments) -> Any:
        return KL_DIV_BACKWARD.loops(given) * (1 + 1e-9)

    case = next(iter(cases_of(KL_DIV_BACKWARD, "grid")))
    assert contradictions(case, seed=0) == []
    wrong = replace(case, statement=replace(KL_DIV_BACKWARD, loops=loops))
    (problem,) = contradictions(wrong, seed=0)
    assert problem.startswith("out: ")


def test_arrays_of_another_shape_are_an_error_of_the_suite() -> None:
    def arrays(given: Arguments) -> Terms:
        terms = KL_DIV_BACKWARD.arrays(given)
        assert isinstance(terms, Terms)
        return Terms(terms.value.T, terms.size)

    with pytest.raises(ValueError, match="out: arrays answer shape"):
        expected(replace(KL_DIV_BACKWARD, arrays=arrays), call())


def test_what_ends_the_checks_is_zeros() -> None:
    truth = expected(KL_DIV_BACKWARD, call(), filled=0.0)
    np.testing.assert_array_equal(truth["out"].value, np.zeros((4, 6)))


def test_the_truth_of_a_worked_example_is_that_of_the_document() -> None:
    # E6 of [src:worked-examples]: target larger than self.
    first = next(iter(cases_of(KL_DIV_BACKWARD, "grid")))
    values = {
        "grad_output": [[1, 2, 3], [-1, -2, -3]],
        "self": [[-1], [-2]],
        "target": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
    }
    shapes = {"grad_output": (2, 3), "self": (2, 1), "target": (2, 3)}
    example = call_of(replace(first, setup=Setup(values=values), shapes=shapes), seed=0)
    truth = expected(KL_DIV_BACKWARD, example)["out"]
    np.testing.assert_allclose(truth.value, [[-1.4], [3.2]], rtol=1e-6)
    np.testing.assert_allclose(truth.size, [[1.4], [3.2]], rtol=1e-6)
    assert truth.summed == 3


def test_tensors_come_rounded_to_their_dtype() -> None:
    case = next(c for c in cases_of(KL_DIV_BACKWARD, "grid") if c.dtype is FLOAT16)
    target = call_of(case, seed=0).given["target"]
    np.testing.assert_array_equal(target, target.astype(np.float16).astype(np.float64))


INF, NAN = reals.INFINITY, reals.NAN


@each(
    ("value", "wanted"),
    [
        (reals.exp(1000.0), INF),
        (reals.exp(12.0, top=65504.0), INF),  # e^12 is 162755
        (reals.exp(-INF), 0.0),
        (reals.log(0.0), -INF),
        (reals.log(-0.0), -INF),
        (reals.log(-1.0), NAN),
        (reals.log(INF), INF),
        (reals.divide(0.0, 0.0), NAN),
        (reals.divide(-1.0, 0.0), -INF),
        (reals.divide(1.0, -0.0), -INF),
        (reals.divide(NAN, 0.0), NAN),
        (reals.divide(INF, INF), NAN),
        (reals.sigmoid(1000.0), 1.0),
        (reals.sigmoid(-1000.0), 0.0),
        (reals.sigmoid(NAN), NAN),
        (reals.sigmoid(-INF), 0.0),
        (reals.capped(-7.0, 6.0), -INF),
        (reals.total([INF, -INF]), NAN),
        (reals.total([1.0, 1e100, 1.0, -1e100]), 2.0),
    ],
)
def test_single_numbers_follow_ieee(value: float, wanted: float) -> None:
    np.testing.assert_equal(value, wanted)


@each("dtype", [FLOAT, FLOAT16, BF16])
def test_the_largest_number_of_a_dtype_is_the_last_before_infinity(dtype: DType) -> None:
    number = np.float64(dtype.largest)
    with np.errstate(over="ignore"):
        assert np.isfinite(number.astype(dtype.numpy))
        assert np.isinf((number * 1.01).astype(dtype.numpy))


# --- A look at an answer --------------------------------------------------------------------------


VALUE = np.arange(12.0).reshape(3, 4)


def answer(
    array: Any = VALUE,
    dtype: DType = FLOAT,
    layout: Arrangement = DENSE,
    variant: str = "",
) -> WireAnswer:
    array = np.asarray(array)
    spec = layout.spec(dtype, array.shape)
    storage, _ = put(array.astype(dtype.numpy), spec)
    return answer_of({"out": spec}, {"out": bytes(storage)}, variant)


def answer_of(outputs: Any, storages: Any, variant: str = "") -> WireAnswer:
    identity = ServerIdentity("here", "local", "Ascend910B1")
    reply = Reply(variant, FLOAT, outputs, tuple(outputs), (), identity)
    return WireAnswer(reply, storages, Timings(), 0)


def expectation(**changes: Any) -> Expectation:
    truth = Expected(VALUE, np.abs(VALUE), 1, FLOAT, stepwise=False, dtype=FLOAT)
    return Expectation("", {"out": truth}, **changes)


def look(
    found: WireAnswer | NpucallError,
    wanted: Expectation | None = None,
    profile: str = "cpu-strict",
) -> CheckResult:
    return check(wanted or expectation(), found, profile)


def error(status: int = 161002, parameter: Any = "self") -> NpucallError:
    return ShapeError("self: expected less", parameter=parameter, aclnn_status=status)


REFUSED = expectation(refused=Invalid("shape-self", {"self": {"shape": ()}}, ("self",), ShapeError))


@each("layout", [DENSE, TRANSPOSED, GAPS, STEP])
def test_the_right_answer_is_right_in_every_layout(layout: Arrangement) -> None:
    right = answer(layout=layout)
    sent = {} if layout is DENSE else right.storages
    assert look(right, expectation(sent=sent)).problems == ()


@each(
    ("found", "says"),
    [
        (answer(VALUE.T), r"found FLOAT \(4, 3\)"),
        (answer(dtype=FLOAT16), "found FLOAT16"),
        (answer(VALUE + np.eye(3, 4)), r"element \[0, 0\]"),
        (answer(variant="builtin"), "variant"),
        (answer_of({}, {}), "outputs"),
        (error(), "SHAPE_MISMATCH 161002"),
    ],
)
def test_what_is_wrong_is_said(found: WireAnswer | NpucallError, says: str) -> None:
    (problem,) = look(found).problems
    assert re.search(says, problem)


def test_a_gap_that_was_written_or_was_not_sent_is_a_problem() -> None:
    good = answer(layout=GAPS)
    storage = bytearray(good.storages["out"])
    storage[16] = 0  # behind the first row of four float32
    written = answer_of(good.outputs, {"out": bytes(storage)})
    for found, sent in ((written, good.storages), (good, {})):
        (problem,) = look(found, expectation(sent=sent)).problems
        assert "gaps" in problem


@each(
    ("found", "says"),
    [
        (answer(), "found an answer"),
        (error(status=161001), "expected status 161002, found 161001"),
        (error(parameter="target"), "blamed"),
        (error(parameter=("self", "target")), "blamed"),
        (DTypeError("self: no", parameter="self", aclnn_status=161002), "expected reason SHAPE"),
    ],
)
def test_another_error_is_wrong(found: WireAnswer | NpucallError, says: str) -> None:
    assert look(error(), REFUSED).problems == ()
    (problem,) = look(found, REFUSED).problems
    assert says in problem


def test_a_device_may_blame_nobody_and_the_reference_has_to_blame_somebody() -> None:
    assert look(error(parameter=()), REFUSED, "cann-standard").problems == ()
    (problem,) = look(error(parameter=()), REFUSED).problems
    assert "blamed" in problem


def test_a_host_may_say_in_its_own_words_that_it_lacks_an_operator() -> None:
    products = cases_of(KL_DIV_BACKWARD, "products")
    case = next(each for each in products if each.defects and not each.defects[0].changes)
    wanted, said = expectation_of(case, call_of(case, seed=0)), OperatorUnavailableError("gone")
    assert look(said, wanted, "cann-standard").problems == ()
    assert look(said, wanted).problems


SOURCES = {"numbers": [[1.0, 2.0]], "refused": Refusal(), "any": ...}
SIDES = Contradiction(99, "an example", Setup(), SOURCES, "numbers")


@each(
    ("found", "agrees"),
    [
        (answer([[1.0, 2.0]]), ("numbers", "any")),
        (answer([[1.0, 3.0]]), ("any",)),
        (answer([1.0, 2.0]), ("any",)),
        (error(161002), ("refused",)),
        (error(161001), ()),
    ],
)
def test_a_contradiction_names_the_sources_that_agree(
    found: WireAnswer | NpucallError, agrees: tuple[str, ...]
) -> None:
    sided = look(found, Expectation("", contradiction=SIDES)).sided
    assert sided is not None
    assert sided.agrees == agrees


@each(("profile", "problems"), [("cpu-strict", 1), ("cann-standard", 0)])
def test_the_reference_must_follow_its_decision_and_hardware_may_follow_any_source(
    profile: str, problems: int
) -> None:
    checked = check(Expectation("", contradiction=SIDES), error(), profile)
    assert len(checked.problems) == problems


def test_a_spec_without_elements_is_right() -> None:
    truth = Expected(np.zeros((0, 3)), np.zeros((0, 3)), 1, FLOAT, stepwise=False, dtype=FLOAT)
    empty = answer_of({"out": TensorSpec(FLOAT, (0, 3))}, {"out": b""})
    assert check(Expectation("", {"out": truth}), empty, "cpu-strict").problems == ()
