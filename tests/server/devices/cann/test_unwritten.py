"""Elements that a kernel leaves as they were: what an NPU gives there is what the CPU gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.server.devices.cann.test_tensors import COLUMNS, SENTINEL, strided

from npucall.dtypes import FLOAT
from npucall.errors import TensorLayoutError
from npucall.operators import CATALOGUE
from npucall.places import StepOutput
from npucall.tensors import TensorSpec
from npucall_server.devices.base import ResidentPart, Step

from .asked import Asked, Given, Strided, declared
from .opened import FreeTurn
from .situations import FOUR_PIECES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened

    Open = Callable[..., Opened]

GRADIENT = CATALOGUE.find("aclnnL1LossBackward")
ONE = np.ones((2, 3), np.float32)
# The gradient is 0 where both are equal, and -inf where that is what comes from behind.
COMING = np.array([[1, -np.inf, 2], [-np.inf, 3, 4]], np.float32)
SELF = np.array([[1, 2, 0], [5, 1, 1]], np.float32)


@pytest.fixture(params=[0, FOUR_PIECES, 2**20], ids=["waiting", "in pieces", "whole"])
def staging(request: pytest.FixtureRequest, open_device: Open) -> Opened:
    """However tensors are copied."""
    return open_device(staging_limit=request.param)


@pytest.fixture(params=[0.0, -np.inf, np.where(COMING < 0, -np.inf, 0)], ids=["0", "-inf", "each"])
def left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """From now on kernels leave these elements of the gradient as they were."""
    monkeypatch.setitem(GRADIENT.unwritten, "grad_input", lambda _: request.param)  # type: ignore[arg-type]
    return request.param


def asked(device: Opened, **more: Any) -> Asked:
    given = {"grad_output": COMING, "self": SELF, "target": ONE}
    return declared(device.device, "aclnnL1LossBackward", reduction=2, **given, **more)


def of_nothing(device: Opened, **more: Any) -> Asked:
    """A call that is done though its output has elements."""
    given = {"self": np.zeros((0, 3), np.float32), "target": np.ones((2, 3), np.float32)}
    return declared(
        device.device, "aclnnKlDivTargetBackward", grad_output=ONE, reduction=2, **given, **more
    )


def bytes_of(outputs: Any) -> list[bytes]:
    return [bytes(output) for output in outputs]


@pytest.mark.usefixtures("left")
def test_a_call_gives_what_the_reference_gives(staging: Opened) -> None:
    assert staging.serves(asked(staging))


@pytest.mark.usefixtures("left")
def test_an_output_between_sentinels_does_too(staging: Opened) -> None:
    target = strided(np.full((2, 3), 9, np.float32), *COLUMNS)
    call = asked(staging, grad_input=target)
    (answer,) = staging.answers(call)
    assert [answer] == call.answers
    assert np.count_nonzero(np.frombuffer(answer, np.float32) == SENTINEL) == 40 - 6


@pytest.mark.usefixtures("left")
def test_handles_and_steps_do_too(staging: Opened) -> None:
    call = asked(staging)
    target = staging.device.allocate(24)
    target.write(0, b"\x77" * 24)
    steps = [
        Step(call.call, call.storages, discarded=frozenset({"grad_input"})),
        Step(call.call, call.storages, {"grad_input": target}),
        Step(call.call, {**call.storages, "self": StepOutput(0, "grad_input")}),
        Step(call.call, call.storages),
    ]
    outputs = staging.device.run_program(steps, FreeTurn()).outputs
    assert [bytes(target.read(0, 24))] == bytes_of(outputs[3]) == call.answers
    again = staging.device.run(call.call, call.storages, FreeTurn(), {"grad_input": target})
    assert again.outputs == [target]
    assert [bytes(target.read(0, 24))] == call.answers
    target.free()


@pytest.mark.usefixtures("left")
def test_gaps_of_a_handle_are_refused(staging: Opened) -> None:
    target = strided(ONE, *COLUMNS)
    call = asked(staging, grad_input=target)
    kept = staging.device.allocate(len(target.storage))
    kept.write(0, target.storage)
    part = ResidentPart(kept, 0, kept.nbytes)
    storages = {**call.storages, "grad_input": part}
    with pytest.raises(TensorLayoutError, match="grad_input: expected an output without gaps"):
        staging.device.run(call.call, storages, FreeTurn())
    with pytest.raises(TensorLayoutError) as caught:
        staging.device.run_program(
            [Step(call.call, s) for s in (call.storages, storages)], FreeTurn()
        )
    assert caught.value.details["step"] == "1"
    kept.free()


def test_a_handle_without_gaps_serves_as_an_output_that_is_sent(
    staging: Opened, left: object
) -> None:
    del left
    whole = Strided(TensorSpec(asked(staging).call.inputs["self"].dtype, (2, 3)), bytes(24))
    call = asked(staging, grad_input=whole)
    kept = staging.device.allocate(24)
    kept.write(0, b"\x77" * 24)
    storages = {**call.storages, "grad_input": ResidentPart(kept, 0, 24)}
    assert bytes_of(staging.device.run(call.call, storages, FreeTurn()).outputs) == call.answers
    kept.free()


def test_a_call_of_nothing_writes_zeros_between_sentinels(staging: Opened) -> None:
    call = of_nothing(staging, grad_target=strided(np.full((2, 3), 9, np.float32), *COLUMNS))
    assert call.call.done
    (answer,) = staging.answers(call)
    assert [answer] == call.answers
    assert not np.frombuffer(answer, np.float32)[
        np.frombuffer(answer, np.float32) != SENTINEL
    ].any()
    outputs = staging.device.run_program([Step(call.call, call.storages)] * 2, FreeTurn()).outputs
    assert bytes_of(outputs[1]) == call.answers


LABELS = np.array([1, 0])


def ctc(device: Opened) -> Asked:
    """Items of all steps, of some, and of none with and without labels."""
    log_probs = np.log(np.random.default_rng(1).dirichlet(np.ones(3), (4, 4))).astype(np.float32)
    return declared(
        device.device, "aclnnCtcLoss", log_probs=log_probs, targets=np.ones((4, 1), np.int64),
        input_lengths=(4, 2, 0, 0), target_lengths=(1, 1, 1, 0), blank=0, zero_infinity=False,
    )  # fmt: skip


def nll(device: Opened) -> Asked:
    given = {"self": SELF, "target": LABELS, "weight": ONE[0]}
    return declared(device.device, "aclnnNLLLoss", reduction=0, ignore_index=-100, **given)


def cross_entropy(device: Opened) -> Asked:
    zloss = dict.fromkeys(("zloss_out", "lse_for_zloss_out"), Given(TensorSpec(FLOAT, (5,))))
    return declared(device.device, "aclnnCrossEntropyLoss", input=SELF, target=LABELS, **zloss)


@pytest.mark.parametrize("ask", [ctc, nll, cross_entropy])
def test_operators_of_which_devices_leave_elements_give_what_the_reference_gives(
    staging: Opened, ask: Callable[[Opened], Asked]
) -> None:
    call = ask(staging)
    assert call.call.unwritten
    assert staging.serves(call)
    steps = [Step(call.call, call.storages)] * 2
    for outputs in staging.device.run_program(steps, FreeTurn()).outputs:
        assert bytes_of(outputs) == call.answers
