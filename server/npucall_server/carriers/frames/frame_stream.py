"""A connection of frames that is one ExecuteStream."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from npucall.errors import MessageError, NpucallError
from npucall.limits import FRAMES_PER_MESSAGE
from npucall.wire import headers, status
from npucall.wire.rpcs import EXECUTE_STREAM
from npucall_server.access.callers import went_away
from npucall_server.telemetry.log import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.wire.headers import Header
    from npucall_server.carriers.door import Exchange
    from npucall_server.carriers.frames.incoming import IncomingFrames
    from npucall_server.carriers.frames.outgoing import Outgoing
    from npucall_server.carriers.frames.visitor import FrameVisitor


def run_stream(
    first: Header,
    incoming: IncomingFrames,
    outgoing: Outgoing,
    caller: FrameVisitor,
    exchange: Exchange,
) -> None:
    """From its first frame to its end; this thread sends, another one reads.

    Raises what ends it otherwise.
    """
    incoming.size_of(first)
    caller.metadata |= incoming.metadata(first)
    caller.metadata[status.FRAMES_PER_MESSAGE] = str(FRAMES_PER_MESSAGE)
    messages = _messages(first, incoming, caller)
    record = Record(EXECUTE_STREAM.name, "", caller.peer)
    with closing(exchange(messages, record, caller)) as answers:
        for answer in answers:
            outgoing.send(headers.STREAM, 0, answer)
    outgoing.send(headers.STREAM)


def _messages(header: Header, incoming: IncomingFrames, caller: FrameVisitor) -> Iterator[bytes]:
    """The messages of the caller. Raises CancelledError if it goes."""
    size = header.length - header.metadata
    try:
        while size:
            yield incoming.message(size)
            while (header := incoming.header()).kind == headers.ALIVE:
                incoming.skip(header.length)
            if header.kind != headers.STREAM or header.metadata:
                raise MessageError(f"kind: expected a frame of the stream, found {header.kind}")
            size = incoming.size_of(header)
    except NpucallError:
        raise
    except (OSError, EOFError):
        caller.cancel()
        raise went_away() from None
