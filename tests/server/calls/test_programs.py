"""Programs: checked as a whole, run in their order, filled or not as a whole."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np
import pytest
from tests.server.fakes import INPUTS
from tests.server.serving import record
from tests.server.sessions.raw import A, B, C

from npucall.dtypes import FLOAT, INT64
from npucall.errors import (
    ArgumentError,
    HandleEmptyError,
    MessageError,
    MissingError,
    NpucallError,
    ShapeError,
    TensorLayoutError,
)
from npucall.places import Digest, Discard, HandlePart, Keep, OutputPlace, Place, StepOutput
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.program_messages import StepRequest, join_program

from .test_handles_in_calls import (
    BYTES,
    COUNT,
    EXPECTED,
    L1,
    SIZE,
    SPEC,
    OnHandles,
    part,
    server,
)

__all__ = ["server"]


def step(
    storage: Sequence[Place] = BYTES,
    places: Mapping[str, OutputPlace] | None = None,
    call: bytes = L1,
) -> StepRequest:
    return StepRequest(call, storage, places or {})


def test_a_program_gives_what_its_calls_give_one_by_one(server: OnHandles) -> None:
    server.keep(B, bytes(BYTES[2]))
    first = server.run_l1(BYTES).storage[0]
    second = server.run_l1([first, BYTES[1], part(B)]).storage[0]
    results = [StepOutput(0, "grad_input"), BYTES[1], part(B)]
    found = server.program(
        step(places={"grad_input": Discard()}),
        step(results),
        step([StepOutput(1, "grad_input"), BYTES[1], BYTES[2]], {"grad_input": Keep(A)}),
    )
    assert [answer.storage for answer in found] == [[None], [second], [HandlePart(A, 0, SIZE)]]
    assert server.read(A) == server.run_l1([second, *BYTES[1:]]).storage[0]


def test_an_output_may_be_kept_and_taken_by_a_later_step(server: OnHandles) -> None:
    server.program(
        step(places={"grad_input": Keep(A)}),
        step([StepOutput(0, "grad_input"), *BYTES[1:]], {"grad_input": Keep(B)}),
    )
    assert server.read(A) == EXPECTED
    assert server.read(B) == server.run_l1([part(A), *BYTES[1:]]).storage[0]


WIDE = {"grad_output": SPEC, "self": SPEC, "target": TensorSpec(FLOAT, (2 * COUNT,))}
WRONG: list[tuple[StepRequest, type[NpucallError], str]] = [
    (step(BYTES[:2]), TensorLayoutError, "storage: expected 3"),
    (step([StepOutput(1, "grad_input"), *BYTES[1:]]), MessageError, "an earlier step"),
    (step([StepOutput(0, "out"), *BYTES[1:]]), MessageError, "step 0 (grad_input)"),
    (step([None, *BYTES[1:]]), MessageError, "a program cannot send chunks"),
    (step(places={"out": Discard()}), MessageError, "output_places"),
    (step([part(C), *BYTES[1:]]), HandleEmptyError, "handle"),
    (step(call=b"\x0a\x03odd"), NpucallError, "odd"),
    (step([BYTES[0][:8], *BYTES[1:]]), TensorLayoutError, "grad_output: expected 256"),
    (step(call=encode("aclnnL1LossBackward", "", WIDE, INPUTS)), ShapeError, "target"),
    (step([Digest(b"d" * 32), *BYTES[1:]]), MissingError, "1 of the digests"),
    (step(places={"grad_input": Keep(b"short")}), MessageError, "handle: expected 16 bytes"),
]


def test_a_step_that_is_wrong_is_named_before_any_runs(server: OnHandles) -> None:
    for second, error, words in WRONG:
        with pytest.raises(error) as caught:
            server.program(step(places={"grad_input": Keep(A)}), second)
        assert words in str(caught.value)
        assert caught.value.details["step"] == "1"
    assert server.device.ran == 0
    with pytest.raises(HandleEmptyError):
        server.read(A)


def test_labels_are_checked_before_any_step_runs_wherever_they_lie(server: OnHandles) -> None:
    data = np.full(2, 7, np.int64).tobytes()
    digest = sha256(data).digest()
    server.keep(B, data)
    server.digests.remember("", digest, data)
    for place in memoryview(data), part(B, length=len(data)), Digest(digest):
        with pytest.raises(ArgumentError, match="found 7") as caught:
            server.program(step(places={"grad_input": Keep(A)}), labels(place))
        assert caught.value.details["step"] == "1"
        with pytest.raises(HandleEmptyError):
            server.read(A)
    server.session.release([B])
    assert server.handle_bytes == 0


def labels(target: Place) -> StepRequest:
    """A call whose labels are checked before a device runs it."""
    row, one = TensorSpec(FLOAT, (2, 3)), TensorSpec(FLOAT, (1,))
    specs = {
        "grad_loss": one, "log_prob": row, "target": TensorSpec(INT64, (2,)),
        "weight": TensorSpec(FLOAT, (3,)),
    }  # fmt: skip
    call = encode("aclnnCrossEntropyLossGrad", "", {**specs, "reduction": "mean"}, tuple(specs))
    rows = [memoryview(bytes(size)) for size in (4, 24, 12)]
    return StepRequest(call, [rows[0], rows[1], target, rows[2]], {})


def test_labels_cannot_be_what_the_same_program_computes(server: OnHandles) -> None:
    spec = TensorSpec(FLOAT, (4,))
    call = encode(
        "aclnnL1LossBackward", "", {**dict.fromkeys(INPUTS, spec), "reduction": 0}, INPUTS
    )
    made = step([data[:16] for data in BYTES], call=call)
    with pytest.raises(ArgumentError, match="known before the program runs") as caught:
        server.program(made, labels(StepOutput(0, "grad_input")))
    assert caught.value.parameter == "target"
    assert server.device.ran == 0


def test_the_same_program_again_is_answered_without_running(server: OnHandles) -> None:
    steps = (
        step(places={"grad_input": Discard()}),
        step([StepOutput(0, "grad_input"), *BYTES[1:]], {"grad_input": Keep(A)}),
    )
    first, again = server.program(*steps), server.program(*steps)
    assert [answer.storage for answer in first] == [answer.storage for answer in again]
    assert server.device.ran == 1


def test_a_retry_that_is_to_answer_an_output_computes_it_again(server: OnHandles) -> None:
    steps = step(), step(places={"grad_input": Keep(A)})
    found = [server.program(*steps)[0].storage for _ in range(2)]
    assert found == [[EXPECTED]] * 2
    assert server.device.ran == 2
    assert server.read(A) == EXPECTED


def test_a_program_has_one_to_256_steps(server: OnHandles) -> None:
    for count in 0, 257:
        with pytest.raises(MessageError, match="program: expected"):
            server.program(*[step()] * count)


def test_a_plan_of_a_program_says_what_it_gives_and_needs(server: OnHandles) -> None:
    steps = step([], {"grad_input": Discard()}), step([StepOutput(0, "grad_input"), None, None])
    plan = join_program(steps), server.caller, record()
    replies, _, peak = server.executions.plan(*plan, program=True)
    assert len(replies) == 2
    assert peak == 2 * SIZE
    assert server.device.ran == 0


def test_a_plan_refuses_what_running_refuses(server: OnHandles) -> None:
    steps = step([]), step([StepOutput(0, "out"), None, None])
    plan = join_program(steps), server.caller, record()
    with pytest.raises(MessageError) as caught:
        server.executions.plan(*plan, program=True)
    assert caught.value.details["step"] == "1"
