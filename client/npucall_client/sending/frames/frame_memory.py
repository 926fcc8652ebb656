"""Large calls on one host: their arrays lie in memory that the server shares with a connection."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from npucall.errors import QueueFullError, QuotaError, SharedMemoryError, TooLargeError
from npucall.wire.headers import EXECUTE
from npucall_client.calls.answers import decode_reply
from npucall_client.sending.frames.frame_region import REGION_FROM, region_bytes
from npucall_client.sending.transfer import size_of

if TYPE_CHECKING:
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.frames.frame_carrier import FrameCarrier
    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.frames.frame_region import FrameRegion
    from npucall_client.settings import ClientSettings

_MOST_SHARED = 2**28
"""Bytes of memory that the server shares, unless the client keeps more."""
_REST_SECONDS = 60.0
"""Until a server that shares none is asked again."""
_MOST_NOTES = 256
_NO_OUTPUTS: Mapping[str, int] = MappingProxyType({})

_log = logging.getLogger("npucall_client")


class CallMemory:
    """Each connection of ``carrier`` has a region for the call that it has, which it keeps."""

    def __init__(self, carrier: FrameCarrier, settings: ClientSettings) -> None:
        self._carrier, self._most = carrier, max(_MOST_SHARED, settings.keep_memory)
        given = settings.stream_from
        self._chunks_from = math.inf if given is None else given
        self._rests_until = 0.0
        self._outputs: dict[bytes, Mapping[str, int]] = {}
        """Bytes of the outputs of calls that were here, by name."""

    def suits(self, call: BoundCall) -> bool:
        """Whether a call is worth it, and may be here."""
        if call.placement is not None or call.kept:
            return False
        size = size_of(call)
        if size >= self._chunks_from:
            return False
        return size >= REGION_FROM or (
            call.call in self._outputs
            and size + sum(self._outputs[call.call].values()) >= REGION_FROM
        )

    async def answer(self, call: BoundCall, metadata: bytes, attempts: Attempts) -> Response | None:
        """The answer to such a call; None if it has to travel otherwise.

        Raises the error that the server answers, or that of a connection that breaks.
        """
        carrier, outputs = self._carrier, self._outputs.get(call.call, _NO_OUTPUTS)
        size = region_bytes(call, outputs)
        if size > self._most or time.monotonic() < self._rests_until:
            return None
        if (connection := await carrier.taken(attempts)) is None:
            return None
        with carrier.using(connection, attempts.request.timeout):
            region = await self._region_of(connection, size, attempts.ends)
            if region is None:
                return None
            message = region.request(call, outputs)
            answer = await connection.call(EXECUTE, message, metadata, attempts.ends)
            response = region.response(call, answer)
            self.note(call, response)
            return response

    async def _region_of(
        self, connection: CallConnection, size: int, ends: float
    ) -> FrameRegion | None:
        """A region of at least that size; None if the server gives none."""
        region = connection.region
        if region is not None and region.memory.nbytes >= size:
            return region
        if not connection.is_near or self._carrier.shared_bytes + size > self._most:
            return None
        try:
            return await connection.share(size, ends)
        except (SharedMemoryError, TooLargeError, QueueFullError, QuotaError) as error:
            _log.debug("frames: the server shares no memory now: %s", error)
            self._rests_until = time.monotonic() + _REST_SECONDS
            return None

    def note(self, call: BoundCall, response: Response) -> None:
        """How large the outputs of a call are, so that there is room for them next time."""
        if call.call not in self._outputs:
            reply = decode_reply(response.reply)
            if len(self._outputs) >= _MOST_NOTES:
                self._outputs.clear()
            self._outputs[call.call] = dict(zip(reply.stored, reply.stored_bytes, strict=True))
