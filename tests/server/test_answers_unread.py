"""A unary answer holds memory until its caller has read it, and no place in the queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT
from npucall.errors import QueueFullError, TooLargeError
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request
from npucall.wire.replies import ServerIdentity
from npucall_server.budget import Budget
from npucall_server.devices.cpu import CpuDevice
from npucall_server.execution.executions import Executions
from npucall_server.executor import Executor
from npucall_server.kept_memory import KeptMemory
from npucall_server.log import Record
from npucall_server.services.operators import OperatorService
from npucall_server.settings import ServerSettings
from npucall_server.shared.regions import Regions

from .scripted import ScriptedCaller, executor, is_at_rest, ledger, open_gate

ELEMENTS = 1000
ONE = np.ones(1, np.float32).tobytes()
ANSWER = 4 * ELEMENTS


def served(memory_limit: int, **settings: Any) -> tuple[OperatorService, Executor]:
    device: Any = CpuDevice("Ascend910B1", "documented", 1)
    subject = executor(device, queue_length=0, memory_limit=memory_limit)
    identity = ServerIdentity("0123456789ab", "cpu", "x")
    executions = Executions(
        subject, identity, Regions(1, ledger()), KeptMemory(1 << 40), open_gate()
    )
    given = ServerSettings(**settings)
    return OperatorService(executions, given, Budget.of(given, 64), identity), subject


def ask(service: OperatorService, caller: ScriptedCaller) -> bytes:
    """A call of a few bytes whose answer has 4,000."""
    inputs = {
        "grad_output": TensorSpec(FLOAT, (1,)),
        "self": TensorSpec(FLOAT, (ELEMENTS,), strides=(0,), storage_shape=(1,)),
        "target": TensorSpec(FLOAT, (1,)),
    }
    call = encode("aclnnL1LossBackward", "", inputs, tuple(inputs))
    return service.execute(join_request(call, [ONE] * 3), Record("Execute", "id", "peer"), caller)


def test_the_room_of_an_answer_is_given_back_when_its_caller_has_it() -> None:
    service, subject = served(1 << 20)
    caller = ScriptedCaller()
    assert len(ask(service, caller)) > ANSWER
    assert subject.bytes_in_flight >= 2 * ANSWER  # it was made beside the outputs
    ask(service, ScriptedCaller())  # the only place in the queue is free again
    caller.cancel()  # gRPC calls back alike where it has been read
    assert subject.calls_in_flight == 1


def test_a_caller_that_has_gone_holds_nothing() -> None:
    service, subject = served(1 << 20)
    caller = ScriptedCaller()
    ask(service, caller)
    caller.cancel()
    assert is_at_rest(subject)


def test_unread_answers_fill_the_memory_and_no_more() -> None:
    service, subject = served(5 * ANSWER)
    ask(service, ScriptedCaller())
    ask(service, ScriptedCaller())
    with pytest.raises(QueueFullError, match="memory_limit"):
        ask(service, ScriptedCaller())
    assert subject.bytes_in_flight <= 5 * ANSWER


def test_those_of_a_greedy_connection_are_cut_for_others() -> None:
    service, subject = served(5 * ANSWER)
    greedy = [ScriptedCaller(), ScriptedCaller()]
    for caller in greedy:
        ask(service, caller)
    other = ScriptedCaller()
    other.peer = "another"
    ask(service, other)
    assert [caller.is_active() for caller in greedy] == [True, False]
    assert subject.bytes_in_flight <= 5 * ANSWER


@pytest.mark.parametrize(("streams", "method"), [(4, "ExecuteStream"), (0, None)])
def test_an_answer_without_room_beside_its_outputs_goes_on_a_stream(
    streams: int, method: str | None
) -> None:
    service, _ = served(ANSWER * 3 // 2, max_streams=streams)
    with pytest.raises(TooLargeError, match="in one message") as caught:
        ask(service, ScriptedCaller())
    assert caught.value.details.get("method") == method
