"""Programs <-> bytes: ``ExecuteProgramRequest`` and ``ExecuteProgramResponse``.

As in ``messages``, code here reads by position what npucall and the generated classes write; the
class reads every other encoding.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.errors import MessageError
from npucall.limits import (
    ALIGNMENT,
    CACHED_CALL_BYTES,
    CACHED_CALLS,
    MAX_NESTED_FIELDS,
    MAX_PROGRAM_OVERHEAD_BYTES,
    MAX_PROGRAM_STEPS,
)
from npucall.programs import at_step
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import (
    KnownMessage,
    RequestParts,
    Response,
    check_length,
    known_request_parts,
    parsed_as,
    request_parts,
    response_parts,
    split_request_in,
    split_response_in,
)
from npucall.wire.protobuf import Malformed, bytes_at, content_at, data_bytes_in, header, skim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from npucall.places import OutputPlace, Place
    from npucall.tensors import Buffer

_STEPS, _TIMINGS = 1, 2
_STEPS_TAG, _TIMINGS_TAG = 0x0A, 0x12
_DATA = {memoryview}
_USUAL_STEP_BYTES = 1024
"""The length of most steps takes so many bytes; other steps are built twice."""


class StepRequest(NamedTuple):
    """A step in a message: its call, its storages, and places for its outputs."""

    call: bytes
    storage: Sequence[Place]
    output_places: Mapping[str, OutputPlace]


class ProgramResponse(NamedTuple):
    """An ``ExecuteProgramResponse``."""

    steps: list[Response]
    timings: bytes


def join_program(steps: Iterable[StepRequest]) -> bytes:
    """The bytes of an ``ExecuteProgramRequest``. Copies each storage once, into the message."""
    parts: list[Buffer] = []
    position = 0
    for step in steps:
        if step.output_places or set(map(type, step.storage)) != _DATA:
            position = _add(parts, position, partial(request_parts, *step))
            continue
        data: Any = step.storage
        sizes = tuple(map(len, data))
        known = (_kept_step if len(step.call) <= CACHED_CALL_BYTES else _known_step)(
            step.call, sizes, position % ALIGNMENT
        )
        parts += known.parts(data)
        position += known.length
    return b"".join(parts)


def _known_step(call: bytes, sizes: tuple[int, ...], position: int) -> KnownMessage:
    """The steps with this call whose storages are all in the message; see ``_add``."""

    def made(before: bytes) -> tuple[bytes, list[tuple[bytes, int]]]:
        inner = [*known_request_parts(call, sizes, position + len(before))]
        return header(_STEPS, sum(len(stays) + size for stays, size in inner)), inner

    before, _ = made(header(_STEPS, _USUAL_STEP_BYTES))
    before, ((stays, size), *others) = made(before)
    return KnownMessage([(before + stays, size), *others])


_kept_step = lru_cache(CACHED_CALLS)(_known_step)


def join_program_response(steps: Iterable[tuple[bytes, Sequence[Place]]], timings: bytes) -> bytes:
    """The bytes of an ``ExecuteProgramResponse``: of each step its reply and its storages."""
    parts: list[Buffer] = []
    position = 0
    for reply, storage in steps:
        position = _add(parts, position, partial(response_parts, reply, b"", storage))
    parts += (header(_TIMINGS, len(timings)), timings)
    return b"".join(parts)


def split_program(message: bytes) -> list[RequestParts]:
    """The steps of an ``ExecuteProgramRequest``; their storages are views of it.

    Raises MessageError where the protobuf class would refuse the message, for more than
    ``MAX_PROGRAM_STEPS``, for more than ``MAX_NESTED_FIELDS``, and for more than
    ``MAX_PROGRAM_OVERHEAD_BYTES`` without data.
    """
    check_length(message, "ExecuteProgramRequest")
    steps = _split_program(message)
    if len(message) > MAX_PROGRAM_OVERHEAD_BYTES:
        data = sum(step.data_bytes for step in steps)
        _check_overhead(len(message) - data)
    if sum(len(step.storage) + len(step.output_places) for step in steps) > MAX_NESTED_FIELDS:
        raise MessageError(
            f"program: expected at most {MAX_NESTED_FIELDS} storages and places, found more"
        )
    return steps


def split_program_response(message: bytes) -> ProgramResponse:
    """The answers to the steps of a program; see ``split_program``."""
    check_length(message, "ExecuteProgramResponse")
    try:
        bounds, position = _bounds(message)
        start, end = bytes_at(message, position, len(message), _TIMINGS_TAG)
        if end == len(message):
            steps = [split_response_in(message, *each) for each in bounds]
            return ProgramResponse(steps, message[start:end])
    except (Malformed, IndexError):
        pass
    parsed = parsed_as(pb.ExecuteProgramResponse, message)
    answers = (step.SerializeToString() for step in parsed.steps)
    return ProgramResponse(
        [split_response_in(answer, 0, len(answer)) for answer in answers],
        parsed.timings.SerializeToString(),
    )


def _add(parts: list[Buffer], position: int, made: Callable[[int], list[Buffer]]) -> int:
    """Adds a step, and returns where it ends.

    Its padding depends on where it begins, and so on the length of its own header. If the header
    becomes shorter with the new padding, the data is not aligned; that is allowed.
    """
    guess = header(_STEPS, _USUAL_STEP_BYTES)
    step = made(position + len(guess))
    found = header(_STEPS, sum(map(len, step)))
    if len(found) != len(guess):
        step = made(position + len(found))
        found = header(_STEPS, sum(map(len, step)))
    parts.append(found)
    parts += step
    return position + len(found) + sum(map(len, step))


def _split_program(message: bytes) -> list[RequestParts]:
    try:
        bounds, position = _bounds(message)
    except (Malformed, IndexError):
        position = -1  # another spelling, or no message: the class decides
    if position != len(message):
        return _program_of_class(message)
    return [_split_step(number, message, *each) for number, each in enumerate(bounds)]


def _split_step(number: int, message: bytes, start: int, end: int) -> RequestParts:
    with at_step(number):
        return split_request_in(message, start, end)


def _bounds(message: bytes) -> tuple[list[tuple[int, int]], int]:
    """Where each of the leading steps begins and ends, and where all of them end."""
    bounds: list[tuple[int, int]] = []
    position, end = 0, len(message)
    while position < end and message[position] == _STEPS_TAG:
        if len(bounds) == MAX_PROGRAM_STEPS:
            raise MessageError(f"program: expected at most {MAX_PROGRAM_STEPS} steps, found more")
        start, position = content_at(message, position)
        bounds.append((start, position))
    if position > end:
        raise Malformed("a field that is longer than what holds it")
    return bounds, position


def _program_of_class(message: bytes) -> list[RequestParts]:
    try:
        steps = sum(field == _STEPS for field, _ in skim(message))
        data = data_bytes_in(message, pb.ExecuteProgramRequest.DESCRIPTOR, MAX_NESTED_FIELDS)
    except Malformed as fault:
        raise MessageError(
            f"ExecuteProgramRequest: expected a protobuf message, found {fault}"
        ) from None
    _check_overhead(len(message) - data)
    if steps > MAX_PROGRAM_STEPS:
        raise MessageError(f"program: expected at most {MAX_PROGRAM_STEPS} steps, found {steps}")
    parsed = parsed_as(pb.ExecuteProgramRequest, message)
    requests = (step.SerializeToString() for step in parsed.steps)
    return [_split_step(n, request, 0, len(request)) for n, request in enumerate(requests)]


def _check_overhead(size: int) -> None:
    if size > MAX_PROGRAM_OVERHEAD_BYTES:
        raise MessageError(
            f"program: expected at most {MAX_PROGRAM_OVERHEAD_BYTES} bytes without the data of "
            f"storages, found {size}"
        )
