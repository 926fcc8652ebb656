"""What this process may hold for calls before they are admitted, as a share of memory_limit.

Admitted calls count in the ledger, up to ``memory_limit``. Before a call is admitted, gRPC holds
its messages: at most one of ``max_message_bytes`` for each of

- ``max_streams`` streams, which read one at a time;
- ``messages`` other calls on their way in; more are refused before anything is read;
- ``LISTING_MESSAGES`` of listings, ``HEALTH_MESSAGES`` of health checks.

What it knows of calls that came before takes ``KNOWN_CALLS_BYTES`` and a MiB more. By default all
of these are a quarter of ``memory_limit`` and 240 MiB at most, so all of it is less than 1.5 times
``memory_limit`` and 256 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

from npucall.limits import FRAME_BYTES, KIB, MAX_CALL_BYTES, MAX_MESSAGE_BYTES, MIB
from npucall_server.settings.server import ServerSettings

CONNECTION_CALLS = 64
"""Calls and streams of one connection at a time. The client makes more of them wait."""
LISTING_MESSAGES, HEALTH_MESSAGES = 6, 2
"""Messages of listings, and of health checks, that may be on their way in at a time."""
_ALWAYS_FOR_STREAMS, _ALWAYS_FOR_MESSAGES = 32 * MIB, 64 * MIB
"""Added to a share, so that a small server takes some calls at a time too."""
_MESSAGE_SHARE, _SHARE = 32, 8
_LONGEST_MESSAGE = 16 * MIB
_SHORTEST_MESSAGE = 4 * MAX_CALL_BYTES
_MOST_STREAMS, _MOST_MESSAGES = 64, 128
_LEAST = 4
_CONNECTION_SHARE = 256 * KIB
LEAST_CONNECTIONS, _MOST_CONNECTIONS = 256, 4096


@dataclass(frozen=True)
class Budget:
    """How much may be on its way in."""

    max_message_bytes: int
    chunk_bytes: int
    """The size of chunks, which travel in messages."""
    max_streams: int
    messages: int
    """Calls without a stream that may be on their way in at a time."""
    max_connections: int
    frame_bytes: int
    """Of a call in a frame, which takes the room of as many messages as it is long."""
    frame_connections: int
    """Each has a thread."""

    @classmethod
    def of(cls, settings: ServerSettings, descriptors: int) -> Budget:
        """The budget of the settings. What they leave out follows from the memory.

        ``descriptors``: the most connections that the process can hold.
        """
        memory = settings.memory_limit
        message = int(settings.max_message_bytes or _usual_message(memory))
        streams = settings.max_streams
        if streams is None:
            streams = _count(memory, _ALWAYS_FOR_STREAMS, message, _MOST_STREAMS)
        messages = _count(memory, _ALWAYS_FOR_MESSAGES, message, _MOST_MESSAGES)
        longer = 1 if settings.max_message_bytes else messages // _LEAST
        return cls(
            max_message_bytes=message,
            chunk_bytes=max(min(settings.chunk_bytes, message - FRAME_BYTES), 1),
            max_streams=streams,
            messages=messages,
            frame_bytes=min(longer * message, MAX_MESSAGE_BYTES),
            max_connections=min(
                settings.max_connections or _usual_connections(memory), descriptors
            ),
            frame_connections=min(settings.max_connections or LEAST_CONNECTIONS, descriptors),
        )


def _usual_connections(memory: int) -> int:
    return min(max(memory // _CONNECTION_SHARE, LEAST_CONNECTIONS), _MOST_CONNECTIONS)


def _usual_message(memory: int) -> int:
    return min(_LONGEST_MESSAGE, max(memory // _MESSAGE_SHARE, _SHORTEST_MESSAGE))


def _count(memory: int, always: int, each: int, most: int) -> int:
    """How many messages of ``each`` bytes fit in a share of the memory."""
    return min(max((memory // _SHARE + always) // each, _LEAST), most)
