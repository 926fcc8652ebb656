"""What an executor lets in, what it says to the others, where time went, what answers hold."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.server.fakes import (
    PATIENCE,
    BlockingDevice,
    Executed,
    FakeCaller,
    FakeDevice,
    admitted,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
)
from tests.server.raw import call_of, channel_to
from tests.server.serving import Offline, record, serving

from npucall.dtypes import FLOAT
from npucall.errors import DrainingError, NpucallError, QueueFullError, TooLargeError
from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall.tensors import TensorSpec
from npucall.texts import retry_in
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import encode
from npucall.wire.messages import join_request
from npucall_server.accounts.budget import Budget
from npucall_server.devices.base import Phases
from npucall_server.devices.cpu import CpuDevice
from npucall_server.scheduling.executor import Executor, Limits
from npucall_server.services.operators import NAME, OperatorService


def fill(
    pool: ThreadPoolExecutor, subject: Executor, calls: int, elements: int = 2
) -> list[Future[Executed]]:
    """Calls that hold a turn, or wait for one."""
    expected = subject.calls_in_flight + calls
    futures = [pool.submit(execute, subject, prepared(elements)) for _ in range(calls)]
    until(lambda: subject.calls_in_flight == expected, "the calls are in")
    return futures


def refused(subject: Executor, elements: int = 2) -> NpucallError:
    with pytest.raises(NpucallError) as caught:
        execute(subject, prepared(elements))
    return caught.value


@pytest.mark.parametrize(("queue_length", "lanes"), [(0, 1), (1, 1), (3, 2), (0, 4)])
def test_as_many_calls_are_let_in_as_may_wait_and_run_and_not_one_more(
    pool: ThreadPoolExecutor, queue_length: int, lanes: int
) -> None:
    device = BlockingDevice(lanes)
    subject = executor(device, queue_length)
    calls = fill(pool, subject, queue_length + lanes)
    error = refused(subject)
    device.let_all_go()
    assert isinstance(error, QueueFullError)
    assert error.details == {"limit": str(queue_length), "setting": "queue_length"}
    assert error.retry_after is not None
    assert 0.05 <= error.retry_after <= 5.0  # QUEUE_BOUNDS
    said = f"the queue is full (queue_length = {queue_length}); {retry_in(error.retry_after)}"
    assert str(error) == said
    assert [call.result(PATIENCE).outputs for call in calls] == [[[b"result"]]] * len(calls)
    until(lambda: is_at_rest(subject), "all is given back")
    assert execute(subject, prepared()).outputs == [[b"result"]]


def test_bytes_in_flight_stay_under_the_memory_limit(pool: ThreadPoolExecutor) -> None:
    device = BlockingDevice(lanes=2)
    subject = executor(device, memory_limit=16 * 250)
    fill(pool, subject, 2, elements=100)  # 16 bytes an element: 3,200 of 4,000
    error = refused(subject, 51)  # 816 more
    assert "memory_limit = 4000" in str(error)
    assert error.details == {"limit": "4000", "setting": "memory_limit"}
    assert error.retry_after is not None
    assert subject.bytes_in_flight == 3200
    fill(pool, subject, 1, elements=50)
    assert subject.bytes_in_flight == 4000
    device.let_all_go()


def test_a_call_over_the_memory_limit_is_refused_for_good_and_planned_alike() -> None:
    subject = executor(FakeDevice(), memory_limit=1599)
    with pytest.raises(TooLargeError, match=r"1599 bytes.*found 1600") as caught:
        execute(subject, prepared(100))
    assert caught.value.details == {"limit": "1599", "setting": "memory_limit"}
    assert caught.value.retry_after is None
    assert is_at_rest(subject)
    with pytest.raises(TooLargeError):
        subject.plan(prepared(100), subject.turn(FakeCaller()))


def test_working_memory_counts_from_admission_to_the_end() -> None:
    device = FakeDevice()
    device.working = 500
    subject, call = executor(device, memory_limit=4000), prepared(100)  # 1,600 bytes
    ticket = admitted(subject, call, FakeCaller())
    assert subject.bytes_in_flight == 2100
    with pytest.raises(QueueFullError, match="memory_limit = 4000"):
        admitted(subject, call, FakeCaller())
    ticket.read()
    assert is_at_rest(subject)


@pytest.mark.parametrize(
    ("setting", "limit", "fault"),
    [
        ("memory_limit", 1616 + 2399, r"working memory.*memory_limit.*4016"),
        ("computation_limit", 100, r"computation: expected at most 100 .*101"),
    ],
)
def test_a_call_that_can_never_be_computed_is_refused_for_good(
    setting: str, limit: int, fault: str
) -> None:
    """100 elements, which take 1,600 bytes, can; 101 cannot."""
    device = FakeDevice()
    device.working = 2400
    limits = {"memory_limit": 1 << 30, "computation_limit": 1 << 30, setting: limit}
    subject = Executor(device, Limits(8, call_timeout=PATIENCE, **limits))  # type: ignore[arg-type]
    assert subject.plan(prepared(100), subject.turn(FakeCaller())) == 512
    call, caller = prepared(101), FakeCaller()
    for ask in (
        lambda: admitted(subject, call, caller),
        lambda: subject.plan(call, subject.turn(caller)),
    ):
        with pytest.raises(TooLargeError, match=fault) as caught:
            ask()
        assert caught.value.details == {"limit": str(limit), "setting": setting}
    assert is_at_rest(subject)


def test_a_draining_executor_refuses_new_calls_and_finishes_the_others(
    pool: ThreadPoolExecutor,
) -> None:
    device = BlockingDevice()
    subject = executor(device, queue_length=2)
    calls = fill(pool, subject, 2)
    subject.drain()
    assert not subject.wait_idle(0.01)
    error = refused(subject)
    assert isinstance(error, DrainingError)
    assert error.retry_after == 1.0
    device.let_all_go()
    assert subject.wait_idle(PATIENCE)
    assert [call.result(PATIENCE).outputs for call in calls] == [[[b"result"]]] * 2
    assert subject.wait_idle(0)


def test_waiting_and_running_are_told_apart(pool: ThreadPoolExecutor) -> None:
    device = BlockingDevice()
    calls = fill(pool, executor(device, queue_length=1), 2)
    device.let_all_go()
    results = [call.result(PATIENCE) for call in calls]
    assert sorted(result.record.queue_ns > 0 for result in results) == [False, True]
    assert all(result.record.run_ns > 0 for result in results)


# --- Where the time of a call on a device went ----------------------------------------------------

PHASES = Phases(copy_in_ns=11, plan_ns=12, run_ns=13, copy_out_ns=14)


@pytest.mark.parametrize("phases", [PHASES, Phases(0, 0, 0, 0), None])
def test_response_and_log_have_every_phase(phases: Phases | None) -> None:
    """On a device without phases all but the queue is run."""
    device = FakeDevice(phases=phases)
    device.result = bytes(8)
    request = pb.ExecuteRequest(call=call_of(2), storage=[{"data": bytes(8)}] * 3)
    with serving(device) as served, channel_to(served.target) as channel:
        answer = channel.unary_unary(f"/{NAME}/Execute")(request.SerializeToString())
    timings = pb.ExecuteResponse.FromString(answer).timings
    (line,) = served.events("call")
    for name in Phases._fields:
        assert getattr(timings, name) == line.get(name, 0)
    told = Phases(*(getattr(timings, name) for name in Phases._fields))
    assert told == (phases or Phases(0, 0, told.run_ns, 0))
    assert told.run_ns > 0 or phases is not None


# --- An answer holds memory until it is read, and no place in the queue ---------------------------

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
