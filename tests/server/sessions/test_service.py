"""SessionService over a real socket, as a client of another kind sees it."""

from __future__ import annotations

import queue
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import grpc
import pytest
from tests.server.scripted import PATIENCE, open_gate, until
from tests.server.sessions.asking import (
    CHUNK,
    SERVICE,
    Asker,
    RefusedError,
    asking,
    begin,
    chunk,
    end,
    frames,
)
from tests.server.sessions.held import ONE, A, B, C, User, part
from tests.server.streams import IDENTITY, serving

from npucall.limits import MAX_ENTRIES
from npucall.v1 import operator_service_pb2, tensor_pb2
from npucall.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.streams import Served

DATA = bytes(range(256)) * 1000
DIGEST = sha256(DATA).digest()
MISSING = b"\0" * 32


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(memory_limit=1 << 26, handle_memory=1 << 21, session_memory=1 << 20) as served:
        yield served
        served.digests._limit = 0
        until(lambda: not served.sessions.memory.budget.held, "nothing is held")


@pytest.fixture
def asker(served: Served) -> Iterator[Asker]:
    with asking(served.target) as asker:
        asker.open()
        yield asker
        asker.close_all()


def entry(handle: bytes = A, data: bytes = DATA, **fields: Any) -> tuple[pb.UploadEntry, bytes]:
    return pb.UploadEntry(handle=handle, length=len(data), **fields), data


def refused(act: Callable[[], object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value


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


# --- What goes wrong ------------------------------------------------------------------------------


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
        ([begin(entry(A)[0]), chunk(b"x", storage=1)], "1 storages, found 1"),
        ([begin(entry(A)[0]), chunk(b"x", offset=1)], "expected bytes from 0 on"),
        ([begin(entry(A)[0]), chunk(DATA + b"x")], "found those from 0 to"),
        ([begin(entry(A)[0]), chunk(DATA[1:]), end()], "expected 256000 bytes"),
        ([begin(entry(A)[0]), end()], "expected 256000 bytes"),
        ([begin(entry(A)[0]), chunk(DATA)], "found the end of the stream"),
        ([pb.UploadRequest()], "expected one that this server knows"),
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


# --- What breaks ----------------------------------------------------------------------------------


class Uploading:
    """An upload whose frames a test sends one by one."""

    def __init__(self, asker: Asker, *entries: tuple[pb.UploadEntry, bytes]) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call: Any = asker.channel.stream_unary(f"{SERVICE}/Upload")  # type: ignore[call-arg]
        self.call = call.future(
            iter(self._messages.get, None), metadata=asker.metadata, timeout=PATIENCE
        )
        self.session = asker.session
        if entries:
            self.send(begin(*(entry for entry, _ in entries)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.call.cancel()
        self._messages.put(None)

    def send(self, *messages: pb.UploadRequest) -> None:
        for message in messages:
            self._messages.put(message.SerializeToString())

    def holds(self, served: Served) -> bool:
        """Whether its handle is being filled."""
        return bool(served.sessions.of(User(self.session)).held)

    def answer(self) -> list[bool]:
        return list(pb.UploadResponse.FromString(self.call.result(PATIENCE)).remembered)


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
