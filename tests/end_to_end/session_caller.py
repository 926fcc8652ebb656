"""A caller of sessions that knows the contract alone: generated classes over a bare channel."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as sessions
from npucall.v1 import tensor_pb2

from .wire import PATIENCE, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import grpc

    Place = bytes | tensor_pb2.HandlePart | tensor_pb2.StepOutput
    """Of a storage: its data, or where they are."""

SERVICE = "/npucall.v1.SessionService/"
OPERATORS = "/npucall.v1.OperatorService/"
METADATA = "npucall-session"
CHUNK = 1 << 20
ONE = b"\0\0\x80\x3f"
"""1.0"""


def new_handle() -> bytes:
    """An id as callers choose them."""
    return secrets.token_bytes(16)


def part(handle: bytes, length: int, offset: int = 0) -> tensor_pb2.HandlePart:
    return tensor_pb2.HandlePart(id=handle, offset=offset, length=length)


def storage(place: Place) -> tensor_pb2.Storage:
    if isinstance(place, tensor_pb2.HandlePart):
        return tensor_pb2.Storage(handle=place)
    if isinstance(place, tensor_pb2.StepOutput):
        return tensor_pb2.Storage(result=place)
    return tensor_pb2.Storage(data=place)


def negated(target: Place, count: int, *, keep: bytes = b"") -> pb.ExecuteRequest:
    """A call whose answer is ``-target``, of so many float32 elements; ``keep`` is a handle."""
    arguments = [
        tensor("grad_output"),
        tensor("self", count, stored=False),
        tensor("target", count),
        pb.Argument(name="reduction", integer=2),
    ]
    places = [pb.OutputPlace(output="out", keep=keep)] if keep else []
    return pb.ExecuteRequest(
        call=pb.Call(operator="aclnnKlDivBackward", arguments=arguments),
        storage=[storage(ONE), storage(target)],
        output_places=places,
    )


def chain(target: Place, count: int, steps: int, *, keep: bytes = b"") -> pb.ExecuteProgramRequest:
    """A program that negates so many times; what comes between is discarded."""
    calls = [negated(target, count)]
    calls += [negated(tensor_pb2.StepOutput(step=i, output="out"), count) for i in range(steps - 1)]
    for call in calls[:-1]:
        call.output_places.add(output="out", discard=True)
    if keep:
        calls[-1].output_places.add(output="out", keep=keep)
    return pb.ExecuteProgramRequest(steps=calls)


def upload_frames(
    entries: Mapping[bytes, bytes], *, constant: bool = False, chunk: int = CHUNK
) -> Iterator[sessions.UploadRequest]:
    """The frames that fill handles with bytes."""
    begin = [
        sessions.UploadEntry(
            handle=handle,
            length=len(data),
            digest=hashlib.sha256(data).digest() if constant else b"",
        )
        for handle, data in entries.items()
    ]
    yield sessions.UploadRequest(begin=sessions.UploadBegin(entries=begin))
    for index, data in enumerate(entries.values()):
        for at in range(0, len(data), chunk):
            piece = pb.Chunk(storage=index, offset=at, data=data[at : at + chunk])
            yield sessions.UploadRequest(chunk=piece)
    yield sessions.UploadRequest(end=pb.End())


class SessionCaller:
    """One session of one caller. Errors are gRPC's; ``wire.details_of`` reads them."""

    def __init__(self, channel: grpc.Channel, session: str = "") -> None:
        self.channel = channel
        self.session = session
        self.lease = 0.0

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        return ((METADATA, self.session),) if self.session else ()

    def open(self, lease: float = 0.0, budget: int = 0) -> sessions.OpenSessionResponse:
        """Opens the session that all other methods are about from here on."""
        request = sessions.OpenSessionRequest(lease_seconds=lease, budget_bytes=budget)
        answer = self.ask("OpenSession", request, sessions.OpenSessionResponse)
        self.session, self.lease = answer.session, answer.lease_seconds
        return answer

    def renew(self) -> sessions.RenewResponse:
        return self.ask("Renew", sessions.RenewRequest(), sessions.RenewResponse)

    def close(self) -> None:
        self.ask("Close", sessions.CloseRequest(), sessions.CloseResponse)

    def release(self, *handles: bytes) -> None:
        request = sessions.ReleaseRequest(handles=handles)
        self.ask("Release", request, sessions.ReleaseResponse)

    def missing(self, *digests: bytes) -> list[bytes]:
        request = sessions.FindMissingRequest(digests=digests)
        return list(self.ask("FindMissing", request, sessions.FindMissingResponse).missing)

    def put(self, data: bytes, *, constant: bool = False, chunk: int = CHUNK) -> bytes:
        """Uploads; the handle."""
        handle = new_handle()
        self.upload(upload_frames({handle: data}, constant=constant, chunk=chunk))
        return handle

    def upload(self, frames: Iterator[sessions.UploadRequest]) -> sessions.UploadResponse:
        return self.begin_upload(frames).result(PATIENCE)

    def begin_upload(self, frames: Iterator[sessions.UploadRequest]) -> Any:
        method = self.channel.stream_unary(
            f"{SERVICE}Upload",
            sessions.UploadRequest.SerializeToString,
            sessions.UploadResponse.FromString,
        )
        return method.future(frames, metadata=self.metadata, timeout=PATIENCE)

    def download(self, place: tensor_pb2.HandlePart) -> bytes:
        return b"".join(answer.chunk.data for answer in self.begin_download(place))

    def begin_download(self, place: tensor_pb2.HandlePart) -> Any:
        method = self.channel.unary_stream(
            f"{SERVICE}Download",
            sessions.DownloadRequest.SerializeToString,
            sessions.DownloadResponse.FromString,
        )
        request = sessions.DownloadRequest(part=place)
        return method(request, metadata=self.metadata, timeout=PATIENCE)

    def execute(self, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return self.ask("Execute", request, pb.ExecuteResponse, OPERATORS)

    def run_program(self, request: pb.ExecuteProgramRequest) -> pb.ExecuteProgramResponse:
        return self.ask("ExecuteProgram", request, pb.ExecuteProgramResponse, OPERATORS)

    def stream(self, frames: Iterator[pb.ExecuteStreamRequest]) -> Any:
        method = self.channel.stream_stream(
            f"{OPERATORS}ExecuteStream",
            pb.ExecuteStreamRequest.SerializeToString,
            pb.ExecuteStreamResponse.FromString,
        )
        return method(frames, metadata=self.metadata, timeout=PATIENCE)

    def ask(self, method: str, request: Any, answer: Any, service: str = SERVICE) -> Any:
        """A method from one message to one."""
        return self.begin(method, request, answer, service).result(PATIENCE)

    def begin(self, method: str, request: Any, answer: Any, service: str = SERVICE) -> Any:
        call = self.channel.unary_unary(
            f"{service}{method}", type(request).SerializeToString, answer.FromString
        )
        return call.future(request, metadata=self.metadata, timeout=PATIENCE)
