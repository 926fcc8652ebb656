"""What a server allows, and how a call travels because of that. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import TooLargeError
from npucall.limits import CHUNK_BYTES, FRAME_BYTES, MAX_CHUNK_BYTES, MAX_MESSAGE_BYTES, MIB
from npucall_client.sending.transfer import held_bytes, is_chunked, size_of, travelling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.calls.arguments import BoundCall

_STREAM_FROM = 4 * MIB
"""Bytes of arrays from which a call travels in chunks over gRPC, if the caller does not say."""
CHECKED_FROM = 1 << 20
"""A request of so many bytes or more is checked against the server's limits before it is sent."""


class ServerLimits:
    """``GetServerInfoResponse.limits``, where 0 is no limit, and the client's ``stream_from``."""

    def __init__(self, limits: pb.Limits, stream_from: int | None) -> None:
        self._memory = limits.memory_limit
        self._message = min(limits.max_message_bytes or MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
        self._stream_from = _STREAM_FROM if stream_from is None else stream_from
        self._split_from = self._message if stream_from is None else stream_from
        """The same for a call in frames, which needs no more memory in one message."""
        self.stream_window: int = limits.stream_window
        """Calls of one stream that may be without an answer; 0: the server has no streams."""
        self.frames_per_message: int = limits.frames_per_message
        """Frames that it takes in one message of a stream; 0: one."""
        wish = limits.chunk_bytes or CHUNK_BYTES
        self.chunk_bytes: int = min(wish, MAX_CHUNK_BYTES, max(1, self._message - FRAME_BYTES))
        """The server's wish, if its messages and the contract allow it; else what they allow."""
        self.chunks_beside_places: bool = limits.chunks_beside_places
        """Whether a call may send some storages in chunks and have others in places."""
        self.early_outputs: bool = limits.early_outputs
        """Whether outputs of a large call may come while its inputs are still sent."""
        self.has_sessions: bool = limits.handle_memory > 0 and limits.session_lease_seconds > 0
        self.program_steps: int = limits.program_steps
        """Most steps of a program; 0: the server has no programs."""
        self.remembers: bool = limits.digest_cache_bytes > 0
        """Whether the server keeps bytes by their digests."""

    def travels_in_chunks(self, call: BoundCall, *, in_frames: bool = False) -> bool:
        """Whether a call gets a stream of its own.

        It also gets one if only the answer may be large, since the server has the inputs already;
        then its request does not travel in chunks.
        """
        if not self.stream_window:
            return False
        most = self._split_from if in_frames else self._stream_from
        form = call.form
        if call.home is None and call.placement is None:
            if form is not None and form.request is not None:
                size, length = form.request.data_bytes, form.request.length
            else:
                size = sum(map(len, call.storage.values()))
                length = len(call.call) + FRAME_BYTES * (1 + len(call.storage)) + size
            return size >= most or length > self._message
        size = size_of(call)
        if size >= most or self._is_too_long(call, size):
            return True
        if call.kept or is_chunked(call, self.chunk_bytes):
            return False
        if call.home is not None and size + held_bytes(call) >= most:
            return True
        return call.placement is not None and self._is_too_long(
            call, sum(map(len, call.data.values()))
        )

    def check_message(self, call: BoundCall, size: int, in_frames: int) -> None:
        """Raises TooLargeError for a message of so many bytes that the server would refuse.

        ``in_frames``: so many bytes it takes there; 0: the message travels over gRPC.
        """
        most = max(self._message, in_frames)
        room = {"max_message_bytes": most, "memory_limit": self._memory or size}
        setting, limit = min(room.items(), key=lambda item: item[1])
        if size > limit:
            raise _too_large(call, size, limit, setting)

    def check_room(self, call: BoundCall) -> None:
        """A call in chunks may be larger than a message, but not than the server's memory."""
        size = size_of(call)
        if self._memory and size > self._memory:
            raise _too_large(call, size, self._memory, "memory_limit")

    def check_program(self, steps: Sequence[BoundCall], size: int, in_frames: int) -> None:
        """Raises TooLargeError for a program of so many bytes that the server would refuse."""
        if size > max(self._message, in_frames):
            self.check_message(max(steps, key=size_of), size, in_frames)

    def _is_too_long(self, call: BoundCall, size: int) -> bool:
        """Whether a call of so many bytes of storage has no room in a message."""
        message = size + len(call.call) + FRAME_BYTES * (1 + len(call.storage))
        return message > self._message


def _too_large(call: BoundCall, size: int, limit: int, setting: str) -> TooLargeError:
    tensors = travelling(call).items()
    name, data = max(tensors, key=lambda item: len(item[1]), default=("", b""))
    largest = f"; the largest tensor is {name} with {len(data)}" if name else ""
    return TooLargeError(
        f"request: expected at most {limit} bytes (setting {setting} of the server), found "
        f"{size}{largest}",
        parameter=name or (),
        limit=str(limit),
        setting=setting,
    )
