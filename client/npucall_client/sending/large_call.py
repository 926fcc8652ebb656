"""A large call on a stream of its own, which needs little more memory than its tensors."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import grpc

from npucall.errors import NpucallError, ProtocolError
from npucall.wire.frames import chunk_parts, join_cancel, split_response_frame
from npucall.wire.stream_messages import response_frames
from npucall_client.sending.progress import Telling
from npucall_client.sending.transfer import Incoming, outgoing, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.senders import Message, MessageStream

_CALL_ID = 1


class StreamOpener(Protocol):
    """Opens an ``ExecuteStream``."""

    def __call__(self, messages: Iterator[Message], /) -> MessageStream:
        """The messages that come back."""


class LargeCall:
    """One attempt at a call; ``early_outputs``: the server may send outputs before its reply."""

    def __init__(
        self, call: BoundCall, request_id: str, chunk_bytes: int, *, early_outputs: bool = False
    ) -> None:
        self._call = call
        self._early_outputs = early_outputs
        self._request_id = request_id
        self._chunk_bytes = chunk_bytes
        self._progress = Telling(call.progress, size_of(call))
        self._answered = False

    async def run(self, stream: StreamOpener) -> Response:
        """Sends the call and receives its answer.

        Raises the error that the server answers, grpc.RpcError if the stream breaks, and the error
        of a progress callback.
        """
        answers = stream(self._frames())
        try:
            return await self._receive(answers)
        except (grpc.RpcError, NpucallError):
            self._progress.check()
            raise
        finally:
            self._answered = True
            answers.cancel()  # does nothing to a call that has ended

    def _frames(self) -> Iterator[Message]:
        """The frames to send, in another thread; ends early if the answer has come already."""
        frames = outgoing(
            _CALL_ID,
            self._call,
            self._request_id,
            self._chunk_bytes,
            early_outputs=self._early_outputs,
            chunk_of=chunk_parts,
        )
        for frame in frames:
            yield frame
            parts = (frame,) if isinstance(frame, bytes) else frame
            self._progress.sent(sum(map(len, parts)))
            if self._answered:
                return
            if self._progress.broken is not None:
                yield join_cancel(_CALL_ID)
                return

    async def _receive(self, messages: MessageStream) -> Response:
        incoming = Incoming(self._call, self._progress.received)
        async for message in messages:
            for frame in response_frames(message):
                response = incoming.take(split_response_frame(frame)[1])
                if response is not None:
                    with suppress(grpc.RpcError, NpucallError):  # the answer is whole
                        [_ async for _ in messages]
                    return response
        raise ProtocolError("stream: expected an answer, found the end of the stream")
