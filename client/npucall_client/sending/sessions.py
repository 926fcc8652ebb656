"""Sessions on a server: their requests and answers, with the retries and errors of the channel."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc

from npucall.errors import HandleMemoryError, InternalError, MessageError, NpucallError
from npucall.exchange import Chunk, Receiving, Sending, into
from npucall.limits import MAX_ENTRIES
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as session_pb
from npucall.v1 import tensor_pb2
from npucall.wire.frames import join_chunk, join_end, split_response_frame
from npucall.wire.program_messages import join_program, split_program_response
from npucall_client.sending.progress import Telling
from npucall_client.sending.session_transport import Opened
from npucall_client.sending.transfer import planned_step_of, step_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from npucall.places import HandlePart
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Progress
    from npucall_client.calls.tensors import Home
    from npucall_client.sending.large_call import StreamOpener
    from npucall_client.sending.senders import Stream
    from npucall_client.sending.server_limits import ServerLimits
    from npucall_client.sending.session_transport import Upload

T = TypeVar("T")

_NO_CALL = 0
"""The id of frames that belong to no call."""


class Sender(Protocol):
    """Sends for a session, or for none."""

    async def send(
        self, method: str, request: bytes, timeout: float, request_id: str = ""
    ) -> bytes:
        """A method of one request and one response."""

    async def on_stream(
        self,
        method: str,
        exchange: Callable[[StreamOpener, float], Awaitable[T]],
        timeout: float,
        request_id: str = "",
    ) -> T:
        """The result of an exchange on a stream of its own; starts again if the stream breaks."""


class RemoteSessions:
    """Sessions of a server. ``at``: sends for a session."""

    def __init__(
        self, target: str, limits: ServerLimits, sender: Sender, at: Callable[[Home], Sender]
    ) -> None:
        self._target = target
        self._limits = limits
        self._sender = sender
        self._at = at

    async def program_steps(self) -> int:
        return self._limits.program_steps

    async def remembers(self) -> bool:
        return self._limits.remembers

    async def open(self, lease: float, budget: int, timeout: float) -> Opened:
        if not self._limits.has_sessions:
            raise HandleMemoryError(
                f"the server at {self._target} has no sessions: its setting handle_memory is 0, or "
                "its version is too old",
                setting="handle_memory",
                limit="0",
            )
        request = session_pb.OpenSessionRequest(lease_seconds=lease, budget_bytes=budget)
        data = await self._sender.send("OpenSession", request.SerializeToString(), timeout)
        answer = session_pb.OpenSessionResponse.FromString(data)
        return Opened(answer.session, answer.lease_seconds, answer.budget_bytes)

    async def renew(self, home: Home, timeout: float) -> None:
        await self._at(home).send("Renew", b"", timeout)

    async def close(self, home: Home, timeout: float) -> None:
        await self._at(home).send("Close", b"", timeout)

    async def release(self, home: Home, handles: Sequence[bytes], timeout: float) -> None:
        for start in range(0, len(handles), MAX_ENTRIES):
            some = session_pb.ReleaseRequest(handles=handles[start : start + MAX_ENTRIES])
            await self._at(home).send("Release", some.SerializeToString(), timeout)

    async def upload(
        self, home: Home, upload: Upload, timeout: float, request_id: str, progress: Progress | None
    ) -> None:
        async def attempt(open_stream: StreamOpener, seconds: float) -> None:
            telling = Telling(progress, len(upload.data))
            answers = open_stream(
                _upload_frames(upload, self._limits.chunk_bytes, telling), seconds
            )
            async with aclosing(_heard(answers, telling)) as heard:
                async for _ in heard:
                    telling.check()

        await self._at(home).on_stream("Upload", attempt, timeout, request_id)

    async def download(  # noqa: PLR0913  # all that makes a call
        self,
        home: Home,
        part: HandlePart,
        memory: memoryview,
        timeout: float,
        request_id: str,
        progress: Progress | None,
    ) -> None:
        request = session_pb.DownloadRequest(part=tensor_pb2.HandlePart(**part._asdict()))

        async def attempt(open_stream: StreamOpener, seconds: float) -> None:
            telling = Telling(progress, 0)
            receiving = Receiving("the handle", [part.length], into([memory]))
            answers = open_stream(iter([request.SerializeToString()]), seconds)
            async with aclosing(_heard(answers, telling)) as heard:
                async for message in heard:
                    _take(receiving, message)
                    telling.received(receiving.received, receiving.nbytes)
            _end(receiving)

        await self._at(home).on_stream("Download", attempt, timeout, request_id)

    async def run_program(
        self, home: Home, steps: Sequence[BoundCall], timeout: float, request_id: str
    ) -> list[Response]:
        message = join_program(map(step_of, steps))
        self._limits.check_program(steps, len(message))
        data = await self._at(home).send("ExecuteProgram", message, timeout, request_id)
        answers = split_program_response(data).steps
        if len(answers) != len(steps):
            raise InternalError(
                f"response: expected answers to {len(steps)} steps, found {len(answers)}"
            )
        return list(answers)

    async def plan_program(
        self, home: Home, steps: Sequence[BoundCall], timeout: float, request_id: str
    ) -> pb.PlanProgramResponse:
        message = join_program(map(planned_step_of, steps))
        data = await self._at(home).send("PlanProgram", message, timeout, request_id)
        return pb.PlanProgramResponse.FromString(data)


def _upload_frames(upload: Upload, chunk_bytes: int, telling: Telling) -> Iterator[bytes]:
    """The frames to send, in gRPC's thread."""
    entry = session_pb.UploadEntry(
        handle=upload.handle,
        length=len(upload.data),
        digest=upload.digest,
        dtype=upload.dtype,  # type: ignore[arg-type]  # a number of the enum
    )
    begin = session_pb.UploadBegin(entries=[entry])
    yield session_pb.UploadRequest(begin=begin).SerializeToString()
    for chunk in Sending([b"" if upload.by_digest else upload.data]).chunks(chunk_bytes):
        frame = join_chunk(_NO_CALL, chunk)
        yield frame
        telling.sent(len(frame))
        if telling.broken is not None:
            return  # no end: nothing is filled
    yield join_end(_NO_CALL)


async def _heard(answers: Stream, telling: Telling) -> AsyncGenerator[bytes]:
    """The messages that come. Raises the error of the caller's own function, if it raised."""
    try:
        async for message in answers:
            yield message
    except (grpc.RpcError, NpucallError):
        telling.check()
        raise
    finally:
        with suppress(grpc.RpcError):
            answers.cancel()  # does nothing to what has ended


def _take(receiving: Receiving, message: bytes) -> None:
    try:
        _, frame = split_response_frame(message)
        if not isinstance(frame, Chunk):
            raise InternalError(f"download: expected chunks, found {type(frame).__name__}")
        receiving.take(frame)
    except MessageError as error:
        raise InternalError(f"download: {error}") from error


def _end(receiving: Receiving) -> None:
    try:
        receiving.end()
    except MessageError as error:
        raise InternalError(f"download: {error}") from error
