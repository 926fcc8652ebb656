"""What callers may have this process hold before a call is admitted, as a share of memory_limit.

Calls that are admitted count in the ledger, up to ``memory_limit``. Before that gRPC holds, at the
most:

- of each stream one message that it reads: ``max_streams`` x ``max_message_bytes``;
- of each other call that has room one message: ``messages`` x ``max_message_bytes``; of listings
  and health checks ``LISTING_MESSAGES`` of them;
- of each call beyond, ``_WINDOW_BYTES``, since gRPC takes no more of a message that nobody reads:
  ``max_connections`` x ``CONNECTION_CALLS`` of them.

By default these are 3/8 of ``memory_limit`` and 192 MiB, so all of it is less than 1.5 times
``memory_limit`` and 256 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npucall.limits import FRAME_BYTES, KIB, MAX_CALL_BYTES, MIB

if TYPE_CHECKING:
    from npucall_server.settings import ServerSettings

CONNECTION_CALLS = 64
"""Calls and streams of one connection at a time; its client has further ones wait."""
LISTING_MESSAGES = 4
"""Messages of listings and health checks on their way in at a time."""
_WINDOW_BYTES = 64 * KIB
_ALWAYS = 32 * MIB
"""Added to each share, so that a small server takes some calls at a time too."""
_MESSAGE_SHARE, _STREAMS_SHARE, _MESSAGES_SHARE, _WINDOWS_SHARE = 32, 8, 16, 8
_LONGEST_MESSAGE = 16 * MIB
_SHORTEST_MESSAGE = 4 * MAX_CALL_BYTES
_MOST_STREAMS, _MOST_MESSAGES, _MOST_CONNECTIONS = 64, 128, 512
_LEAST = 4


@dataclass(frozen=True)
class Budget:
    """How much may be on its way in."""

    max_message_bytes: int
    chunk_bytes: int
    """Of chunks, which travel in messages."""
    max_streams: int
    messages: int
    """Of calls without a stream, on their way in at a time."""
    max_connections: int

    @classmethod
    def of(cls, settings: ServerSettings, descriptors: int) -> Budget:
        """What the settings say; what they leave out follows from the memory.

        ``descriptors``: most connections that the process can hold.
        """
        memory = settings.memory_limit
        message = int(settings.max_message_bytes or _usual_message(memory))
        streams = settings.max_streams
        if streams is None:
            streams = _share(memory, _STREAMS_SHARE, message, _MOST_STREAMS)
        connections = settings.max_connections
        if connections is None:
            held = CONNECTION_CALLS * _WINDOW_BYTES
            connections = _share(memory, _WINDOWS_SHARE, held, _MOST_CONNECTIONS)
        return cls(
            max_message_bytes=message,
            chunk_bytes=max(min(settings.chunk_bytes, message - FRAME_BYTES), 1),
            max_streams=streams,
            messages=_share(memory, _MESSAGES_SHARE, message, _MOST_MESSAGES),
            max_connections=max(1, min(connections, descriptors)),
        )


def _usual_message(memory: int) -> int:
    return min(_LONGEST_MESSAGE, max(memory // _MESSAGE_SHARE, _SHORTEST_MESSAGE))


def _share(memory: int, share: int, each: int, most: int) -> int:
    """How many of so many bytes each have room in a share of the memory."""
    return min(max((memory // share + _ALWAYS) // each, _LEAST), most)
