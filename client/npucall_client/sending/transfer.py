"""How a call travels: from the caller's arrays to messages and frames, and back. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.errors import MessageError, ProtocolError, TooLargeError
from npucall.exchange import (
    Begin,
    End,
    Error,
    Event,
    Receiving,
    ReplyFrame,
    Resolved,
    Sending,
    State,
    after,
    into,
)
from npucall.limits import FRAME_BYTES, INLINE_BYTES
from npucall.memory import fresh
from npucall.places import Discard, HandlePart, Keep, RegionPart, StepOutput
from npucall.wire.frames import join_begin, join_chunk, join_end
from npucall.wire.messages import Response, join_request, request_parts, split_response
from npucall.wire.program_messages import StepRequest
from npucall.wire.status import from_bytes
from npucall_client.calls import arrays
from npucall_client.calls.answers import as_before, checked, decode_reply, learned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.exchange import Chunk, ResponseFrame
    from npucall.places import OutputPlace, Place
    from npucall.tensors import Buffer, TensorSpec
    from npucall_client.calls.arguments import BoundCall


def size_of(call: BoundCall) -> int:
    """Bytes of the storages of a call that travel."""
    if call.placement is None:
        if call.form is not None and call.form.request is not None:
            return call.form.request.data_bytes
        return sum([0 if isinstance(data, tuple) else len(data) for data in call.storage.values()])
    return sum(map(len, travelling(call).values()))


def held_bytes(call: BoundCall) -> int:
    """Bytes of the storages of a call that a session holds."""
    places = call.storage.values()
    return sum(place.length for place in places if isinstance(place, HandlePart))


def travelling(call: BoundCall) -> Mapping[str, Buffer]:
    """The storages of a call that travel, by name: without handles and shared memory."""
    placement = call.placement
    if placement is None:
        return call.data
    return {name: data for name, data in call.data.items() if name not in placement.storage}


def is_chunked(call: BoundCall, chunk_bytes: int) -> bool:
    """Whether the storages of a call are too long for its first frame, which is one chunk long."""
    size = size_of(call)
    frame = len(call.call) + FRAME_BYTES * (2 + len(call.storage)) + size
    return size > INLINE_BYTES or (size > 0 and frame > chunk_bytes)


def place_nothing_in_chunks(call: BoundCall, chunk_bytes: int) -> None:
    """Makes all storages travel if some follow in chunks, for an older server.

    Raises TooLargeError if they cannot travel, since the server has them.
    """
    if not is_chunked(call, chunk_bytes):
        return
    call.placement = None
    if call.kept or len(call.data) < len(call.storage):
        raise TooLargeError(
            f"{call.operator}: expected at most {INLINE_BYTES} bytes of arrays in a call with "
            f"handles, found {size_of(call)}; this server takes no more: put() the arrays into the "
            "session first"
        )


def storages_of(call: BoundCall) -> list[Place]:
    """The storages of a call; for those that do not travel, their places."""
    if call.placement is None:
        return list(call.storage.values())
    return [call.placement.storage.get(name, data) for name, data in call.storage.items()]


def output_places_of(call: BoundCall) -> Mapping[str, OutputPlace]:
    """The places of the outputs that do not come back."""
    return {**call.placement.outputs, **call.kept} if call.placement is not None else call.kept


def step_of(call: BoundCall) -> StepRequest:
    """A call as a step of a program."""
    return StepRequest(call.call, storages_of(call), output_places_of(call))


def planned_step_of(call: BoundCall) -> StepRequest:
    """The same without data, to be planned."""
    results = [each if isinstance(each, StepOutput) else None for each in storages_of(call)]
    return StepRequest(call.call, results, {})


def parts_of(call: BoundCall) -> list[Buffer]:
    """The parts of the message that is a call."""
    if call.placement is None:
        form = call.form
        if form is not None and form.request is not None and not call.kept:
            return form.request.parts(call.storage.values())  # type: ignore[arg-type]  # no places
        return request_parts(call.call, list(call.storage.values()), call.kept)
    return request_parts(call.call, storages_of(call), output_places_of(call))


def outgoing(  # noqa: PLR0913  # all that they say
    call_id: int,
    call: BoundCall,
    request_id: str,
    chunk_bytes: int,
    timeout_ns: int = 0,
    *,
    early_outputs: bool = False,
    chunk_of: Callable[[int, Chunk], Any] = join_chunk,
) -> Iterator[Any]:
    """The frames that send a call; ``early_outputs``: outputs are taken before the reply.

    ``chunk_of``: makes the frame of a chunk.
    """
    if not is_chunked(call, chunk_bytes):
        message = b"".join(parts_of(call))
        begin = Begin(message, chunked=False, timeout_ns=timeout_ns, request_id=request_id)
        yield join_begin(call_id, begin)
        return
    places = storages_of(call)
    data = [None if isinstance(place, tuple) else place for place in places]
    request = join_request(call.call, _beside_chunks(places), output_places_of(call))
    begin = Begin(request, True, timeout_ns, request_id, early_outputs=early_outputs)  # noqa: FBT003  # chunked
    yield join_begin(call_id, begin)
    for chunk in Sending(data).chunks(chunk_bytes):
        yield chunk_of(call_id, chunk)
    yield join_end(call_id)


def _beside_chunks(places: Sequence[Place]) -> Sequence[Place]:
    """The places of a call whose other storages follow in chunks; empty if all of them do."""
    beside = [place if isinstance(place, tuple) else None for place in places]
    return beside if any(beside) else ()


def _stored(reply: bytes) -> list[tuple[str, TensorSpec]]:
    """The outputs of a reply that have a storage."""
    read = decode_reply(bytes(reply))
    return [(name, read.outputs[name]) for name in read.stored]


class Incoming:
    """The answer to a call, frame by frame."""

    def __init__(
        self, call: BoundCall, received: Callable[[int, int], object] = lambda _, __: None
    ) -> None:
        self._call = call
        self._received = received
        self._state = State.COMPLETE
        self._resolved: bytes | None = None
        """The reply, if outputs come before it."""
        self._response: Response
        self._outputs: list[memoryview | RegionPart | HandlePart | None]
        self._receiving: Receiving
        """The outputs and the response, if chunks follow."""

    def take(self, frame: ResponseFrame) -> Response | None:
        """Takes a frame; returns the response when it is complete.

        Raises the error that the server answers, ProtocolError for frames that make no answer.
        ``received`` is told how many bytes have come, and how many there are.
        """
        if isinstance(frame, Error):
            raise from_bytes(frame.status)
        if isinstance(frame, Resolved):
            self._advance(Event.RESOLVED)
            self._resolved = frame.reply
            self._expect(_stored(frame.reply))
            return None
        if isinstance(frame, ReplyFrame):
            return self._reply(frame.response)
        self._advance(Event.OUTPUT_END if isinstance(frame, End) else Event.OUTPUT_CHUNK)
        try:
            if isinstance(frame, End):
                self._receiving.end()
                return checked(self._call, self._response._replace(storage=list(self._outputs)))
            self._receiving.take(frame)
        except MessageError as error:
            raise ProtocolError(f"stream: {error}") from error
        self._received(self._receiving.received, self._receiving.nbytes)
        return None

    def _reply(self, message: bytes) -> Response | None:
        if self._resolved is not None:
            return self._end(split_response(message))
        known = as_before(self._call, message)
        if known is None:
            return self._begin(message, split_response(message))
        self._advance(Event.REPLY)
        size = sum(map(len, known.storage))  # type: ignore[arg-type]  # they have no places
        self._received(size, size)
        return known

    def _advance(self, event: Event) -> None:
        state = after(self._state, event)
        if state is None:
            raise ProtocolError(
                f"stream: expected no {event.value} of a call that is {self._state.value}, found it"
            )
        self._state = state

    def _end(self, response: Response) -> Response:
        """Takes the reply after outputs that came before it."""
        self._advance(Event.REPLY)
        if response.reply != self._resolved or response.storage:
            raise ProtocolError(
                "stream: expected the reply that belongs to the outputs, found another"
            )
        try:
            self._receiving.end()
        except MessageError as error:
            raise ProtocolError(f"stream: {error}") from error
        return checked(self._call, response._replace(storage=list(self._outputs)))

    def _begin(self, message: bytes, response: Response) -> Response | None:
        specs = _stored(response.reply)
        if response.storage or not any(spec.storage_bytes for _, spec in specs):
            self._advance(Event.REPLY)
            storage = response.storage or [memoryview(b"") for _ in specs]
            size = sum([len(data) for data in storage if isinstance(data, memoryview)])
            self._received(size, size)
            answer = Response(response.reply, response.timings, storage)
            return learned(self._call, message, answer)
        self._advance(Event.REPLY_CHUNKED)
        self._response = response
        self._expect(specs)
        return None

    def _expect(self, specs: Sequence[tuple[str, TensorSpec]]) -> None:
        """The outputs come in chunks."""
        self._outputs = [self._place_of(name, spec) for name, spec in specs]
        memories = [place if isinstance(place, memoryview) else b"" for place in self._outputs]
        self._receiving = Receiving("the answer", list(map(len, memories)), into(memories))

    def _place_of(self, name: str, spec: TensorSpec) -> memoryview | RegionPart | HandlePart | None:
        """Where an output is: on the server, or in the memory that receives it.

        That memory is the caller's own array, if possible.
        """
        place = output_places_of(self._call).get(name)
        if isinstance(place, Keep):
            return HandlePart(place.handle, 0, spec.storage_bytes)
        if place is not None:
            return None if isinstance(place, Discard) else place
        target = self._call.targets.get(name)
        # A target that is also an input must not change: after a break the call is sent again.
        if target is not None and arrays.is_dense(target, spec) and self._is_apart(target):
            return arrays.memory(target)
        return memoryview(fresh(spec.storage_bytes))

    def _is_apart(self, target: Any) -> bool:
        sent = self._call.data.values()
        return not any(np.may_share_memory(target, np.frombuffer(data, np.uint8)) for data in sent)
