"""Memory of a connection on one host: large arrays are copied there, and from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from npucall.errors import MessageError, ProtocolError
from npucall.limits import KIB
from npucall.memory import fresh
from npucall.places import RegionPart
from npucall.wire.messages import request_parts, split_response
from npucall_client.calls.answers import checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import AnyArray
    from npucall.places import HandlePart, StepOutput
    from npucall.tensors import Buffer
    from npucall.wire.messages import Response
    from npucall.wire.places import ReceivedPlace
    from npucall_client.calls.arguments import BoundCall

REGION_FROM = 512 * KIB
"""Bytes of arrays from which that takes less than to send them; at 3/4 of it both take as long."""
_LEAST = 4 * KIB
"""Shorter arrays travel in the message."""
_ALIGNMENT = 64
"""Arrays begin at a multiple of this, as the contract recommends."""


def region_bytes(call: BoundCall, outputs: Mapping[str, int]) -> int:
    """How large a region has to be for a call and its outputs: a power of two.

    A connection keeps those that became too small, which then are no more than the last one.
    """
    each = [*map(len, call.data.values()), *outputs.values()]
    return 1 << (sum(map(_aligned, each)) - 1).bit_length()


class FrameRegion:
    """``name``: by which calls name it; ``memory``: its bytes. Of one call at a time."""

    def __init__(self, name: bytes, memory: AnyArray) -> None:
        self.memory = memory
        self._name, self._used = name, 0
        self._last: tuple[bytes, Mapping[str, int], list[Any]] | None = None
        """The last call; the message of one like it is the same."""
        self._message: list[Buffer] = []
        self._outputs: dict[str, RegionPart] = {}

    def request(self, call: BoundCall, outputs: Mapping[str, int]) -> list[Buffer]:
        """The parts of the message of a call, whose arrays are copied here."""
        every = list(call.storage.values())
        sizes = [data if isinstance(data, tuple) else len(data) for data in every]
        asked = call.call, outputs, sizes
        if asked != self._last:
            self._used = 0
            storage = [self._next(len(data)) if _lies_here(data) else data for data in every]
            places = {name: size for name, size in outputs.items() if size >= _LEAST}
            self._outputs = {name: self._next(size) for name, size in places.items()}
            self._message = request_parts(call.call, storage, self._outputs)
            is_whole = all(isinstance(each, tuple) for each in storage)
            self._last = asked if is_whole else None
        start = 0
        for data in every:
            if _lies_here(data):
                self.memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
                start += _aligned(len(data))
        return self._message

    def response(self, call: BoundCall, answer: bytes) -> Response:
        """The answer in its message, with the outputs that lie here in memory of their own.

        Raises ProtocolError if it is none, or not that of the call.
        """
        try:
            return checked(call, self._taken(split_response(answer)))
        except MessageError as error:
            raise ProtocolError(f"response: {error}") from None

    def _taken(self, response: Response) -> Response:
        own = self._outputs.values()
        storage: list[ReceivedPlace] = []
        for place in response.storage:
            if isinstance(place, RegionPart):
                if place not in own:
                    raise ProtocolError(f"response: expected an output in its place, found {place}")
                copy = memoryview(fresh(place.length))
                end = place.offset + place.length
                np.frombuffer(copy, np.uint8)[:] = self.memory[place.offset : end]
                storage.append(copy)
            else:
                storage.append(place)
        return response._replace(storage=storage)

    def _next(self, size: int) -> RegionPart:
        start, self._used = self._used, self._used + _aligned(size)
        return RegionPart(self._name, start, size)


def _lies_here(data: Buffer | HandlePart | StepOutput) -> TypeGuard[Buffer]:
    return not isinstance(data, tuple) and len(data) >= _LEAST


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
