"""A unary answer holds memory until its caller has read it, and no place in the queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT
from npucall.errors import QueueFullError, TooLargeError
from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request
from npucall_server.budget import Budget
from npucall_server.devices.cpu import CpuDevice
from npucall_server.services.operators import OperatorService

from .fakes import FakeCaller, is_at_rest
from .serving import Offline, record

ELEMENTS = 1000
ONE = np.ones(1, np.float32).tobytes()
ANSWER = 4 * ELEMENTS


class Operators(Offline):
    """Without a queue."""

    def __init__(self, memory_limit: int, **settings: Any) -> None:
        device = CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, 1)
        super().__init__(device, queue_length=0, memory_limit=memory_limit, **settings)
        budget = Budget.of(self.settings, 64)
        self.service = OperatorService(self.executions, self.settings, budget, self.core.identity)

    def ask(self, caller: FakeCaller | None = None) -> bytes:
        """A call of a few bytes whose answer has 4,000."""
        inputs = {
            "grad_output": TensorSpec(FLOAT, (1,)),
            "self": TensorSpec(FLOAT, (ELEMENTS,), strides=(0,), storage_shape=(1,)),
            "target": TensorSpec(FLOAT, (1,)),
        }
        call = encode("aclnnL1LossBackward", "", inputs, tuple(inputs))
        return self.service.execute(join_request(call, [ONE] * 3), record(), caller or FakeCaller())


def test_the_room_of_an_answer_is_given_back_when_its_caller_has_it_or_has_gone() -> None:
    server = Operators(1 << 20)
    caller, other = FakeCaller(), FakeCaller()
    assert len(server.ask(caller)) > ANSWER
    assert server.executor.bytes_in_flight >= 2 * ANSWER  # it was made beside the outputs
    server.ask(other)  # the only place in the queue is free again
    caller.cancel()  # gRPC calls back alike where it has been read
    assert server.executor.calls_in_flight == 1
    other.cancel()
    assert is_at_rest(server.executor)


def test_unread_answers_fill_the_memory_and_no_more() -> None:
    server = Operators(5 * ANSWER)
    for _ in range(2):
        server.ask()
    with pytest.raises(QueueFullError, match="memory_limit"):
        server.ask()
    assert server.executor.bytes_in_flight <= 5 * ANSWER


def test_those_of_a_greedy_connection_are_cut_for_others() -> None:
    server = Operators(5 * ANSWER)
    greedy = [FakeCaller(), FakeCaller()]
    for caller in greedy:
        server.ask(caller)
    server.ask(FakeCaller(peer="another"))
    assert [caller.is_active() for caller in greedy] == [True, False]
    assert server.executor.bytes_in_flight <= 5 * ANSWER


@pytest.mark.parametrize(("streams", "method"), [(4, "ExecuteStream"), (0, None)])
def test_an_answer_without_room_beside_its_outputs_goes_on_a_stream(
    streams: int, method: str | None
) -> None:
    with pytest.raises(TooLargeError, match="in one message") as caught:
        Operators(ANSWER * 3 // 2, max_streams=streams).ask()
    assert caught.value.details.get("method") == method
