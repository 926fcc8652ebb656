"""Elements that a kernel leaves as they were: what an NPU gives there is what the CPU gives."""

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT
from npucall.operators import CATALOGUE
from npucall.places import StepOutput
from npucall.tensors import TensorSpec
from npucall_server.devices.base import ResidentPart, Step

from .calls import Case, Given, Strided, declared
from .opened import Opened, bytes_of
from .test_tensors import COLUMNS, SENTINEL, strided

GRADIENT = CATALOGUE.find("aclnnL1LossBackward")
ONE = np.ones((2, 3), np.float32)
# The gradient is 0 where both are equal, and -inf where that is what comes from behind.
COMING = np.array([[1, -np.inf, 2], [-np.inf, 3, 4]], np.float32)
SELF = np.array([[1, 2, 0], [5, 1, 1]], np.float32)
LABELS = np.array([1, 0])
LEFT = [0.0, -np.inf, np.where(COMING < 0, -np.inf, 0)]
"""What kernels leave as it was: elements that are 0, those that are -inf, each its own."""


@pytest.fixture(params=LEFT, ids=["0", "-inf", "each"])
def left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on kernels leave these elements of the gradient as they were."""
    monkeypatch.setitem(GRADIENT.unwritten, "grad_input", lambda _: request.param)  # type: ignore[arg-type]


of_the_gradient = pytest.mark.usefixtures("left")


def gradient(device: Opened, **more: Any) -> Case:
    given = {"grad_output": COMING, "self": SELF, "target": ONE}
    return declared(device, "aclnnL1LossBackward", reduction=2, **given, **more)


def between_sentinels(answer: bytes) -> bool:
    return np.count_nonzero(np.frombuffer(answer, np.float32) == SENTINEL) == 40 - 6


@of_the_gradient
def test_a_call_gives_what_the_reference_gives_between_sentinels_too(any_way: Opened) -> None:
    assert any_way.serves(gradient(any_way))
    target = strided(np.full((2, 3), 9, np.float32), *COLUMNS)
    case = gradient(any_way, grad_input=target)
    assert any_way.serves(case)
    assert between_sentinels(case.answers[0])


@of_the_gradient
def test_handles_and_steps_do_too(any_way: Opened) -> None:
    case = gradient(any_way)
    target = any_way.filled(b"\x77" * 24)
    steps = [
        Step(case.call, case.storages, discarded=frozenset({"grad_input"})),
        Step(case.call, case.storages, {"grad_input": target}),
        Step(case.call, {**case.storages, "self": StepOutput(0, "grad_input")}),
        Step(case.call, case.storages),
    ]
    assert any_way.program(steps)[3] == [bytes_of(target)] == case.answers
    assert any_way.run(case, targets={"grad_input": target}).outputs == [[target]]
    assert [bytes_of(target)] == case.answers
    target.free()


@of_the_gradient
def test_what_lies_between_the_elements_of_a_handle_or_of_a_step_stays(any_way: Opened) -> None:
    dense = Strided(TensorSpec(FLOAT, (2, 3)), bytes(24))
    for target in dense, strided(ONE, *COLUMNS):
        case = gradient(any_way, grad_input=target)
        kept = any_way.filled(target.storage)
        storages = {**case.storages, "grad_input": ResidentPart(kept, 0, kept.nbytes)}
        assert any_way.serves(case._replace(storages=storages))
        behind = {**case.storages, "grad_input": StepOutput(0, "grad_input")}
        steps = [Step(case.call, each) for each in (storages, behind)]
        assert any_way.program(steps) == [case.answers] * 2
        assert bytes_of(kept) == target.storage
        kept.free()


def test_a_call_of_nothing_writes_zeros_between_sentinels(any_way: Opened) -> None:
    """It is done though its output has elements."""
    target = strided(np.full((2, 3), 9, np.float32), *COLUMNS)
    given = {"self": np.zeros((0, 3), np.float32), "target": ONE, "grad_target": target}
    case = declared(any_way, "aclnnKlDivTargetBackward", grad_output=ONE, reduction=2, **given)
    assert case.call.done
    assert any_way.serves(case)
    assert any_way.program([Step(case.call, case.storages)] * 2) == [case.answers] * 2
    numbers = np.frombuffer(case.answers[0], np.float32)
    assert not numbers[numbers != SENTINEL].any()


def ctc(device: Opened) -> Case:
    """Items of all steps, of some, and of none with and without labels."""
    log_probs = np.log(np.random.default_rng(1).dirichlet(np.ones(3), (4, 4))).astype(np.float32)
    return declared(
        device, "aclnnCtcLoss", log_probs=log_probs, targets=np.ones((4, 1), np.int64),
        input_lengths=(4, 2, 0, 0), target_lengths=(1, 1, 1, 0), blank=0, zero_infinity=False,
    )  # fmt: skip


def nll(device: Opened) -> Case:
    given = {"self": SELF, "target": LABELS, "weight": ONE[0]}
    return declared(device, "aclnnNLLLoss", reduction=0, ignore_index=-100, **given)


def cross_entropy(device: Opened) -> Case:
    zloss = dict.fromkeys(("zloss_out", "lse_for_zloss_out"), Given(TensorSpec(FLOAT, (5,))))
    return declared(device, "aclnnCrossEntropyLoss", input=SELF, target=LABELS, **zloss)


def test_operators_of_which_devices_leave_elements_give_what_the_reference_gives(
    any_way: Opened,
) -> None:
    wrong = []
    for ask in ctc, nll, cross_entropy:
        case = ask(any_way)
        assert case.call.unwritten
        steps = [Step(case.call, case.storages)] * 2
        fits = any_way.serves(case) and any_way.program(steps) == [case.answers] * 2
        wrong += [] if fits else [ask]
    assert wrong == []
