"""Frames between a program and ``npucall exec``: with the header of ``npucall.wire``.

Both ends are of one version and on one machine. A program says HELLO with the version; the first
answer to a process brings the memory of its device as a descriptor, and as text its bytes, those of
its addresses, 1 or 0 for strict, 1 or 0 for a server that keeps tensors, and the SoC. PLAN has the
text of ``launches``; LAUNCH 1 or 0 for saturation, the number of tensors, the offset of each in
that memory, and the text. WAIT is answered when all launches before it on its connection are over,
with the first failure of them. REACH has an offset and a number of bytes that the host is about to
read, and 1 if it writes them: such a program asks first. LAUNCH and FOUND have no answer.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import TYPE_CHECKING

from npucall.wire.headers import HEADER_BYTES, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedIOBase

HELLO, PLAN, LAUNCH, WAIT, REACH, FOUND, ANSWER = range(1, 8)
PROTOCOL = (2).to_bytes(4, "little")
NOWHERE = 2**64 - 1
"""The offset of a tensor without elements."""
_MOST_BYTES = 16 * 2**20
_NUMBERS = Struct("<iIQ")
_LAUNCH = Struct("<II")
_REACH = Struct("<3Q")


def receive(connection: BufferedIOBase) -> tuple[int, bytes] | None:
    """The kind and the bytes of a frame; None at the end, and for what is no frame."""
    start = connection.read(HEADER_BYTES)
    if len(start) < HEADER_BYTES:
        return None
    header = unpack(start)
    if header.length > _MOST_BYTES:
        return None
    payload = connection.read(header.length)
    return None if len(payload) < header.length else (header.kind, payload)


def answer(  # noqa: PLR0913  # what an answer has
    connection: socket.socket,
    text: str = "",
    *,
    status: int = 0,
    launches: bool = True,
    workspace: int = 0,
    descriptors: Sequence[int] = (),
) -> None:
    """Sends an answer."""
    payload = _NUMBERS.pack(status, launches, workspace) + text.encode()
    frame = pack(ANSWER, len(payload)) + payload
    sent = socket.send_fds(connection, [frame], descriptors) if descriptors else 0
    connection.sendall(frame[sent:])


def launch_in(payload: bytes) -> tuple[bool, tuple[int, ...], str]:
    """Whether it saturates, the offsets of its tensors, and the call. Raises ValueError."""
    if len(payload) < _LAUNCH.size:
        raise ValueError("launch: expected its numbers, found less")
    saturates, count = _LAUNCH.unpack_from(payload)
    end = _LAUNCH.size + 8 * count
    if end > len(payload):
        raise ValueError(f"launch: expected {count} offsets, found less")
    offsets = Struct(f"<{count}Q").unpack_from(payload, _LAUNCH.size)
    return saturates == 1, offsets, payload[end:].decode()


def reach_in(payload: bytes) -> tuple[int, int, bool]:
    """The first byte, the end, and whether it writes. Raises ValueError."""
    if len(payload) != _REACH.size:
        raise ValueError(f"reach: expected {_REACH.size} bytes, found {len(payload)}")
    begin, size, writes = _REACH.unpack(payload)
    return begin, begin + size, writes == 1
