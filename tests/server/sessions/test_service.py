"""SessionService over a real socket, as a client of another kind sees it."""

import threading
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import grpc
from tests.server.fakes import PATIENCE, until
from tests.server.serving import Served, serving
from tests.server.sessions.raw import (
    CHUNK,
    DATA,
    DIGEST,
    MISSING,
    A,
    B,
    C,
    RawSessions,
    RawUpload,
    begin,
    chunk,
    end,
    entry,
    frames,
    refused,
    sessions,
)
from tests.server.tenant_server import TenantServer, bearer

from npucall.v1 import operator_service_pb2, tensor_pb2
from npucall.v1 import session_service_pb2 as pb


def test_a_session_has_an_id_a_lease_and_a_budget(served: Served, client: RawSessions) -> None:
    answer = client.open(lease_seconds=7.5, budget_bytes=1000)
    assert (answer.lease_seconds, answer.budget_bytes) == (7.5, 1000)
    assert answer.server.instance == served.core.identity.instance
    assert answer.session.isascii()


def test_the_server_tells_what_sessions_may_take(served: Served, client: RawSessions) -> None:
    call = client.channel.unary_unary("/npucall.v1.OperatorService/GetServerInfo")
    limits = operator_service_pb2.GetServerInfoResponse.FromString(call(b"")).limits
    assert (limits.handle_memory, limits.session_lease_seconds) == (1 << 21, 60.0)
    assert limits.digest_cache_bytes == 1 << 23


def test_what_is_uploaded_comes_back_in_any_part_and_counts(client: RawSessions) -> None:
    sizes = (0, 1, CHUNK, CHUNK + 1, len(DATA))
    for number, size in enumerate(sizes):
        handle = bytes([number]) * 16
        dtype = tensor_pb2.DATA_TYPE_INT64 if size else 0
        assert client.put(handle, DATA[:size], dtype=dtype) == [False]
        assert client.download(handle, size) == DATA[:size]
    assert client.download(bytes([4]) * 16, 1000, offset=300) == DATA[300:1300]
    answer = client.renew()
    assert (answer.lease_seconds, answer.held_bytes) == (60.0, sum(sizes))
    assert answer.budget_bytes == 1 << 21
    client.release(*(bytes([number]) * 16 for number in range(6)), bytes(16))
    assert client.renew().held_bytes == 0


