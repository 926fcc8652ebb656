"""A call as the frames of a stream: out of the caller's arrays, and into arrays. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.errors import InternalError
from npucall.exchange import Begin, Chunk, End, Error, Reply
from npucall.limits import INLINE_BYTES
from npucall.regions import RegionPart
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


def size_of(request: BoundCall) -> int:
    """Bytes of the storages of a call that travel."""
    return sum(map(len, travelling(request).values()))


def travelling(request: BoundCall) -> Mapping[str, Buffer]:
    """The storages of a call that travel, by name: those that do not lie in shared memory."""
    shared = request.shared
    if shared is None:
        return request.storage
    return {name: data for name, data in request.storage.items() if name not in shared.storage}


def is_chunked(request: BoundCall, chunk_bytes: int) -> bool:
    """Whether the storages of a call have no room in its first frame."""
    return size_of(request) > min(INLINE_BYTES, chunk_bytes)


def message_of(request: BoundCall) -> bytes:
    """A call in one message."""
    if request.shared is None:
        return join_request(request.call, list(request.storage.values()))
    storage = [request.shared.storage.get(name, data) for name, data in request.storage.items()]
    return join_request(request.call, storage, request.shared.outputs)


def outgoing(
    call_id: int, request: BoundCall, request_id: str, chunk_bytes: int, timeout_ns: int = 0
) -> Iterator[bytes]:
    """The frames that send a call. Arrays are read as they are sent, never copied as a whole.

    All of a call in chunks travels, whatever lies in shared memory: there they cannot be named.
    The storages come in turn, a chunk each, so that the server computes what it has of all of them.
    """
    storages = [memoryview(data) for data in request.storage.values()]
    chunked = is_chunked(request, chunk_bytes)
    message = join_request(request.call, ()) if chunked else message_of(request)
    yield join_begin(call_id, Begin(message, chunked, timeout_ns, request_id))
    if not chunked:
        return
    for start in range(0, max(map(len, storages)), chunk_bytes):
        for index, data in enumerate(storages):
            if part := data[start : start + chunk_bytes]:
                yield join_chunk(call_id, Chunk(index, start, part))
    yield join_end(call_id)


class Incoming:
    """The answer to a call, frame by frame."""

    def __init__(
        self, request: BoundCall, received: Callable[[int, int], object] = lambda _, __: None
    ) -> None:
        self._request = request
        self._received = received
        self._response: Response | None = None
        self._outputs: list[memoryview] = []
        self._ends: list[int] = []

    def take(self, frame: ResponseFrame) -> Response | None:
        """Takes a frame; the response once it is whole.

        Raises the error that the server answers, InternalError for frames that make no answer.
        ``received`` hears how many bytes have come, and how many there are.
        """
        if isinstance(frame, Error):
            raise from_bytes(frame.status)
        if isinstance(frame, Reply):
            return self._begin(frame)
        if self._response is None:
            raise InternalError(f"stream: expected a reply, found {type(frame).__name__}")
        if isinstance(frame, End):
            return self._end(self._response)
        self._put(frame)
        return None

    def _begin(self, frame: Reply) -> Response | None:
        response = split_response(frame.response)
        reply = decode_reply(response.reply)
        if response.storage or not reply.stored:
            size = sum(len(data) for data in response.storage if not isinstance(data, RegionPart))
            self._received(size, size)
            return response
        specs = [(name, reply.outputs[name]) for name in reply.stored]
        if sum(spec.storage_bytes for _, spec in specs) == 0:
            return response._replace(storage=[memoryview(b"") for _ in specs])
        self._response = response
        self._outputs = [self._memory(name, spec) for name, spec in specs]
        self._ends = [spec.storage_bytes if self._has_place(name) else 0 for name, spec in specs]
        return None

    def _has_place(self, name: str) -> bool:
        """Whether an output is written in shared memory, so that no chunk of it comes."""
        shared = self._request.shared
        return shared is not None and name in shared.outputs

    def _memory(self, name: str, spec: TensorSpec) -> memoryview:
        """Where an output is received: in the caller's own array where that can be."""
        if self._has_place(name):
            return memoryview(memory_of(self._request, name))
        target = self._request.targets.get(name)
        # A target that is an input too must stay as it is: a broken stream is begun once more.
        if target is not None and arrays.is_dense(target, spec) and self._is_apart(target):
            return arrays.memory(target)
        return np.empty(spec.storage_bytes, np.uint8).data

    def _is_apart(self, target: Any) -> bool:
        sent = self._request.storage.values()
        return not any(np.may_share_memory(target, np.frombuffer(data, np.uint8)) for data in sent)

    def _put(self, chunk: Chunk) -> None:
        index, end = chunk.storage, chunk.offset + len(chunk.data)
        follows = index < len(self._outputs) and chunk.offset == self._ends[index]
        if not follows or end > len(self._outputs[index]):
            raise InternalError(
                f"stream: expected the next part of an output, found bytes {chunk.offset} to {end} "
                f"of output {index}"
            )
        _copy(self._outputs[index][chunk.offset : end], chunk.data)
        self._ends[index] = end
        self._received(sum(self._ends), sum(map(len, self._outputs)))

    def _end(self, response: Response) -> Response:
        sizes = list(map(len, self._outputs))
        if self._ends != sizes:
            raise InternalError(
                f"stream: expected outputs of {sizes} bytes, found {self._ends} of them"
            )
        return response._replace(storage=list(self._outputs))


def _copy(target: memoryview, data: Buffer) -> None:
    """NumPy copies without the interpreter's lock."""
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(data, np.uint8))
