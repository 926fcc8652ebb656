"""An answer that begins before its call has run: it sends outputs as they are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Self

from npucall.exchange import Sending
from npucall.wire.frames import join_chunk, join_resolved
from npucall_server.calls.arrivals import Computed


class EarlyFrames:
    """An iterator over the frames that are ready. It goes on when there are more.

    One thread at a time adds frames, and the thread of answers takes them. Outputs are only copied
    when a frame is taken.
    """

    def __init__(self, call_id: int, reply: bytes, chunk_bytes: int) -> None:
        self._call_id, self._chunk_bytes = call_id, chunk_bytes
        self._reply = reply
        self._parts: deque[Iterator[bytes]] = deque()
        """None of them is empty."""
        self._rounds = 0
        self._failed = False

    @property
    def has_more(self) -> bool:
        """Whether there is a frame now."""
        return bool(self._parts)

    @property
    def is_begun(self) -> bool:
        """Whether outputs are sent before the call has run."""
        return self._rounds > 0

    def add(self, computed: Computed) -> bool:
        """Adds what is computed. Answers whether that gives a chunk, and so a frame."""
        sending = Sending(computed.outputs)
        stop = sending.rounds(self._chunk_bytes, computed.done, computed.of)
        first, self._rounds = self._rounds, stop
        if first == stop:
            return False
        if not first:
            self._parts.append(iter([join_resolved(self._call_id, self._reply)]))
        self._parts.append(self._chunks(sending, first, stop))
        return True

    def end(self, frames: Iterator[bytes], *, failed: bool = False) -> None:
        """Adds the last frames. ``failed``: earlier frames that were not taken are not sent."""
        self._parts.append(frames)
        self._failed = failed

    def _chunks(self, sending: Sending, first: int, stop: int) -> Iterator[bytes]:
        for chunk in sending.chunks(self._chunk_bytes, first, stop):
            if self._failed:
                return
            yield join_chunk(self._call_id, chunk)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Raises StopIteration where there is none now."""
        while self._parts:
            frame = next(self._parts[0], None)
            if frame is not None:
                return frame
            self._parts.popleft()
        raise StopIteration