def test_long_parts_come_in_chunks() -> None:
    settings: Any = {"memory_limit": 1 << 26, "chunk_bytes": 1 << 16}
    with serving(**settings) as served, sessions(served.target) as client:
        client.open()
        client.put(A)
        lengths = [len(each) for each in client.downloading(A, len(DATA))]
        assert len(lengths) == -(-len(DATA) // (1 << 16))
        assert client.download(A, len(DATA)) == DATA


def test_one_upload_fills_several_handles_with_chunks_in_turn(client: RawSessions) -> None:
    first, second = DATA[:3000], DATA[3000:5000]
    client.send(
        [
            begin(entry(A, first)[0], entry(B, second)[0], entry(C, b"")[0]),
            chunk(first[:1000]),
            chunk(second, storage=1),
            chunk(first[1000:], offset=1000),
            end(),
        ]
    )
    for handle, data in ((A, first), (B, second), (C, b"")):
        assert client.download(handle, len(data)) == data


def test_chunks_in_every_spelling_are_read(client: RawSessions) -> None:
    unknown = b"\xf8\x7f\x01"  # field 2047
    client.send_bytes(each.SerializeToString() + unknown for each in frames(entry(A, b"data")))
    assert client.download(A, 4) == b"data"


def test_a_retry_joins_the_upload_that_goes_on_or_has_been(
    served: Served, client: RawSessions
) -> None:
    with RawUpload(client) as first:
        first.send(chunk(DATA[:1000]))
        until(lambda: first.holds(served), "the first one has begun")
        retry = threading.Thread(target=lambda: client.put(A))
        retry.start()
        first.send(chunk(DATA[1000:], offset=1000), end())
        assert first.answer() == [False]
        retry.join(PATIENCE)
        assert not retry.is_alive()
    client.put(A, digest=DIGEST)
    assert client.renew().held_bytes == len(DATA)
    assert client.download(A, len(DATA)) == DATA


def test_closing_twice_is_no_error_nor_closing_what_never_was(client: RawSessions) -> None:
    client.put(A)
    client.close()
    real = client.session
    for client.session in (real, real[:-1] + ("0" if real[-1] != "0" else "1"), ""):
        client.close()


def test_every_method_writes_a_line_with_its_bytes(served: Served, client: RawSessions) -> None:
    client.put(A)
    client.download(A, len(DATA))
    until(lambda: served.lines()[-1].get("method") == "Download", "its line is written")
    upload, download = served.lines()[-2:]
    told = (upload["method"], upload["reason"], upload["request_bytes"])
    assert told == ("Upload", "OK", len(DATA))
    assert download["response_bytes"] >= len(DATA)


def test_bytes_with_a_digest_are_sent_once(served: Served, client: RawSessions) -> None:
    """Also without a session; those without bytes are always there."""
    data, alone = b"once" * 1000, b"alone" * 1000
    digest, other = sha256(data).digest(), sha256(alone).digest()
    assert client.missing(digest, MISSING) == [digest, MISSING]
    assert client.put(A, data, digest=digest) == [True]
    with sessions(served.target) as nobody:
        assert nobody.upload((pb.UploadEntry(length=len(alone), digest=other), alone)) == [True]
        assert nobody.upload((pb.UploadEntry(digest=sha256(b"").digest()), b"")) == [True]
    assert client.missing(digest, other, MISSING) == [MISSING]
    client.close()
    client.open()
    assert client.upload((pb.UploadEntry(handle=B, length=len(data), digest=digest), b"")) == [True]
    assert client.download(B, len(data)) == data


def test_all_digests_that_are_missing_are_named(client: RawSessions) -> None:
    data = b"there" * 10
    client.put(A, data, digest=sha256(data).digest())
    others = [bytes([number]) * 32 for number in (1, 2)]
    entries = [
        (pb.UploadEntry(handle=B, length=len(data), digest=sha256(data).digest()), b""),
        *((pb.UploadEntry(length=5, digest=digest), b"") for digest in others),
    ]
    error = refused(lambda: client.upload(*entries))
    assert (error.reason, error.code) == ("MISSING", grpc.StatusCode.NOT_FOUND)
    assert error.details["digests"].split(", ") == [digest.hex() for digest in others]
    assert refused(lambda: client.download(B, 0)).reason == "HANDLE_EMPTY"


def test_a_digest_of_other_bytes_fills_nothing(client: RawSessions) -> None:
    entries = [entry(A), entry(B, b"other", digest=DIGEST)]
    error = refused(lambda: client.upload(*entries))
    assert (error.reason, error.code) == ("DIGEST_MISMATCH", grpc.StatusCode.INVALID_ARGUMENT)
    assert client.renew().held_bytes == 0
    assert refused(lambda: client.download(A, 1)).reason == "HANDLE_EMPTY"
    client.upload(entry(A), entry(B, b"other"))


def test_a_digest_of_bytes_of_another_length_is_none_of_these(client: RawSessions) -> None:
    data = b"there" * 20
    digest = sha256(data).digest()
    client.put(A, data, digest=digest)
    short = pb.UploadEntry(handle=B, length=1, digest=digest)
    assert refused(lambda: client.upload((short, b""))).reason == "DIGEST_MISMATCH"


def test_a_server_without_a_cache_remembers_nothing() -> None:
    settings: Any = {"memory_limit": 1 << 26, "digest_cache_bytes": 0}
    with serving(**settings) as served, sessions(served.target) as client:
        client.open()
        assert client.put(A, digest=DIGEST) == [False]
        assert client.missing(DIGEST) == [DIGEST]
        assert client.download(A, len(DATA)) == DATA


# --- Two tenants on one server --------------------------------------------------------------------


def by(server: TenantServer, name: str, tenant: str = "vision") -> RawSessions:
    """Somebody with a token and a session."""
    client = RawSessions(server.channel(), *bearer(server.token(name, tenant)))
    client.open()
    return client


def told(act: Callable[[], object]) -> tuple[str, str]:
    error = refused(act)
    return error.reason, str(error)


def test_nobody_else_uses_a_session_and_all_are_told_alike(server: TenantServer) -> None:
    ann = by(server, "ann")
    ann.put(A)
    never = ann.session[:-32] + "0" * 32
    for other in by(server, "bob"), by(server, "ann", "speech"):
        answers = set()
        for other.session in (ann.session, never):
            answers |= {told(other.renew), told(partial(other.download, A, 1))}
            other.close()  # of nobody else's
        ((reason, _),) = answers
        assert reason == "SESSION_UNKNOWN"
        other.close_all()
    assert ann.download(A, len(DATA)) == DATA
    ann.close_all()


def test_the_same_person_uses_it_however_it_is_known(server: TenantServer) -> None:
    ann, again = by(server, "ann"), by(server, "ann")
    ann.put(A)
    again.session = ann.session
    assert again.download(A, len(DATA)) == DATA
    again.close_all()
    again.session = ann.session
    again.close()
    assert told(ann.renew)[0] == "SESSION_UNKNOWN"


def test_digests_are_of_one_tenant(server: TenantServer) -> None:
    ann, bob, cid = by(server, "ann"), by(server, "bob"), by(server, "cid", "speech")
    ann.put(A, digest=DIGEST)
    entry = pb.UploadEntry(handle=B, length=len(DATA), digest=DIGEST)
    assert bob.missing(DIGEST) == []
    assert bob.upload((entry, b"")) == [True]
    assert bob.download(B, len(DATA)) == DATA
    assert cid.missing(DIGEST, MISSING) == [DIGEST, MISSING]
    never = pb.UploadEntry(handle=B, length=len(DATA), digest=MISSING)
    answers = {
        told(lambda each=each: cid.upload((each, b"")))  # type: ignore[misc]
        for each in (entry, never)
    }
    ((reason, _),) = answers
    assert reason == "MISSING"
    for client in ann, bob, cid:
        client.close_all()


def test_nothing_is_done_for_who_is_not_known(server: TenantServer) -> None:
    nobody = RawSessions(server.channel())
    acts: list[Callable[[], object]] = [
        nobody.open, nobody.renew, nobody.close, nobody.release, nobody.missing,
        lambda: nobody.put(A), lambda: nobody.download(A, 1),
    ]  # fmt: skip
    assert {told(act)[0] for act in acts} == {"CREDENTIAL_MISSING"}


def test_sessions_of_a_revoked_credential_end(server: TenantServer) -> None:
    token = server.token("eve")
    eve = RawSessions(server.channel(), *bearer(token))
    eve.open()
    eve.put(A)
    held = server.server.parts.core.sessions.memory.ledger
    assert held.used == len(DATA)
    server.revoke(token)
    until(lambda: not held.used, "all is freed")
