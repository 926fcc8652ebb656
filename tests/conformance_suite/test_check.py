"""What a look at an answer finds: every way in which it can be wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from tests.rows import each

from npucall.dtypes import FLOAT, FLOAT16, DType
from npucall.errors import DTypeError, NpucallError, ShapeError
from npucall.tensors import TensorSpec
from npucall.wire.replies import Reply, ServerIdentity, Timings
from npucall_client.conformance.cases.arrangements import Arrangement, put
from npucall_client.conformance.judging.check import Checked, Expectation, Refused, check
from npucall_client.conformance.judging.truth import Expected
from npucall_client.conformance.stating.parts import Contradiction, Refusal, Setup
from npucall_client.conformance.wire import Answer

VALUE = np.arange(12.0).reshape(3, 4)


def answer(
    array: Any = VALUE,
    dtype: DType = FLOAT,
    layout: Arrangement = Arrangement.DENSE,
    variant: str = "",
) -> Answer:
    array = np.asarray(array)
    spec = layout.spec(dtype, array.shape)
    storage, _ = put(array.astype(dtype.numpy), spec)
    return answer_of({"out": spec}, {"out": bytes(storage)}, variant)


def answer_of(outputs: Any, storages: Any, variant: str = "") -> Answer:
    identity = ServerIdentity("here", "local", "Ascend910B1")
    reply = Reply(variant, FLOAT, outputs, tuple(outputs), (), identity)
    return Answer(reply, storages, Timings(), 0)


def expectation(**changes: Any) -> Expectation:
    truth = Expected(VALUE, np.abs(VALUE), 1, FLOAT, stepwise=False, dtype=FLOAT)
    return Expectation("", {"out": truth}, **changes)


def look(
    found: Answer | NpucallError,
    wanted: Expectation | None = None,
    profile: str = "cpu-strict",
) -> Checked:
    return check(wanted or expectation(), found, profile)


def error(status: int = 161002, parameter: Any = "self") -> NpucallError:
    return ShapeError("self: expected less", parameter=parameter, aclnn_status=status)


REFUSED = expectation(refused=Refused(161002, "SHAPE_MISMATCH", ("self",)))


@each("layout", [Arrangement.DENSE, Arrangement.TRANSPOSED, Arrangement.GAPS, Arrangement.STEP])
def test_the_right_answer_is_right_in_every_layout(layout: Arrangement) -> None:
    right = answer(layout=layout)
    sent = {} if layout is Arrangement.DENSE else right.storages
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
def test_what_is_wrong_is_said(found: Answer | NpucallError, says: str) -> None:
    (problem,) = look(found).problems
    assert re.search(says, problem)


def test_a_gap_that_was_written_is_a_problem() -> None:
    good = answer(layout=Arrangement.GAPS)
    storage = bytearray(good.storages["out"])
    storage[16] = 0  # behind the first row of four float32
    written = answer_of(good.outputs, {"out": bytes(storage)})
    (problem,) = look(written, expectation(sent=good.storages)).problems
    assert "gaps" in problem


def test_what_was_not_sent_comes_back_without_gaps() -> None:
    (problem,) = look(answer(layout=Arrangement.GAPS), expectation(sent={})).problems
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
def test_another_error_is_wrong(found: Answer | NpucallError, says: str) -> None:
    assert look(error(), REFUSED).problems == ()
    (problem,) = look(found, REFUSED).problems
    assert says in problem


def test_a_device_may_blame_nobody_and_the_reference_has_to_blame_somebody() -> None:
    assert look(error(parameter=()), REFUSED, "cann-standard").problems == ()
    (problem,) = look(error(parameter=()), REFUSED).problems
    assert "blamed" in problem


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
    found: Answer | NpucallError, agrees: tuple[str, ...]
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
