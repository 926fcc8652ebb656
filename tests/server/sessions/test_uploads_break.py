"""Uploads and downloads that break, stop, or find no room."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.server.scripted import PATIENCE, open_gate, until
from tests.server.sessions.asking import (
    DATA,
    DIGEST,
    SERVICE,
    Asker,
    RefusedError,
    Uploading,
    asking,
    begin,
    chunk,
    end,
    entry,
    frames,
    refused,
)
from tests.server.sessions.held import A, B, User, part
from tests.server.streams import serving

from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2

if TYPE_CHECKING:
    from tests.server.streams import Served

MISSING = b"\0" * 32


@pytest.mark.parametrize("sent", [0, 1000, len(DATA)])
def test_an_upload_that_is_broken_off_leaves_nothing(
    served: Served, asker: Asker, sent: int
) -> None:
    with Uploading(asker, entry()) as upload:
        upload.send(chunk(DATA[:sent]))
        until(lambda: upload.holds(served), "it has begun")
    until(lambda: not upload.holds(served), "it has left nothing")
    error = refused(lambda: asker.download(A, 1))
    assert error.reason == "HANDLE_EMPTY"
    asker.put(A, DATA)


def test_who_waits_is_released_when_the_upload_breaks(served: Served, asker: Asker) -> None:
    told: list[RefusedError] = []
    with Uploading(asker, entry()) as upload:
        until(lambda: upload.holds(served), "it has begun")
        reader = threading.Thread(
            target=lambda: told.append(refused(lambda: asker.download(A, len(DATA))))
        )
        reader.start()
        session = served.sessions.of(User(asker.session))
        until(lambda: any(held.value.pins > 1 for held in session._handles), "somebody reads")
    reader.join(PATIENCE)
    assert [error.reason for error in told] == ["HANDLE_EMPTY"]


def test_an_upload_that_stops_is_told_so() -> None:
    with serving(memory_limit=1 << 26, peer_timeout=0.3) as served, asking(served.target) as asker:
        asker.open()
        with Uploading(asker, entry()) as upload:
            upload.send(chunk(DATA[:1000]))
            with pytest.raises(grpc.RpcError) as caught:
                upload.answer()
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: served.lines()[-1].get("reason") == "STALLED", "its line says so")
        until(lambda: not upload.holds(served), "it has left nothing")
        asker.close()


def test_an_upload_after_the_session_closed_is_dropped(served: Served, asker: Asker) -> None:
    with Uploading(asker, entry()) as upload:
        until(lambda: upload.holds(served), "it has begun")
        asker.close()
        upload.send(chunk(DATA), end())
        upload.answer()
    until(lambda: not served.sessions.memory.budget.held, "it has left nothing")


def test_who_reads_no_answer_keeps_the_handle_until_it_is_cut() -> None:
    settings = {"memory_limit": 1 << 28, "peer_timeout": 0.5, "chunk_bytes": 1 << 16}
    data = bytes(1 << 26)
    with serving(**settings) as served, asking(served.target) as asker:
        asker.open()
        asker.put(A, data)
        call: Any = asker.channel.unary_stream(f"{SERVICE}/Download")  # type: ignore[call-arg]
        handle = tensor_pb2.HandlePart(id=A, length=len(data))
        request = pb.DownloadRequest(part=handle).SerializeToString()
        answers = call(request, metadata=asker.metadata, timeout=PATIENCE)
        next(answers)
        asker.release(A)
        session = served.sessions.of(User(asker.session))
        assert session.held == len(data)
        until(lambda: not session.held, "who does not read is cut")
        asker.close()


def test_uploads_take_places_of_streams() -> None:
    with serving(memory_limit=1 << 26, max_streams=1) as served, asking(served.target) as asker:
        asker.open()
        with Uploading(asker, entry()) as upload:
            until(lambda: upload.holds(served), "it has begun")
            with asking(served.target) as other:
                other.session = asker.session
                error = refused(lambda: other.put(B, DATA))
            assert (error.reason, error.details["setting"]) == ("QUEUE_FULL", "max_streams")
        until(lambda: not served.streams.places.used, "its place is free")
        asker.put(B, DATA)
        asker.close()


def test_bytes_for_digests_have_to_have_room_in_memory() -> None:
    with serving(memory_limit=1 << 20) as served, asking(served.target) as asker:
        huge = pb.UploadEntry(length=1 << 21, digest=DIGEST)
        messages = [begin(huge), chunk(b"x" * 1000)]
        error = refused(lambda: asker.send(messages))
        assert (error.reason, error.details["setting"]) == ("TOO_LARGE", "memory_limit")


def test_while_the_device_is_reserved_nothing_is_uploaded() -> None:
    gate = open_gate()
    with serving(gate=gate, memory_limit=1 << 26) as served, asking(served.target) as asker:
        asker.open()
        asker.put(A, DATA)
        granted = gate.reserve(User(asker.session), 60.0, 0.0)
        assert refused(lambda: asker.put(B, DATA)).reason == "RESERVED"
        assert refused(lambda: asker.download(A, 1)).reason == "RESERVED"
        with asking(served.target, ("npucall-reservation", granted.key)) as holder:
            holder.session = asker.session
            holder.put(B, DATA)
        gate.release_any()
        asker.close()


def test_a_server_that_goes_down_opens_no_session() -> None:
    with serving(memory_limit=1 << 26) as served, asking(served.target) as asker:
        asker.open()
        served.executor.drain()
        assert refused(lambda: asker.put(A, DATA)).reason == "DRAINING"
        asker.close()
        assert refused(asker.open).reason == "DRAINING"


def test_chunks_in_every_spelling_are_read(asker: Asker) -> None:
    call: Any = asker.channel.stream_unary(f"{SERVICE}/Upload")  # type: ignore[call-arg]
    plain = [message.SerializeToString() for message in frames(entry(A, b"data"))]
    unknown = b"\xf8\x7f\x01"  # field 2047
    call(iter([message + unknown for message in plain]), metadata=asker.metadata, timeout=PATIENCE)
    assert asker.download(A, 4) == b"data"
    assert part(A).length == 4
