"""``npucall.v1.SessionService``: its methods, from bytes to bytes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from npucall.errors import HandleLostError, MessageError, SessionUnknownError
from npucall.limits import DIGEST_BYTES, HANDLE_BYTES, MAX_ENTRIES
from npucall.v1 import session_service_pb2 as pb
from npucall.wire.replies import ServerIdentity, encode_identity
from npucall.wire.uploads import check_id
from npucall_server.access.callers import Caller
from npucall_server.carriers.peers import Visitor
from npucall_server.scheduling.gate import Permit
from npucall_server.services.parsing import parse
from npucall_server.services.sessions.download import downloaded
from npucall_server.services.sessions.kept import Kept
from npucall_server.services.sessions.upload import Upload
from npucall_server.telemetry.log import Record

NAME: str = pb.DESCRIPTOR.services_by_name["SessionService"].full_name


class SessionService:
    """The methods by the names that the proto gives them."""

    def __init__(self, kept: Kept, identity: ServerIdentity) -> None:
        self._kept, self._identity = kept, identity
        self._sessions, self._digests = kept.sessions, kept.digests

    def open_session(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Opens a session."""
        wanted = parse(pb.OpenSessionRequest, request)
        self._kept.executor.check_open()
        session = self._sessions.open(
            caller, wanted.lease_seconds, wanted.budget_bytes, refillable=wanted.refillable
        )
        return pb.OpenSessionResponse(
            session=session.id,
            lease_seconds=session.lease,
            budget_bytes=session.budget,
            server=encode_identity(self._identity),
        ).SerializeToString()

    def renew(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Renews a lease."""
        parse(pb.RenewRequest, request)
        session = self._sessions.of(caller)
        return pb.RenewResponse(
            lease_seconds=session.lease, held_bytes=session.held, budget_bytes=session.budget
        ).SerializeToString()

    def close(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Ends a session. Does nothing if it has ended or never existed."""
        parse(pb.CloseRequest, request)
        with suppress(SessionUnknownError, HandleLostError):
            self._sessions.close(caller)
        return pb.CloseResponse().SerializeToString()

    def release(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Releases handles."""
        handles = _ids("handles", parse(pb.ReleaseRequest, request).handles, HANDLE_BYTES)
        self._sessions.of(caller, handles).release(handles)
        return pb.ReleaseResponse().SerializeToString()

    def find_missing(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Which digests of the caller's tenant are not kept."""
        asked = _ids("digests", parse(pb.FindMissingRequest, request).digests, DIGEST_BYTES)
        tenant = caller.identity.tenant
        missing = [digest for digest in asked if not self._digests.has(tenant, digest)]
        return pb.FindMissingResponse(missing=missing).SerializeToString()

    def upload(
        self, messages: Iterator[bytes], record: Record, caller: Visitor
    ) -> Generator[bytes, None, None]:
        """Fills handles, and remembers bytes by their digests."""
        with self._on_a_stream(caller) as permit:
            upload = Upload(messages, record, caller, self._kept, permit)
            yield pb.UploadResponse(remembered=upload.run()).SerializeToString()

    def download(
        self, messages: Iterator[bytes], record: Record, caller: Visitor
    ) -> Generator[bytes, None, None]:
        """Answers the bytes of a handle."""
        with self._on_a_stream(caller) as permit:
            permit.may_end_by(caller.cancel)
            request = next(self._kept.peers.messages(messages, caller), None)
            if request is None:
                raise MessageError("request: expected one message, found none")
            record.request_bytes = len(request)
            part = parse(pb.DownloadRequest, request).part
            yield from downloaded(part, record, caller, self._kept)

    @contextmanager
    def _on_a_stream(self, caller: Caller) -> Iterator[Permit]:
        """A place among the streams, and a permit to the device."""
        kept = self._kept
        kept.executor.check_open()
        with ExitStack() as held:
            held.callback(kept.streams.take(caller, 1, caller.cancel).give_back)
            permit = kept.gate.enter(caller)
            held.callback(permit.give_back)
            yield permit


def _ids(name: str, ids: Sequence[bytes], length: int) -> list[bytes]:
    """Ids, or digests, of a request."""
    if len(ids) > MAX_ENTRIES:
        raise MessageError(f"{name}: expected at most {MAX_ENTRIES}, found {len(ids)}")
    return [check_id(name, each, length) for each in ids]
