"""SessionService over a real socket, as a client of another kind sees it."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.server.scripted import PATIENCE, until
from tests.server.sessions.asking import (
    CHUNK,
    DATA,
    DIGEST,
    Asker,
    Uploading,
    asking,
    begin,
    chunk,
    end,
    entry,
    refused,
)
from tests.server.sessions.held import ONE, A, B, C, User
from tests.server.streams import IDENTITY, serving

from npucall.v1 import operator_service_pb2
from npucall.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from tests.server.streams import Served

MISSING = b"\0" * 32


# --- What is well ---------------------------------------------------------------------------------


def test_a_session_has_an_id_a_lease_and_a_budget(served: Served, asker: Asker) -> None:
    answer = asker.open(lease_seconds=7.5, budget_bytes=1000)
    assert (answer.lease_seconds, answer.budget_bytes) == (7.5, 1000)
    assert answer.server.instance == IDENTITY.instance
    assert answer.session.isascii()


def test_the_server_tells_what_sessions_may_take(served: Served) -> None:
    with grpc.insecure_channel(served.target) as channel:
        call: Any = channel.unary_unary("/npucall.v1.OperatorService/GetServerInfo")  # type: ignore[call-arg]
        answer = operator_service_pb2.GetServerInfoResponse.FromString(call(b""))
    limits = answer.limits
    assert (limits.handle_memory, limits.session_lease_seconds) == (1 << 21, 60.0)
    assert limits.digest_cache_bytes == 1 << 23


def test_a_renewal_tells_what_is_held(asker: Asker) -> None:
    asker.put(A, DATA)
    answer = asker.renew()
    assert (answer.lease_seconds, answer.held_bytes) == (60.0, len(DATA))
    assert answer.budget_bytes == 1 << 20


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, len(DATA)])
def test_what_is_uploaded_comes_back(asker: Asker, size: int) -> None:
    assert asker.put(A, DATA[:size]) == [False]
    assert asker.download(A, size) == DATA[:size]


def test_a_part_comes_back(asker: Asker) -> None:
    asker.put(A, DATA)
    assert asker.download(A, 1000, offset=300) == DATA[300:1300]


def test_long_parts_come_in_chunks() -> None:
    with (
        serving(memory_limit=1 << 26, chunk_bytes=1 << 16) as served,
        asking(served.target) as asker,
    ):
        asker.open()
        asker.put(A, DATA)
        lengths = [len(each) for each in asker.downloading(A, len(DATA))]
        assert len(lengths) == -(-len(DATA) // (1 << 16))
        assert asker.download(A, len(DATA)) == DATA
        asker.close()


def test_one_upload_fills_several_handles_with_chunks_in_turn(asker: Asker) -> None:
    first, second = DATA[:3000], DATA[3000:5000]
    asker.send(
        [
            begin(entry(A, first)[0], entry(B, second)[0], entry(C, b"")[0]),
            chunk(first[:1000]),
            chunk(second, storage=1),
            chunk(first[1000:], offset=1000),
            end(),
        ]
    )
    assert asker.download(A, 3000) == first
    assert asker.download(B, 2000) == second
    assert asker.download(C, 0) == b""


def test_who_downloads_waits_for_what_is_being_filled(served: Served, asker: Asker) -> None:
    session = served.sessions.of(User(asker.session))
    filling = session.fill(A, len(DATA), ONE)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(asker.download(A, len(DATA))))
    reader.start()
    until(lambda: any(held.value.pins > 1 for held in session._handles), "somebody reads")
    filling.memory.write(0, DATA)
    filling.succeed()
    reader.join(PATIENCE)
    assert found == [DATA]


def test_the_same_upload_once_more_is_a_retry(asker: Asker) -> None:
    for fields in {}, {}, {"digest": DIGEST}:
        asker.put(A, DATA, **fields)
    assert asker.renew().held_bytes == len(DATA)


def test_a_retry_joins_the_upload_that_goes_on(served: Served, asker: Asker) -> None:
    with Uploading(asker, entry()) as first:
        first.send(chunk(DATA[:1000]))
        until(lambda: first.holds(served), "the first one has begun")
        retry = threading.Thread(target=lambda: asker.put(A, DATA))
        retry.start()
        first.send(chunk(DATA[1000:], offset=1000), end())
        assert first.answer() == [False]
        retry.join(PATIENCE)
        assert not retry.is_alive()
    assert asker.download(A, len(DATA)) == DATA


def test_released_handles_give_their_bytes_back(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.release(A, A, B)
    assert asker.renew().held_bytes == 0


def test_closing_twice_is_no_error_nor_closing_what_never_was(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.close()
    asker.close()
    asker.session = asker.session[:-1] + ("0" if asker.session[-1] != "0" else "1")
    asker.close()
    asker.session = ""
    asker.close()


def test_every_method_writes_a_line_with_its_bytes(served: Served, asker: Asker) -> None:
    asker.put(A, DATA)
    asker.download(A, len(DATA))
    until(lambda: served.lines()[-1].get("method") == "Download", "its line is written")
    upload, download = served.lines()[-2:]
    assert (upload["method"], upload["reason"], upload["request_bytes"]) == (
        "Upload",
        "OK",
        len(DATA),
    )
    assert download["response_bytes"] >= len(DATA)


# --- Digests --------------------------------------------------------------------------------------


def test_bytes_with_a_digest_are_sent_once(asker: Asker) -> None:
    data = b"once" * 1000
    digest = sha256(data).digest()
    assert asker.missing(digest, MISSING) == [digest, MISSING]
    assert asker.put(A, data, digest=digest) == [True]
    assert asker.missing(digest, MISSING) == [MISSING]
    asker.close()
    asker.open()
    assert asker.upload((pb.UploadEntry(handle=B, length=len(data), digest=digest), b"")) == [True]
    assert asker.download(B, len(data)) == data


def test_bytes_may_be_remembered_without_a_session(served: Served) -> None:
    data = b"alone" * 1000
    digest = sha256(data).digest()
    with asking(served.target) as asker:
        assert asker.upload((pb.UploadEntry(length=len(data), digest=digest), data)) == [True]
        assert asker.missing(digest) == []
        assert asker.upload((pb.UploadEntry(length=0, digest=sha256(b"").digest()), b"")) == [True]


def test_all_digests_that_are_missing_are_named(asker: Asker) -> None:
    data = b"there" * 10
    asker.put(A, data, digest=sha256(data).digest())
    others = [bytes([number]) * 32 for number in (1, 2)]
    entries = [
        (pb.UploadEntry(handle=B, length=len(data), digest=sha256(data).digest()), b""),
        *((pb.UploadEntry(length=5, digest=digest), b"") for digest in others),
    ]
    error = refused(lambda: asker.upload(*entries))
    assert (error.reason, error.code) == ("MISSING", grpc.StatusCode.NOT_FOUND)
    assert error.details["digests"].split(", ") == [digest.hex() for digest in others]
    assert refused(lambda: asker.download(B, 0)).reason == "HANDLE_EMPTY"


def test_a_digest_of_other_bytes_fills_nothing(asker: Asker) -> None:
    entries = [entry(A), entry(B, b"other", digest=DIGEST)]
    error = refused(lambda: asker.upload(*entries))
    assert (error.reason, error.code) == ("DIGEST_MISMATCH", grpc.StatusCode.INVALID_ARGUMENT)
    assert asker.renew().held_bytes == 0
    assert refused(lambda: asker.download(A, 1)).reason == "HANDLE_EMPTY"
    asker.upload(entry(A), entry(B, b"other"))


def test_a_digest_of_bytes_of_another_length_is_none_of_these(asker: Asker) -> None:
    data = b"there" * 20
    digest = sha256(data).digest()
    asker.put(A, data, digest=digest)
    short = pb.UploadEntry(handle=B, length=1, digest=digest)
    assert refused(lambda: asker.upload((short, b""))).reason == "DIGEST_MISMATCH"


def test_a_server_without_a_cache_remembers_nothing() -> None:
    settings = {"memory_limit": 1 << 26, "digest_cache_bytes": 0}
    with serving(**settings) as served, asking(served.target) as asker:
        asker.open()
        assert asker.put(A, DATA, digest=DIGEST) == [False]
        assert asker.missing(DIGEST) == [DIGEST]
        assert asker.download(A, len(DATA)) == DATA
        asker.close()
