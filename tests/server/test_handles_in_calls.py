"""Calls and programs that read handles, fill them, and take bytes by their digests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.server.house import (
    BYTES,
    EXPECTED,
    L1,
    ONE,
    OTHER,
    SIZE,
    House,
    open_house,
    part,
    record,
)
from tests.server.scripted import PATIENCE, ScriptedCaller, until
from tests.server.sessions.held import A, B, C, User, known

from npucall.errors import (
    ArgumentError,
    CancelledError,
    HandleEmptyError,
    HandleExistsError,
    HandleMemoryError,
    HandleReleasedError,
    MessageError,
    MissingError,
    NpucallError,
    QueueFullError,
    SessionUnknownError,
    TensorLayoutError,
)
from npucall.exchange import Chunk
from npucall.places import Digest, Discard, HandlePart, Keep, StepOutput
from npucall.wire.messages import join_request, split_response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall.places import OutputPlace


@pytest.fixture
def house() -> Iterator[House]:
    with open_house() as house:
        yield house


def test_a_handle_is_computed_with_like_bytes_that_travel(house: House) -> None:
    house.keep(A, bytes(BYTES[2]))
    assert house.run([BYTES[0], BYTES[1], part(A)]).storage == [EXPECTED]


def test_a_part_of_a_handle_is_a_storage(house: House) -> None:
    house.keep(A, b"??" + bytes(BYTES[1]) + bytes(BYTES[2]))
    found = house.run([BYTES[0], part(A, 2), part(A, 2 + SIZE)])
    assert found.storage == [EXPECTED]


def test_an_output_that_is_kept_does_not_travel_and_is_computed_with(house: House) -> None:
    answer = house.run(BYTES, {"grad_input": Keep(A)})
    assert answer.storage == [HandlePart(A, 0, SIZE)]
    assert house.read(A) == EXPECTED
    again = np.where(ONE > OTHER, np.frombuffer(EXPECTED, np.float32), 0)
    found = house.run([part(A), BYTES[1], BYTES[2]]).storage[0]
    assert isinstance(found, memoryview)
    assert np.frombuffer(found, np.float32)[ONE > OTHER].tobytes() == again[ONE > OTHER].tobytes()


def test_an_output_that_is_discarded_does_not_travel(house: House) -> None:
    assert house.run(BYTES, {"grad_input": Discard()}).storage == [None]


def test_bytes_are_found_by_their_digest(house: House) -> None:
    assert house.digests.remember("", sha256(BYTES[2]).digest(), bytes(BYTES[2]))
    digest = Digest(sha256(BYTES[2]).digest())
    assert house.run([BYTES[0], BYTES[1], digest]).storage == [EXPECTED]


def test_all_digests_that_are_missing_are_named_at_once(house: House) -> None:
    digests = [sha256(data).digest() for data in BYTES]
    house.digests.remember("", digests[1], bytes(BYTES[1]))
    with pytest.raises(MissingError) as caught:
        house.run(list(map(Digest, digests)))
    assert caught.value.details["digests"] == f"{digests[0].hex()}, {digests[2].hex()}"


def test_a_digest_of_another_tenant_is_missing_in_the_same_words(house: House) -> None:
    digest = sha256(BYTES[2]).digest()
    storage = [BYTES[0], BYTES[1], Digest(digest)]
    with pytest.raises(MissingError) as never:
        house.run(storage, caller=known("b/ben"))
    house.digests.remember("a", digest, bytes(BYTES[2]))
    with pytest.raises(MissingError) as others:
        house.run(storage, caller=known("b/ben"))
    assert str(never.value) == str(others.value)
    assert house.run(storage, caller=known("a/ann")).storage == [EXPECTED]


def test_bytes_of_a_digest_that_are_too_many_are_refused(house: House) -> None:
    digest = sha256(b"more").digest()
    house.digests.remember("", digest, b"more")
    with pytest.raises(
        TensorLayoutError, match=r"target: expected 256 .* found a digest of 4 bytes"
    ):
        house.run([BYTES[0], BYTES[1], Digest(digest)])


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (part(A), HandleEmptyError),
        (part(B), HandleReleasedError),
        (part(C, 1), TensorLayoutError),
        (part(C, 2**64 - 1), TensorLayoutError),
        (part(C, 0, SIZE - 1), TensorLayoutError),
    ],
)
def test_a_handle_that_cannot_be_read_is_an_error_of_its_own(
    house: House, place: HandlePart, error: type[NpucallError]
) -> None:
    house.keep(B, bytes(BYTES[2]))
    house.session.release([B])
    house.keep(C, bytes(BYTES[2]))
    with pytest.raises(error):
        house.run([BYTES[0], BYTES[1], place])
    assert house.device.ran == 0


def test_handles_without_a_session_are_refused(house: House) -> None:
    with pytest.raises(SessionUnknownError):
        house.run([BYTES[0], BYTES[1], part(A)], caller=ScriptedCaller())
    with pytest.raises(SessionUnknownError):
        house.run(BYTES, {"grad_input": Keep(A)}, caller=ScriptedCaller())


def test_a_place_that_is_no_output_is_refused(house: House) -> None:
    with pytest.raises(MessageError, match=r"outputs of the call \(grad_input\), found 'out'"):
        house.run(BYTES, {"out": Keep(A)})


def test_a_storage_without_a_place_is_refused(house: House) -> None:
    with pytest.raises(MessageError, match="storage: expected a place"):
        house.run([BYTES[0], BYTES[1], None])


def test_a_result_outside_a_program_is_refused(house: House) -> None:
    with pytest.raises(MessageError, match="in a step of a program, found it in a call"):
        house.run([BYTES[0], BYTES[1], StepOutput(0, "grad_input")])


def test_a_request_cannot_read_what_it_fills(house: House) -> None:
    with pytest.raises(MessageError, match="which the same request fills"):
        house.run([BYTES[0], BYTES[1], part(A)], {"grad_input": Keep(A)})


def test_the_same_call_again_is_answered_without_running(house: House) -> None:
    first = house.run(BYTES, {"grad_input": Keep(A)})
    again = house.run(BYTES, {"grad_input": Keep(A)})
    assert again._replace(timings=b"") == first._replace(timings=b"")
    assert house.device.ran == 1


def test_a_retry_needs_nothing_that_was_released_since(house: House) -> None:
    house.keep(B, bytes(BYTES[2]))
    house.run([BYTES[0], BYTES[1], part(B)], {"grad_input": Keep(A)})
    house.session.release([B])
    house.run([BYTES[0], BYTES[1], part(B)], {"grad_input": Keep(A)})
    assert house.device.ran == 1


def test_another_call_cannot_fill_the_same_handle(house: House) -> None:
    house.run(BYTES, {"grad_input": Keep(A)})
    with pytest.raises(HandleExistsError):
        house.run([BYTES[0], BYTES[2], BYTES[1]], {"grad_input": Keep(A)})
    assert house.read(A) == EXPECTED


def test_a_retry_joins_the_call_that_runs(house: House) -> None:
    gate = threading.Event()
    house.device.pause = lambda: gate.wait(PATIENCE)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(house.run, BYTES, {"grad_input": Keep(A)}) for _ in range(2)]
        gate.set()
        found = [call.result(PATIENCE).storage for call in calls]
    assert found == [[HandlePart(A, 0, SIZE)]] * 2
    assert house.device.ran == 1


def test_a_call_waits_for_the_handle_that_it_reads(house: House) -> None:
    gate = threading.Event()
    filling = house.session.fill(A, SIZE, b"x" * 32)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(house.run, [BYTES[0], BYTES[1], part(A)])
        assert not gate.wait(0.05)
        assert not call.done()
        filling.memory.write(0, BYTES[2])
        filling.succeed()
        assert call.result(PATIENCE).storage == [EXPECTED]


def test_a_call_that_waits_for_a_handle_hears_why_it_stays_empty(house: House) -> None:
    filling = house.session.fill(A, SIZE, b"x" * 32)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(house.run, [BYTES[0], BYTES[1], part(A)])
        filling.fail(ArgumentError("labels: wrong"))
        with pytest.raises(HandleEmptyError, match="labels: wrong"):
            call.result(PATIENCE)


def test_a_call_that_waits_for_a_handle_can_be_cancelled(house: House) -> None:
    filling = house.session.fill(A, SIZE, b"x" * 32)
    user = User(house.session)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(house.run, [BYTES[0], BYTES[1], part(A)], caller=user)
        user.cancel()
        with pytest.raises(CancelledError):
            call.result(PATIENCE)
    filling.fail(CancelledError("test: over"))


def test_what_fails_fills_nothing_and_may_be_tried_again(house: House) -> None:
    def refuse() -> None:
        raise ArgumentError("device: no")

    house.device.pause = refuse
    with pytest.raises(ArgumentError):
        house.run(BYTES, {"grad_input": Keep(A)})
    assert house.held.memory.budget.held == 0
    with pytest.raises(HandleEmptyError):
        house.run([BYTES[0], BYTES[1], part(A)])
    house.device.pause = bool
    house.run(BYTES, {"grad_input": Keep(A)})
    assert house.read(A) == EXPECTED


def test_a_handle_that_has_no_room_ends_the_call_before_it_runs(house: House) -> None:
    house.keep(B, bytes((1 << 20) - SIZE + 1))
    with pytest.raises(HandleMemoryError):
        house.run(BYTES, {"grad_input": Keep(A)})
    assert house.device.ran == 0


def test_a_call_that_never_runs_leaves_its_handle_empty(house: House) -> None:
    message = join_request(L1, BYTES, {"grad_input": Keep(A)})
    with house.executions.begin(house.user, record()) as execution:
        execution.prepare(message)
    with pytest.raises(HandleEmptyError):
        house.run([BYTES[0], BYTES[1], part(A)])


@contextmanager
def received(house: House, places: Mapping[str, OutputPlace]) -> Iterator[Any]:
    """A call whose second storage is a handle, and whose others come in chunks."""
    house.keep(B, bytes(BYTES[1]))
    message = join_request(L1, [None, part(B), None], places)
    with house.executions.begin(house.user, record()) as execution:
        execution.prepare(message, chunked=True)
        execution.admit()
        receiving = execution.expect("call")
        for index in 0, 2:
            receiving.take(Chunk(index, 0, BYTES[index][:100]))
            receiving.take(Chunk(index, 100, BYTES[index][100:]))
        receiving.end()
        execution.end_of_bytes()
        execution.run()
        yield execution


def test_some_storages_come_in_chunks_and_others_are_there(house: House) -> None:
    with received(house, {}) as execution:
        assert split_response(execution.reply_message()).storage == [EXPECTED]


def test_an_output_of_a_call_in_chunks_is_kept(house: House) -> None:
    with received(house, {"grad_input": Keep(A)}) as execution:
        assert execution.reply().storage == [HandlePart(A, 0, SIZE)]
    assert house.read(A) == EXPECTED


def test_chunks_for_a_storage_that_has_a_place_are_refused(house: House) -> None:
    house.keep(B, bytes(BYTES[1]))
    with house.executions.begin(house.user, record()) as execution:
        execution.prepare(join_request(L1, [None, part(B), None]), chunked=True)
        execution.admit()
        receiving = execution.expect("call")
        with pytest.raises(MessageError, match="storage 1 of call from 0 on, of 0 in all"):
            receiving.take(Chunk(1, 0, BYTES[1]))


def test_data_beside_chunks_is_refused(house: House) -> None:
    with (
        house.executions.begin(house.user, record()) as execution,
        pytest.raises(MessageError, match="expected storages without data"),
    ):
        execution.prepare(join_request(L1, [None, BYTES[1], None]), chunked=True)


def test_a_call_that_waits_for_a_handle_gives_way_to_who_asks_for_its_place(house: House) -> None:
    filling = house.session.fill(A, SIZE, b"x" * 32)
    house.executor._places.limit = 3
    with ThreadPoolExecutor(4) as threads:
        storage = [BYTES[0], BYTES[1], part(A)]
        calls = [threads.submit(house.run, storage) for _ in range(3)]
        until(lambda: house.executor.calls_in_flight == 3, "all wait")
        other = threads.submit(house.run, BYTES, caller=ScriptedCaller(peer="another"))
        assert other.result(PATIENCE).storage == [EXPECTED]
        filling.memory.write(0, BYTES[2])
        filling.succeed()
        failures = [call.exception(PATIENCE) for call in calls]
    assert sorted(map(type, failures), key=str) == [type(None)] * 2 + [QueueFullError]
