"""SessionService over a real socket: what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.server.scripted import PATIENCE, until
from tests.server.sessions.asking import (
    DATA,
    SERVICE,
    Asker,
    RefusedError,
    asking,
    begin,
    chunk,
    end,
    entry,
    refused,
)
from tests.server.sessions.held import A, B
from tests.server.streams import IDENTITY, serving

from npucall.limits import MAX_ENTRIES
from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.streams import Served

MISSING = b"\0" * 32


def test_a_handle_that_nobody_filled_is_empty(asker: Asker) -> None:
    error = refused(lambda: asker.download(A, 1))
    assert (error.reason, error.code) == ("HANDLE_EMPTY", grpc.StatusCode.FAILED_PRECONDITION)


def test_a_released_handle_stays_so(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.release(A)
    for act in (lambda: asker.download(A, 1), lambda: asker.put(A, DATA)):
        error = refused(act)
        assert error.reason == "HANDLE_RELEASED"
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION


def test_something_else_does_not_fill_a_handle(asker: Asker) -> None:
    asker.put(A, DATA)
    for other in DATA[:-1] + b"?", DATA[:-1], b"":
        error = refused(lambda other=other: asker.put(A, other))
        assert (error.reason, error.code) == ("HANDLE_EXISTS", grpc.StatusCode.ALREADY_EXISTS)
    assert asker.download(A, len(DATA)) == DATA


@pytest.mark.parametrize(
    "setting", ["budget_bytes of OpenSession", "session_memory", "handle_memory"]
)
def test_a_handle_without_room_is_refused_at_each_level(asker: Asker, setting: str) -> None:
    if setting.startswith("budget"):
        asker.open(budget_bytes=1000)
    if setting == "handle_memory":
        for _ in range(2):
            asker.open()
            asker.put(A, bytes((1 << 20) - 1000))
        asker.open()
    size = 3000 if setting != "session_memory" else (1 << 20) + 1
    error = refused(lambda: asker.put(B, bytes(size)))
    assert (error.reason, error.code) == ("HANDLE_MEMORY", grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert error.details["setting"] == setting
    assert int(error.details["held"]) + size > int(error.details["limit"])
    assert error.details["wanted"] == str(size)


def test_a_part_outside_the_handle_is_refused(asker: Asker) -> None:
    asker.put(A, DATA)
    for offset, length in ((0, len(DATA) + 1), (len(DATA), 1), (2**64 - 1, 2**64 - 1)):
        error = refused(lambda o=offset, n=length: asker.download(A, n, o))
        assert error.reason == "TENSOR_LAYOUT"


def test_without_a_session_there_are_no_handles(served: Served) -> None:
    with asking(served.target) as asker:
        for act in (
            asker.renew,
            lambda: asker.release(A),
            lambda: asker.put(A, DATA),
            lambda: asker.download(A, 1),
        ):
            error = refused(act)
            assert (error.reason, error.code) == ("SESSION_UNKNOWN", grpc.StatusCode.NOT_FOUND)


def test_a_lease_that_ends_frees_everything_and_says_how_long_ago() -> None:
    with serving(memory_limit=1 << 26) as served, asking(served.target) as asker:
        asker.open(lease_seconds=0.1)
        asker.put(A, DATA)
        until(lambda: not len(served.sessions), "its lease has ended")
        assert served.sessions.memory.budget.held == 0
        error = refused(asker.renew)
        assert error.reason == "SESSION_EXPIRED"
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert float(error.details["expired_seconds"]) >= 0
        asker.close()


def test_a_session_of_a_server_before_the_restart_is_lost(asker: Asker) -> None:
    session = asker.session
    asker.session = session.replace(IDENTITY.instance, "abcdefabcdef")
    for act in (
        lambda: asker.release(A, B),
        lambda: asker.put(A, DATA),
        lambda: asker.download(A, 1),
    ):
        error = refused(act)
        assert (error.reason, error.code) == ("HANDLE_LOST", grpc.StatusCode.ABORTED)
        assert error.details["instance"] == "abcdefabcdef"
        assert A.hex() in error.details["handles"]
    asker.close()  # it has ended, which is no error
    asker.session = session


def test_a_session_of_another_server_is_refused(asker: Asker) -> None:
    session = asker.session
    asker.session = "ffffffff" + session[8:]
    for act in (asker.renew, asker.close):
        error = refused(act)
        assert (error.reason, error.code) == ("WRONG_SERVER", grpc.StatusCode.FAILED_PRECONDITION)
    asker.session = session


def test_a_server_without_sessions_says_so() -> None:
    with serving(memory_limit=1 << 26, handle_memory=0) as served, asking(served.target) as asker:
        error = refused(asker.open)
        assert (error.reason, error.details["setting"]) == ("HANDLE_MEMORY", "handle_memory")


def test_more_sessions_than_the_server_has_are_refused() -> None:
    with serving(memory_limit=1 << 26, max_sessions=1) as served, asking(served.target) as asker:
        first = asker.open().session
        error = refused(asker.open)
        assert (error.reason, error.details["setting"]) == ("QUEUE_FULL", "max_sessions")
        asker.session = first
        asker.close()
        asker.open()
        asker.close()


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "found the end of the stream"),
        ([end()], "expected a frame `begin` first"),
        ([chunk(b"x")], "expected a frame `begin` first"),
        ([begin()], "expected 1 to 4096, found 0"),
        ([begin(*[pb.UploadEntry(handle=A)] * (MAX_ENTRIES + 1))], "found 4097"),
        ([begin(entry(A)[0], entry(A)[0])], "expected each handle once"),
        ([begin(pb.UploadEntry(length=1))], r"entries\[0\]: expected a handle or a digest"),
        (
            [begin(pb.UploadEntry(handle=b"short"))],
            r"entries\[0\].handle: expected 16 bytes",
        ),
        ([begin(pb.UploadEntry(digest=b"short"))], r"entries\[0\].digest: expected 32 bytes"),
        ([begin(entry(A)[0]), begin(entry(B)[0])], "expected one frame `begin`, found two"),
        (
            [begin(entry(A)[0]), chunk(b"x", storage=1)],
            "one of the 1 storages of the upload, found 1",
        ),
        ([begin(entry(A)[0]), chunk(b"x", offset=1)], "of the upload from 0 on"),
        ([begin(entry(A)[0]), chunk(DATA + b"x")], "found those from 0 to"),
        ([begin(entry(A)[0]), chunk(DATA[1:]), end()], "expected 256000 bytes"),
        ([begin(entry(A)[0]), end()], "expected 256000 bytes"),
        ([begin(entry(A)[0]), chunk(DATA)], "found the end of the stream"),
        ([pb.UploadRequest()], "expected a frame that this server knows"),
    ],
)
def test_an_upload_that_breaks_the_contract_fills_nothing(
    asker: Asker, messages: list[pb.UploadRequest], fault: str
) -> None:
    with pytest.raises(RefusedError, match=fault) as caught:
        asker.send(messages)
    assert caught.value.reason == "MESSAGE_MALFORMED"
    assert asker.renew().held_bytes == 0


def test_a_type_that_does_not_travel_is_refused(asker: Asker) -> None:
    error = refused(lambda: asker.put(A, DATA, dtype=30))
    assert error.reason == "DTYPE_UNSUPPORTED"
    asker.put(A, DATA, dtype=tensor_pb2.DATA_TYPE_INT64)


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x05ab", b"\x0a" * 100])
def test_what_is_no_message_is_refused(asker: Asker, data: bytes) -> None:
    call: Any = asker.channel.stream_unary(f"{SERVICE}/Upload")  # type: ignore[call-arg]
    with pytest.raises(grpc.RpcError) as caught:
        call(iter([data]), metadata=asker.metadata, timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "act",
    [
        lambda asker: asker.release(b"short"),
        lambda asker: asker.download(b"short", 1),
        lambda asker: asker.missing(b"short"),
        lambda asker: asker.missing(*[MISSING] * (MAX_ENTRIES + 1)),
        lambda asker: asker.open(lease_seconds=-1),
    ],
)
def test_a_field_that_cannot_have_its_value_is_refused(
    asker: Asker, act: Callable[[Asker], object]
) -> None:
    session = asker.session
    assert refused(lambda: act(asker)).reason == "MESSAGE_MALFORMED"
    asker.session = session
