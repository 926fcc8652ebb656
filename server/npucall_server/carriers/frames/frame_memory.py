"""Memory that a server shares with the peer of one connection of frames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from npucall.errors import MessageError, NpucallError
from npucall.wire.headers import ERROR, MEMORY, MOST_REQUEST_BYTES, join_memory, memory_request
from npucall_server.carriers.door import Outcome

if TYPE_CHECKING:
    from npucall.wire.headers import Header
    from npucall_server.carriers.door import Door
    from npucall_server.carriers.frames.incoming import IncomingFrames
    from npucall_server.carriers.frames.outgoing import Outgoing
    from npucall_server.carriers.frames.visitor import FrameVisitor
    from npucall_server.shared.regions import Regions

_METHOD = "Memory"
"""The log has this where a peer gets none."""


class FrameMemory:
    """The peer's until ``give_back``. ``holders``: who it counts for; none on another host."""

    def __init__(self, regions: Regions, door: Door, holders: tuple[str, ...]) -> None:
        self._regions, self._door, self._holders = regions, door, holders
        self._names: list[bytes] = []

    def share(
        self, header: Header, incoming: IncomingFrames, outgoing: Outgoing, peer: FrameVisitor
    ) -> None:
        """Answers a frame that asks for memory: with memory, or says why not."""
        if header.length > MOST_REQUEST_BYTES:
            raise MessageError(
                f"length: expected at most {MOST_REQUEST_BYTES} bytes, found {header.length}"
            )
        if header.metadata:
            raise MessageError(f"metadata: expected 0 bytes, found {header.metadata}")
        request, outcome = incoming.take(header.length), Outcome(self._door, _METHOD, peer)
        try:
            name, descriptor = self._made(request, peer)
        except NpucallError as error:
            outgoing.send(ERROR, header.call_id, outcome.status(error))
            outcome.end()
            return
        try:
            outgoing.send(MEMORY, header.call_id, join_memory(name), descriptor)
        finally:
            os.close(descriptor)

    def give_back(self) -> None:
        """No call may name it any more; those that run keep it until they end."""
        while self._names:
            self._regions.give_back(self._names.pop())

    def _made(self, request: bytes, peer: FrameVisitor) -> tuple[bytes, int]:
        """The id of new memory, and its descriptor."""
        peer.check()
        if not self._holders:
            raise MessageError("kind: expected memory to be shared on one host only")
        if (asked := memory_request(request)).credential:
            raise MessageError("credential: expected a frame CREDENTIAL for that")
        whose, holders = None, self._holders
        if peer.identity.tenant:
            whose, holders = peer.identity, (*holders, f"one caller {peer.identity.person}")
        name, descriptor = self._regions.create(asked.bytes, holders, whose)
        self._names.append(name)
        return name, descriptor
