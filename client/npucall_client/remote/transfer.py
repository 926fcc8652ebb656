"""A call on its way: out of the caller's arrays into messages and frames, and back. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.buffers import fresh
from npucall.errors import InternalError, MessageError
from npucall.exchange import (
    Begin,
    End,
    Error,
    Event,
    Receiving,
    ReplyFrame,
    Sending,
    State,
    after,
    into,
)
from npucall.limits import FRAME_BYTES, INLINE_BYTES
from npucall.wire.frames import join_begin, join_chunk, join_end
from npucall.wire.messages import Response, join_request, split_response
from npucall.wire.status import from_bytes
from npucall_client import arrays
from npucall_client.arguments import decode_reply, memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from npucall.exchange import ResponseFrame
    from npucall.tensors import Buffer, TensorSpec
    from npucall_client.arguments import BoundCall


def size_of(call: BoundCall) -> int:
    """Bytes of the storages of a call that travel."""
    return sum(map(len, travelling(call).values()))


def travelling(call: BoundCall) -> Mapping[str, Buffer]:
    """The storages of a call that travel, by name: those that do not lie in shared memory."""
    placement = call.placement
    if placement is None:
        return call.storage
    return {name: data for name, data in call.storage.items() if name not in placement.storage}


def is_chunked(call: BoundCall, chunk_bytes: int) -> bool:
    """Whether the storages of a call have no room in its first frame, no longer than a chunk's."""
    size = size_of(call)
    frame = len(call.call) + FRAME_BYTES * (2 + len(call.storage)) + size
    return size > INLINE_BYTES or (size > 0 and frame > chunk_bytes)


def place_nothing_in_chunks(call: BoundCall, chunk_bytes: int) -> None:
    """Has all of a call travel whose storages follow in chunks: there no place can be named."""
    if is_chunked(call, chunk_bytes):
        call.placement = None


def message_of(call: BoundCall) -> bytes:
    """A call in one message."""
    if call.placement is None:
        return join_request(call.call, list(call.storage.values()))
    storage = [call.placement.storage.get(name, data) for name, data in call.storage.items()]
    return join_request(call.call, storage, call.placement.outputs)


def outgoing(
    call_id: int, call: BoundCall, request_id: str, chunk_bytes: int, timeout_ns: int = 0
) -> Iterator[bytes]:
    """The frames that send a call; a call in chunks has no placement."""
    chunked = is_chunked(call, chunk_bytes)
    message = join_request(call.call, ()) if chunked else message_of(call)
    yield join_begin(call_id, Begin(message, chunked, timeout_ns, request_id))
    if chunked:
        for chunk in Sending(list(call.storage.values())).chunks(chunk_bytes):
            yield join_chunk(call_id, chunk)
        yield join_end(call_id)


class Incoming:
    """The answer to a call, frame by frame."""

    def __init__(
        self, call: BoundCall, received: Callable[[int, int], object] = lambda _, __: None
    ) -> None:
        self._call = call
        self._received = received
        self._state = State.COMPLETE
        self._response: Response
        self._outputs: list[memoryview] = []
        self._receiving = Receiving("the answer", (), into(()))

    def take(self, frame: ResponseFrame) -> Response | None:
        """Takes a frame; the response once it is whole.

        Raises the error that the server answers, InternalError for frames that make no answer.
        ``received`` hears how many bytes have come, and how many there are.
        """
        if isinstance(frame, Error):
            raise from_bytes(frame.status)
        if isinstance(frame, ReplyFrame):
            return self._begin(split_response(frame.response))
        self._advance(Event.OUTPUT_END if isinstance(frame, End) else Event.OUTPUT_CHUNK)
        try:
            if isinstance(frame, End):
                self._receiving.end()
                return self._response._replace(storage=list(self._outputs))
            self._receiving.take(frame)
        except MessageError as error:
            raise InternalError(f"stream: {error}") from error
        self._received(self._receiving.received, self._receiving.nbytes)
        return None

    def _advance(self, event: Event) -> None:
        state = after(self._state, event)
        if state is None:
            raise InternalError(
                f"stream: expected no {event.value} of a call that is {self._state.value}, found it"
            )
        self._state = state

    def _begin(self, response: Response) -> Response | None:
        reply = decode_reply(response.reply)
        specs = [(name, reply.outputs[name]) for name in reply.stored]
        if response.storage or not any(spec.storage_bytes for _, spec in specs):
            self._advance(Event.REPLY)
            storage = response.storage or [memoryview(b"") for _ in specs]
            size = sum(len(data) for data in storage if isinstance(data, memoryview))
            self._received(size, size)
            return response._replace(storage=storage)
        self._advance(Event.REPLY_CHUNKED)
        self._response = response
        self._outputs = [self._memory(name, spec) for name, spec in specs]
        sizes = [0 if self._has_place(name) else spec.storage_bytes for name, spec in specs]
        self._receiving = Receiving("the answer", sizes, into(self._outputs))
        return None

    def _has_place(self, name: str) -> bool:
        """Whether an output is written in shared memory, so that no chunk of it comes."""
        placement = self._call.placement
        return placement is not None and name in placement.outputs

    def _memory(self, name: str, spec: TensorSpec) -> memoryview:
        """Where an output is received: in the caller's own array where that can be."""
        if self._has_place(name):
            return memoryview(memory_of(self._call, name))
        target = self._call.targets.get(name)
        # A target that is an input too must stay as it is: a broken stream is begun once more.
        if target is not None and arrays.is_dense(target, spec) and self._is_apart(target):
            return arrays.memory(target)
        return memoryview(fresh(spec.storage_bytes))

    def _is_apart(self, target: Any) -> bool:
        sent = self._call.storage.values()
        return not any(np.may_share_memory(target, np.frombuffer(data, np.uint8)) for data in sent)
