"""Sessions on a server: their requests and answers."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from npucall.errors import HandleMemoryError, MessageError, NpucallError, ProtocolError
from npucall.exchange import Chunk, Receiving, Sending, into
from npucall.limits import MAX_ENTRIES
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as session_pb
from npucall.v1 import tensor_pb2
from npucall.wire.frames import join_chunk, join_end, split_response_frame
from npucall.wire.program_messages import join_program, split_program_response
from npucall_client.calls.answers import checked
from npucall_client.sending.progress import Telling
from npucall_client.sending.request import Request
from npucall_client.sending.server_limits import CHECKED_FROM
from npucall_client.sending.session_transport import Opened
from npucall_client.sending.transfer import planned_step_of, step_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from npucall.places import HandlePart
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Progress
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.large_call import StreamOpener
    from npucall_client.sending.link import Link
    from npucall_client.sending.senders import MessageStream
    from npucall_client.sending.server_limits import ServerLimits
    from npucall_client.sending.session_transport import HandleUpload

    Send: TypeAlias = "Callable[[Link, Attempts], Awaitable[Any]]"
    Ask: TypeAlias = "Callable[[Request, Send], Awaitable[Any]]"

_SECONDS = 10.0
"""Time for a member that is asked for its limits."""
_NO_CALL = 0
"""The id of frames that belong to no call."""


class RemoteSessions:
    """Sessions of a server, or of the members of a pool. ``ask``: makes attempts at a request."""

    def __init__(self, target: str, ask: Ask) -> None:
        self._target = target
        self._ask = ask

    async def program_steps(self) -> int:
        return (await self._limits()).program_steps

    async def remembers(self) -> bool:
        return (await self._limits()).remembers

    async def _limits(self) -> ServerLimits:
        async def known(link: Link, _: Attempts) -> ServerLimits:
            return link.limits

        limits: ServerLimits = await self._ask(Request(_SECONDS), known)
        return limits

    async def open(
        self, request: Request, lease: float, budget: int, *, refillable: bool
    ) -> Opened:
        asked = session_pb.OpenSessionRequest(
            lease_seconds=lease, budget_bytes=budget, refillable=refillable
        )

        async def attempt(link: Link, attempts: Attempts) -> Opened:
            if not link.limits.has_sessions:
                raise HandleMemoryError(
                    f"the server at {link.target} has no sessions: its setting handle_memory is "
                    "0, or its version is too old",
                    setting="handle_memory",
                    limit="0",
                )
            data = await link.send_once("OpenSession", asked.SerializeToString(), attempts)
            answer = session_pb.OpenSessionResponse.FromString(data)
            self.note(answer.session, attempts)
            return Opened(answer.session, answer.lease_seconds, answer.budget_bytes)

        opened: Opened = await self._ask(request, attempt)
        return opened

    def note(self, session: str, attempts: Attempts) -> None:
        """A session was opened by these attempts."""

    def lost(self, error: NpucallError) -> NpucallError:
        return error

    async def renew(self, request: Request) -> None:
        await self._send(request, "Renew")

    async def close(self, request: Request) -> None:
        await self._send(request, "Close")

    async def release(self, request: Request, handles: Sequence[bytes]) -> None:
        for start in range(0, len(handles), MAX_ENTRIES):
            some = session_pb.ReleaseRequest(handles=handles[start : start + MAX_ENTRIES])
            await self._send(request, "Release", some.SerializeToString())

    async def _send(self, request: Request, method: str, message: bytes = b"") -> bytes:
        named = request._replace(name=method)
        data: bytes = await self._ask(
            named, lambda link, attempts: link.send_once(method, message, attempts)
        )
        return data

    async def upload(
        self, request: Request, upload: HandleUpload, progress: Progress | None
    ) -> None:
        await self._ask(
            request._replace(name="Upload"),
            lambda link, attempts: uploaded(
                link, attempts, upload, progress, link.limits.chunk_bytes
            ),
        )

    async def download(
        self, request: Request, part: HandlePart, memory: memoryview, progress: Progress | None
    ) -> None:
        message = session_pb.DownloadRequest(part=tensor_pb2.HandlePart(**part._asdict()))

        async def exchange(open_stream: StreamOpener) -> None:
            telling = Telling(progress, 0)
            receiving = Receiving("the handle", [part.length], into([memory]))
            answers = open_stream(iter([message.SerializeToString()]))
            async with aclosing(_heard(answers, telling)) as heard:
                async for answer in heard:
                    _take(receiving, answer)
                    telling.received(receiving.received, receiving.nbytes)
            _end(receiving)

        await self._ask(
            request._replace(name="Download"),
            lambda link, attempts: link.exchange("Download", attempts, exchange),
        )

    async def run_program(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        message = join_program(map(step_of, steps))

        async def attempt(link: Link, attempts: Attempts) -> bytes:
            if len(message) >= CHECKED_FROM:
                most = await link.frames.most_bytes(attempts)
                link.limits.check_program(steps, len(message), most)
            return await link.send_once("ExecuteProgram", message, attempts)

        data: bytes = await self._ask(request._replace(name="ExecuteProgram"), attempt)
        answers = split_program_response(data).steps
        if len(answers) != len(steps):
            raise ProtocolError(
                f"response: expected answers to {len(steps)} steps, found {len(answers)}"
            )
        return [*map(checked, steps, answers)]

    async def plan_program(
        self, request: Request, steps: Sequence[BoundCall]
    ) -> pb.PlanProgramResponse:
        message = join_program(map(planned_step_of, steps))
        data = await self._send(request, "PlanProgram", message)
        return pb.PlanProgramResponse.FromString(data)


async def uploaded(
    link: Link,
    attempts: Attempts,
    upload: HandleUpload,
    progress: Progress | None,
    chunk_bytes: int,
) -> None:
    """One attempt at an upload, in chunks of so many bytes."""
    telling = Telling(progress, len(upload.data))
    frames = _upload_frames(upload, chunk_bytes, telling)

    async def exchange(open_stream: StreamOpener) -> None:
        async with aclosing(_heard(open_stream(frames), telling)) as heard:
            async for _ in heard:
                telling.check()

    await link.exchange("Upload", attempts, exchange)


def _upload_frames(upload: HandleUpload, chunk_bytes: int, telling: Telling) -> Iterator[bytes]:
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


async def _heard(answers: MessageStream, telling: Telling) -> AsyncGenerator[bytes]:
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
            raise ProtocolError(f"download: expected chunks, found {type(frame).__name__}")
        receiving.take(frame)
    except MessageError as error:
        raise ProtocolError(f"download: {error}") from error


def _end(receiving: Receiving) -> None:
    try:
        receiving.end()
    except MessageError as error:
        raise ProtocolError(f"download: {error}") from error
