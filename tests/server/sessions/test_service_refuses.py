"""SessionService over a real socket: what it refuses, and uploads and downloads that break."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest
from tests.server.fakes import PATIENCE, FakeCaller, until
from tests.server.serving import Served, serving
from tests.server.sessions.raw import (
    DATA,
    DIGEST,
    MISSING,
    SESSIONS,
    A,
    B,
    RawSessions,
    RawUpload,
    RefusedError,
    begin,
    chunk,
    end,
    entry,
    refused,
    sessions,
)

from npucall.limits import MAX_ENTRIES
from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.services.sessions import upload as upload_module

SMALL = 1 << 26


def told(act: Callable[[], object]) -> tuple[str, str]:
    """The reason and the status."""
    error = refused(act)
    return error.reason, error.code.name


def test_handles_that_do_not_have_what_is_asked_for_are_refused(client: RawSessions) -> None:
    assert told(lambda: client.download(A, 1)) == ("HANDLE_EMPTY", "FAILED_PRECONDITION")
    client.put(A)
    for other in DATA[:-1] + b"?", DATA[:-1], b"":
        found = told(partial(client.put, A, other))
        assert found == ("HANDLE_EXISTS", "ALREADY_EXISTS")
    assert client.download(A, len(DATA)) == DATA
    for offset, length in ((0, len(DATA) + 1), (len(DATA), 1), (2**64 - 1, 2**64 - 1)):
        error = refused(partial(client.download, A, length, offset))
        assert error.reason == "TENSOR_LAYOUT"
    client.release(A)
    for act in (lambda: client.download(A, 1), lambda: client.put(A)):
        assert told(act) == ("HANDLE_RELEASED", "FAILED_PRECONDITION")
    assert refused(lambda: client.put(B, dtype=30)).reason == "DTYPE_UNSUPPORTED"


def test_without_a_session_there_are_no_handles(served: Served) -> None:
    with sessions(served.target) as client:
        for act in (
            client.renew,
            lambda: client.release(A),
            lambda: client.put(A),
            lambda: client.download(A, 1),
        ):
            assert told(act) == ("SESSION_UNKNOWN", "NOT_FOUND")


def test_a_session_of_a_server_before_the_restart_is_lost(
    served: Served, client: RawSessions
) -> None:
    client.session = client.session.replace(served.core.identity.instance, "abcdefabcdef")
    for act in (
        lambda: client.release(A, B),
        lambda: client.put(A),
        lambda: client.download(A, 1),
    ):
        error = refused(act)
        assert (error.reason, error.code.name) == ("HANDLE_LOST", "ABORTED")
        assert error.details["instance"] == "abcdefabcdef"
        assert A.hex() in error.details["handles"]
    assert refused(client.renew).reason == "HANDLE_LOST"
    client.close()  # it has ended, which is no error


def test_a_session_of_another_server_is_refused(served: Served, client: RawSessions) -> None:
    client.session = "ffffffff" + client.session[8:]
    assert f"which listens at {served.settings.listen}, found" in str(refused(client.renew))
    for act in (client.renew, client.close):
        assert told(act) == ("WRONG_SERVER", "FAILED_PRECONDITION")


UPLOADS = [
    ([], "found the end of the stream"),
    ([end()], "expected a frame `begin` first"),
    ([chunk(b"x")], "expected a frame `begin` first"),
    ([begin()], "expected 1 to 4096, found 0"),
    ([begin(*[pb.UploadEntry(handle=A)] * (MAX_ENTRIES + 1))], "found 4097"),
    ([begin(entry(A)[0], entry(A)[0])], "expected each handle once"),
    ([begin(pb.UploadEntry(length=1))], "entries[0]: expected a handle or a digest"),
    ([begin(pb.UploadEntry(handle=b"short"))], "entries[0].handle: expected 16 bytes"),
    ([begin(pb.UploadEntry(digest=b"short"))], "entries[0].digest: expected 32 bytes"),
    ([begin(entry(A)[0]), begin(entry(B)[0])], "expected one frame `begin`, found two"),
    ([begin(entry(A)[0]), chunk(b"x", 1)], "one of the 1 storages of the upload, found 1"),
    ([begin(entry(A)[0]), chunk(b"x", offset=1)], "of the upload from 0 on"),
    ([begin(entry(A)[0]), chunk(DATA + b"x")], "found those from 0 to"),
    ([begin(entry(A)[0]), chunk(DATA[1:]), end()], "expected 256000 bytes"),
    ([begin(entry(A)[0]), end()], "expected 256000 bytes"),
    ([begin(entry(A)[0]), chunk(DATA)], "found the end of the stream"),
    ([pb.UploadRequest()], "expected a frame that this server knows"),
]


def test_an_upload_that_breaks_the_contract_fills_nothing(
    client: RawSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_module, "_BREAK_SECONDS", 0.01)  # nobody goes away here
    wrong = []
    for messages, fault in UPLOADS:
        error = refused(partial(client.send, messages))
        if error.reason != "MESSAGE_MALFORMED" or fault not in str(error):
            wrong.append((fault, error.reason, str(error)))
        if client.renew().held_bytes:
            wrong.append((fault, "bytes are held", ""))
    assert wrong == []


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x05ab", b"\x0a" * 100])
def test_what_is_no_message_is_refused(client: RawSessions, data: bytes) -> None:
    assert refused(lambda: client.send_bytes([data])).code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_field_that_cannot_have_its_value_is_refused(client: RawSessions) -> None:
    for act in (
        lambda: client.release(b"short"),
        lambda: client.download(b"short", 1),
        lambda: client.missing(b"short"),
        lambda: client.missing(*[MISSING] * (MAX_ENTRIES + 1)),
        lambda: client.open(lease_seconds=-1),
    ):
        assert refused(act).reason == "MESSAGE_MALFORMED"


@pytest.mark.parametrize("sent", [0, 1000, len(DATA)])
def test_an_upload_that_is_broken_off_leaves_nothing(
    served: Served, client: RawSessions, sent: int
) -> None:
    """Who waits for it is released."""
    errors: list[RefusedError] = []
    session = served.sessions.of(FakeCaller(session=client.session))
    with RawUpload(client) as upload:
        upload.send(chunk(DATA[:sent]))
        until(lambda: upload.holds(served), "it has begun")
        reader = threading.Thread(
            target=lambda: errors.append(refused(lambda: client.download(A, len(DATA))))
        )
        reader.start()
        until(lambda: any(held.value.pins > 1 for held in session._handles), "somebody reads")
    reader.join(PATIENCE)
    assert [error.reason for error in errors] == ["HANDLE_EMPTY"]
    until(lambda: not upload.holds(served), "it has left nothing")
    client.put(A)


def test_an_upload_that_stops_is_told_so() -> None:
    settings: Any = {"memory_limit": SMALL, "peer_timeout": 0.3}
    with serving(**settings) as served, sessions(served.target) as client:
        client.open()
        with RawUpload(client) as upload:
            upload.send(chunk(DATA[:1000]))
            assert upload.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: served.lines()[-1].get("reason") == "STALLED", "its line says so")
        until(lambda: not upload.holds(served), "it has left nothing")


def test_an_upload_after_the_session_closed_is_refused(served: Served, client: RawSessions) -> None:
    with RawUpload(client) as upload:
        until(lambda: upload.holds(served), "it has begun")
        client.close()
        upload.send(chunk(DATA), end())
        assert upload.call.code() is grpc.StatusCode.NOT_FOUND
    until(lambda: not served.handle_bytes, "it has left nothing")


def test_who_reads_no_answer_keeps_the_handle_until_it_is_cut() -> None:
    data = bytes(1 << 25)  # more than gRPC and the socket take without a reader
    settings: Any = {"memory_limit": 1 << 28, "chunk_bytes": 1 << 16}
    with serving(**settings) as served, sessions(served.target) as client:
        client.open()
        client.put(A, data)
        call = client.channel.unary_stream(f"{SESSIONS}/Download")
        request = pb.DownloadRequest(part=tensor_pb2.HandlePart(id=A, length=len(data)))
        answers = call(request.SerializeToString(), metadata=client.metadata, timeout=PATIENCE)
        next(answers)
        client.release(A)
        session = served.sessions.of(FakeCaller(session=client.session))
        assert session.held == len(data)

        def is_cut() -> bool:
            served.clock.advance(served.settings.peer_timeout)
            client.renew()
            served.look()
            return not session.held

        until(is_cut, "who does not read is cut")


def test_uploads_take_places_of_streams() -> None:
    settings: Any = {"memory_limit": SMALL, "max_streams": 1}
    with serving(**settings) as served, sessions(served.target) as client:
        client.open()
        with RawUpload(client) as upload:
            until(lambda: upload.holds(served), "it has begun")
            with sessions(served.target) as other:
                other.session = client.session
                error = refused(lambda: other.put(B))
            assert (error.reason, error.details["setting"]) == ("QUEUE_FULL", "max_streams")
        until(lambda: not served.streams.places.used, "its place is free")
        client.put(B)


def test_bytes_for_digests_have_to_have_room_in_memory() -> None:
    with serving(memory_limit=1 << 20) as served, sessions(served.target) as client:
        huge = pb.UploadEntry(length=1 << 21, digest=DIGEST)
        error = refused(lambda: client.send([begin(huge), chunk(b"x" * 1000)]))
        assert (error.reason, error.details["setting"]) == ("TOO_LARGE", "memory_limit")


def test_an_upload_of_who_has_more_than_half_of_the_memory_gives_way() -> None:
    def claim(client: RawSessions, size: int) -> RawUpload:
        upload = RawUpload(client, pb.UploadEntry(length=size, digest=DIGEST))
        upload.send(chunk(b"x"))
        return upload

    with (
        serving(memory_limit=SMALL) as served,
        sessions(served.target) as hog,
        sessions(served.target) as other,
        claim(hog, SMALL * 5 // 8) as first,
    ):
        until(lambda: served.executor.bytes_in_flight == SMALL * 5 // 8, "its room is taken")
        with claim(other, SMALL // 2):
            until(lambda: served.executor.bytes_in_flight == SMALL // 2, "it has given way")
            assert first.call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "others need memory" in first.call.details()


def test_while_the_device_is_reserved_nothing_is_uploaded() -> None:
    with serving(memory_limit=SMALL) as served, sessions(served.target) as client:
        client.open()
        client.put(A)
        granted = served.gate.reserve(FakeCaller(session=client.session), 60.0, 0.0)
        assert refused(lambda: client.put(B)).reason == "RESERVED"
        assert refused(lambda: client.download(A, 1)).reason == "RESERVED"
        with sessions(served.target, ("npucall-reservation", granted.key)) as holder:
            holder.session = client.session
            holder.put(B)
        served.gate.release_any()


def test_a_server_that_goes_down_opens_no_session() -> None:
    with serving(memory_limit=SMALL) as served, sessions(served.target) as client:
        client.open()
        served.executor.drain()
        assert refused(lambda: client.put(A)).reason == "DRAINING"
        client.close()
        assert refused(client.open).reason == "DRAINING"
