"""Calls and programs that read handles, fill them, and take bytes by their digests."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from tests.server import serving
from tests.server.fakes import INPUTS, PATIENCE, FakeCaller, until
from tests.server.serving import record
from tests.server.sessions.raw import A, B, C

from npucall.dtypes import FLOAT
from npucall.errors import (
    ArgumentError,
    CancelledError,
    HandleEmptyError,
    HandleExistsError,
    HandleMemoryError,
    HandleReleasedError,
    MessageError,
    MissingError,
    QueueFullError,
    SessionUnknownError,
    TensorLayoutError,
)
from npucall.exchange import Chunk
from npucall.operators import DEFAULT_VARIANT
from npucall.places import Digest, HandlePart, Keep, OutputPlace, Place, StepOutput
from npucall.products import DEFAULT_SOC
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import Response, join_request
from npucall.wire.program_messages import StepRequest
from npucall_server.devices.cpu import CpuDevice

COUNT = 64
SIZE = 4 * COUNT
SPEC = TensorSpec(FLOAT, (COUNT,))
L1 = encode("aclnnL1LossBackward", "", {**dict.fromkeys(INPUTS, SPEC), "reduction": 0}, INPUTS)
GRAD, ONE, OTHER = np.random.default_rng(15).random((3, COUNT), np.float32)
BYTES = [memoryview(array.tobytes()) for array in (GRAD, ONE, OTHER)]
EXPECTED = np.where(ONE > OTHER, GRAD, -GRAD).astype(np.float32).tobytes()


class CountingDevice(CpuDevice):
    """Counts the calls that it computes; ``pause`` is what each waits for."""

    ran = 0
    pause: Callable[[], object] = staticmethod(bool)

    def run(self, *arguments: Any, **more: Any) -> Any:
        self.ran += 1
        self.pause()
        return super().run(*arguments, **more)


class OnHandles(serving.Offline):
    """Its calls are those of one session."""

    def __init__(self) -> None:
        device = CountingDevice(DEFAULT_SOC, DEFAULT_VARIANT, 2)
        super().__init__(device, memory_limit=1 << 28, handle_memory=1 << 20)
        self.session = self.open()
        self.caller = FakeCaller(session=self.session)

    def run_l1(
        self,
        storage: Sequence[Place],
        places: Mapping[str, OutputPlace] | None = None,
        caller: FakeCaller | None = None,
    ) -> Response:
        return self.run(L1, storage, places, caller or self.caller)

    def program(self, *steps: StepRequest) -> list[Response]:
        return self.run_program(steps, self.caller)

    def keep(self, handle: bytes, data: bytes) -> None:
        serving.filled(self.session, handle, data)

    def read(self, handle: bytes) -> bytes:
        return serving.read(self.session, handle, SIZE)


@pytest.fixture
def server() -> Iterator[OnHandles]:
    """At the end no handle holds anything, and no call is left."""
    server = OnHandles()
    yield server
    server.session.end(lambda: CancelledError("test: over"))
    assert server.handle_bytes == 0
    assert server.executor.calls_in_flight == 0
    server.device.close()


def part(handle: bytes, offset: int = 0, length: int = SIZE) -> HandlePart:
    return HandlePart(handle, offset, length)


def test_a_part_of_a_handle_is_computed_with_like_bytes_that_travel(server: OnHandles) -> None:
    server.keep(A, b"??" + bytes(BYTES[1]) + bytes(BYTES[2]))
    found = server.run_l1([BYTES[0], part(A, 2), part(A, 2 + SIZE)])
    assert found.storage == [EXPECTED]


def test_an_output_that_is_kept_does_not_travel_and_is_computed_with(server: OnHandles) -> None:
    answer = server.run_l1(BYTES, {"grad_input": Keep(A)})
    assert answer.storage == [HandlePart(A, 0, SIZE)]
    assert server.read(A) == EXPECTED
    again = np.where(ONE > OTHER, np.frombuffer(EXPECTED, np.float32), 0)
    found = server.run_l1([part(A), BYTES[1], BYTES[2]]).storage[0]
    assert isinstance(found, memoryview)
    assert np.frombuffer(found, np.float32)[ONE > OTHER].tobytes() == again[ONE > OTHER].tobytes()


def test_all_digests_that_are_missing_are_named_at_once(server: OnHandles) -> None:
    digests = [sha256(data).digest() for data in BYTES]
    server.digests.remember("", digests[1], bytes(BYTES[1]))
    with pytest.raises(MissingError) as caught:
        server.run_l1(list(map(Digest, digests)))
    assert caught.value.details["digests"] == f"{digests[0].hex()}, {digests[2].hex()}"


def test_a_digest_of_another_tenant_is_missing_in_the_same_words(server: OnHandles) -> None:
    digest = sha256(BYTES[2]).digest()
    storage = [BYTES[0], BYTES[1], Digest(digest)]
    with pytest.raises(MissingError) as never:
        server.run_l1(storage, caller=FakeCaller(who="b/ben"))
    server.digests.remember("a", digest, bytes(BYTES[2]))
    with pytest.raises(MissingError) as others:
        server.run_l1(storage, caller=FakeCaller(who="b/ben"))
    assert str(never.value) == str(others.value)
    assert server.run_l1(storage, caller=FakeCaller(who="a/ann")).storage == [EXPECTED]


def test_bytes_of_a_digest_that_are_too_many_are_refused(server: OnHandles) -> None:
    digest = sha256(b"more").digest()
    server.digests.remember("", digest, b"more")
    with pytest.raises(
        TensorLayoutError, match=r"target: expected 256 .* found a digest of 4 bytes"
    ):
        server.run_l1([BYTES[0], BYTES[1], Digest(digest)])


def test_a_handle_that_cannot_be_read_is_an_error_of_its_own(server: OnHandles) -> None:
    server.keep(B, bytes(BYTES[2]))
    server.session.release([B])
    server.keep(C, bytes(BYTES[2]))
    for place, error in (
        (part(A), HandleEmptyError),
        (part(B), HandleReleasedError),
        (part(C, 1), TensorLayoutError),
        (part(C, 2**64 - 1), TensorLayoutError),
        (part(C, 0, SIZE - 1), TensorLayoutError),
    ):
        with pytest.raises(error):
            server.run_l1([BYTES[0], BYTES[1], place])
    assert server.device.ran == 0


def test_handles_without_a_session_are_refused(server: OnHandles) -> None:
    with pytest.raises(SessionUnknownError):
        server.run_l1([BYTES[0], BYTES[1], part(A)], caller=FakeCaller())
    with pytest.raises(SessionUnknownError):
        server.run_l1(BYTES, {"grad_input": Keep(A)}, caller=FakeCaller())


def test_a_place_that_does_not_fit_into_a_call_is_refused(server: OnHandles) -> None:
    """What is no output; nothing; a result outside a program; what the same request fills."""
    for last, places, fault in (
        (BYTES[2], {"out": Keep(A)}, r"outputs of the call \(grad_input\), found 'out'"),
        (None, {}, "storage: expected a place"),
        (StepOutput(0, "grad_input"), {}, "in a step of a program, found it in a call"),
        (part(A), {"grad_input": Keep(A)}, "which the same request fills"),
    ):
        with pytest.raises(MessageError, match=fault):
            server.run_l1([BYTES[0], BYTES[1], last], places)


def test_a_retry_is_answered_without_running_though_what_it_read_was_released(
    server: OnHandles,
) -> None:
    """Another call cannot fill the same handle."""
    server.keep(B, bytes(BYTES[2]))
    storage, kept = [BYTES[0], BYTES[1], part(B)], {"grad_input": Keep(A)}
    first = server.run_l1(storage, kept)
    server.session.release([B])
    again = server.run_l1(storage, kept)
    assert again._replace(timings=b"") == first._replace(timings=b"")
    with pytest.raises(HandleExistsError):
        server.run_l1([BYTES[0], BYTES[2], BYTES[1]], kept)
    assert server.device.ran == 1
    assert server.read(A) == EXPECTED


def test_a_retry_joins_the_call_that_runs(server: OnHandles) -> None:
    gate = threading.Event()
    server.device.pause = lambda: gate.wait(PATIENCE)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(server.run_l1, BYTES, {"grad_input": Keep(A)}) for _ in range(2)]
        gate.set()
        found = [call.result(PATIENCE).storage for call in calls]
    assert found == [[HandlePart(A, 0, SIZE)]] * 2
    assert server.device.ran == 1


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_waits_for_the_handle_that_it_reads(server: OnHandles, cancelled: bool) -> None:
    filling = server.session.fill(A, SIZE, b"x" * 32)
    caller = FakeCaller(session=server.session)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(server.run_l1, [BYTES[0], BYTES[1], part(A)], caller=caller)
        until(lambda: bool(caller._callbacks), "it waits")
        assert not call.done()
        if cancelled:
            caller.cancel()
            with pytest.raises(CancelledError):
                call.result(PATIENCE)
        filling.memory.write(0, BYTES[2])
        filling.succeed()
        assert cancelled or call.result(PATIENCE).storage == [EXPECTED]


def test_what_fails_fills_nothing_and_may_be_tried_again(server: OnHandles) -> None:
    def refuse() -> None:
        raise ArgumentError("device: no")

    server.device.pause = refuse
    with pytest.raises(ArgumentError):
        server.run_l1(BYTES, {"grad_input": Keep(A)})
    assert server.handle_bytes == 0
    with pytest.raises(HandleEmptyError):
        server.run_l1([BYTES[0], BYTES[1], part(A)])
    server.device.pause = bool
    server.run_l1(BYTES, {"grad_input": Keep(A)})
    assert server.read(A) == EXPECTED


def test_a_handle_that_has_no_room_ends_the_call_before_it_runs(server: OnHandles) -> None:
    server.keep(B, bytes((1 << 20) - SIZE + 1))
    with pytest.raises(HandleMemoryError):
        server.run_l1(BYTES, {"grad_input": Keep(A)})
    assert server.device.ran == 0


def test_a_call_that_never_runs_leaves_its_handle_empty(server: OnHandles) -> None:
    message = join_request(L1, BYTES, {"grad_input": Keep(A)})
    with server.executions.begin(server.caller, record()) as execution:
        execution.prepare(message)
    with pytest.raises(HandleEmptyError):
        server.run_l1([BYTES[0], BYTES[1], part(A)])


def test_some_storages_come_in_chunks_and_others_are_there_and_the_output_is_kept(
    server: OnHandles,
) -> None:
    server.keep(B, bytes(BYTES[1]))
    message = join_request(L1, [None, part(B), None], {"grad_input": Keep(A)})
    with server.executions.begin(server.caller, record()) as execution:
        execution.prepare(message, chunked=True)
        execution.admit()
        receiving = execution.expect("call")
        for index in 0, 2:
            receiving.take(Chunk(index, 0, BYTES[index][:100]))
            receiving.take(Chunk(index, 100, BYTES[index][100:]))
        receiving.end()
        execution.end_of_bytes()
        execution.run()
        assert execution.reply().storage == [HandlePart(A, 0, SIZE)]
    assert server.read(A) == EXPECTED


def test_chunks_for_a_storage_that_has_a_place_are_refused_and_data_beside_chunks(
    server: OnHandles,
) -> None:
    server.keep(B, bytes(BYTES[1]))
    with server.executions.begin(server.caller, record()) as execution:
        with pytest.raises(MessageError, match="expected storages without data"):
            execution.prepare(join_request(L1, [None, BYTES[1], None]), chunked=True)
        execution.prepare(join_request(L1, [None, part(B), None]), chunked=True)
        execution.admit()
        receiving = execution.expect("call")
        with pytest.raises(MessageError, match="storage 1 of call from 0 on, of 0 in all"):
            receiving.take(Chunk(1, 0, BYTES[1]))


def test_a_call_that_waits_for_a_handle_gives_way_to_who_asks_for_its_place(
    server: OnHandles,
) -> None:
    filling = server.session.fill(A, SIZE, b"x" * 32)
    server.executor._places.all.limit = 3
    with ThreadPoolExecutor(4) as threads:
        storage = [BYTES[0], BYTES[1], part(A)]
        calls = [threads.submit(server.run_l1, storage) for _ in range(3)]
        until(lambda: server.executor.calls_in_flight == 3, "all wait")
        other = threads.submit(server.run_l1, BYTES, caller=FakeCaller(peer="another"))
        assert other.result(PATIENCE).storage == [EXPECTED]
        filling.memory.write(0, BYTES[2])
        filling.succeed()
        failures = [call.exception(PATIENCE) for call in calls]
    assert sorted(map(type, failures), key=str) == [type(None)] * 2 + [QueueFullError]
