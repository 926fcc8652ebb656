"""One connection of frames, from its hello to its end. One thread at a time reads it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from npucall.errors import CredentialInvalidError, MessageError, NpucallError, UnauthenticatedError
from npucall.wire import headers
from npucall_server.accounts.waiting import about_to_wait
from npucall_server.carriers.door import Outcome
from npucall_server.carriers.frames.frame_answers import FrameAnswers
from npucall_server.carriers.frames.frame_call import FrameCall
from npucall_server.carriers.frames.frame_memory import FrameMemory
from npucall_server.carriers.frames.frame_stream import run_stream
from npucall_server.carriers.frames.incoming import BUFFER_BYTES, IncomingFrames
from npucall_server.carriers.frames.outgoing import Outgoing
from npucall_server.carriers.frames.pulse import Pulse
from npucall_server.carriers.frames.tls_socket import TlsSocket
from npucall_server.carriers.frames.visitor import METHOD, FrameVisitor

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from npucall.wire.headers import Header
    from npucall_server.accounts.ledger import Entry
    from npucall_server.carriers.frames.frame_parts import FrameParts

_CALLS = (headers.EXECUTE, headers.PROGRAM)
_AT_A_TIME = 64
"""Frames of a connection before those of others have their turn."""


class FrameConnection(FrameVisitor):
    """Its life is to ``enter``, and then ``step`` by step. ``of_user``: see ``FrameVisitor``."""

    def __init__(
        self,
        connection: socket.socket | TlsSocket,
        peer: str,
        parts: FrameParts,
        of_user: Callable[[], str],
        holders: tuple[str, ...] = (),
    ) -> None:
        """``holders``: of memory that it shares; none if it is of another host."""
        self._outgoing = Outgoing(connection, parts.peers)
        super().__init__(peer, parts.door.guard, of_user, self._outgoing.cut)
        self._outgoing.belongs_to(self)
        self._incoming = IncomingFrames(connection, self, parts.peers, parts.budget.frame_bytes)
        self._pulse = Pulse(self._incoming, self._outgoing, parts.peers.clock)
        self._answers: FrameAnswers | None = None
        self._parts, self._channel = parts, connection
        self._memory = FrameMemory(parts.regions, parts.door, holders)
        self.came = parts.peers.clock()
        self.place: Entry | None = None
        """Once its caller is known."""
        self.has_left = False
        """Whether more may have been read than was taken, when nobody reads it."""

    def bytes_moved(self) -> int:
        """That have come: it is its message that is awaited."""
        return self._incoming.count

    def look(self) -> None:
        """Notices a peer that has gone or stands still, and a credential that may have ended."""
        try:
            is_busy = self._answers is not None and self._answers.is_busy
            if silence := self._pulse.look(is_busy=is_busy):
                self._parts.peers.cut(self, "a sign of life", silence)
        except EOFError:
            self.cancel()
        try:
            self._parts.door.guard.check(self.identity)
        except UnauthenticatedError as error:
            self.is_doubted = True
            if isinstance(error, CredentialInvalidError):  # it was revoked
                self._memory.give_back()

    def enter(self) -> bool:
        """Until its caller is known, and calls may come; False if it has ended."""
        for side in (self, self._outgoing):
            self._parts.peers.enter(side)
        try:
            self._enter()
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            self._end(error)
            return False
        return True

    def step(self, ended: Callable[[], object] = bool) -> bool:
        """Takes the frames that are there; waits for the first one, and for the rest of the last.

        False if it has ended; before its descriptor is given back it calls ``ended``.
        """
        incoming, answers, place = self._incoming, self._answers, self.place
        assert answers is not None  # noqa: S101  # it has entered
        assert place is not None  # noqa: S101  # likewise
        try:
            for _ in range(_AT_A_TIME):
                header = incoming.header()
                place.idle_since = None
                if header.kind in _CALLS:
                    self._begin(header, answers)
                else:
                    self._take(header, answers)
                self.has_left = not incoming.is_empty
                if not self.has_left or answers.is_full() or not incoming.has_frame:
                    answers.send()
                if not self.has_left:
                    return True
            answers.send()
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            ended()
            self._end(error)
            return False
        return True

    def fileno(self) -> int:
        """Its descriptor."""
        return self._channel.fileno()

    def _end(self, error: Exception) -> None:
        try:
            if self._answers is not None:
                self._answers.end()
            if isinstance(error, NpucallError) or not isinstance(error, OSError | EOFError):
                self._tell(error)  # else it has gone
        finally:
            self.cancel()
            self._memory.give_back()
            if self.place is not None:
                self.place.give_back()
            with self._incoming.reading:
                self._outgoing.close()
            self._incoming.end()
            self._parts.open.pop(self, None)

    def _enter(self) -> None:
        parts, incoming = self._parts, self._incoming
        if isinstance(self._channel, TlsSocket):
            self._channel.handshake()
            self.certificate = self._channel.certificate()
        self._outgoing.send(headers.HELLO, 0, parts.hello)
        if (first := incoming.header()).kind != headers.CREDENTIAL:
            raise MessageError(f"kind: expected a credential first, found {first.kind}")
        self.introduce(*self._credential(first))
        self.place = place = parts.places.take(self, 1, self.cancel)
        self._outgoing.send(headers.WELCOME)
        answers = FrameAnswers(incoming, self._outgoing, parts.threads, place, self.cancel)
        self._answers = answers
        answers.send()  # there is none, and the connection is idle
        self.has_left = not incoming.is_empty

    def _tell(self, error: Exception) -> None:
        """Ends it with an error."""
        outcome = Outcome(self._parts.door, METHOD, self)
        status = outcome.status(error)
        with suppress(OSError):
            self._outgoing.send(headers.ERROR, 0, status)
        outcome.end()

    # --- Frames -----------------------------------------------------------------------------------

    def _credential(self, header: Header) -> tuple[str, int]:
        """What it shows, and the number of the client's process."""
        most, size = headers.MOST_CREDENTIAL_BYTES, header.length - header.metadata
        if not 0 <= size <= most:
            raise MessageError(f"credential: expected at most {most} bytes, found {size}")
        self._incoming.skip(header.metadata)
        told = self._incoming.take(size)
        authorization, client = headers.authorization_in(told), headers.client_in(told)
        is_private = isinstance(self._channel, TlsSocket) or self.peer.startswith("unix:")
        if authorization and not is_private:
            raise MessageError("credential: expected none over TCP without TLS, found one")
        return authorization, client

    def _take(self, header: Header, answers: FrameAnswers) -> None:
        if header.kind == headers.CREDENTIAL:
            about_to_wait()
            self.renew(self._credential(header)[0])
        elif header.kind == headers.ALIVE:
            self._incoming.skip(header.length)
        elif header.kind == headers.CANCEL:
            self._incoming.skip(header.length)
            answers.cancel(header.call_id)
        elif header.kind == headers.STREAM:
            about_to_wait()
            self._incoming.most = self._parts.budget.max_message_bytes
            run_stream(header, self._incoming, self._outgoing, self, self._parts.streams)
            raise EOFError  # that was all of the connection
        elif header.kind == headers.MEMORY:
            answers.check_new(header.call_id)
            answers.send()
            about_to_wait()
            self._memory.share(header, self._incoming, self._outgoing, self)
        else:
            raise MessageError(f"kind: expected a frame that clients send, found {header.kind}")

    def _begin(self, header: Header, answers: FrameAnswers) -> None:
        """Reads a call, and begins it."""
        answers.check_new(header.call_id)
        size = self._incoming.size_of(header)
        beside = self._incoming.metadata(header) if header.metadata else {}
        call = FrameCall(header, beside, self, self._parts.door, self._parts.executions)
        try:
            place = self._make_room(call, size)
        except NpucallError as error:
            self._incoming.skip(size)
            call.refuse(error)
            answers.add(call)
            return
        self.arriving = place
        try:
            message = self._incoming.message(size)
        finally:
            self.arriving = None
            if place is not None:
                place.give_back()
        call.outcome.begun_ns = time.perf_counter_ns()
        try:
            call.admit(message, self.cancel, streams=self._parts.budget.max_streams > 0)
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            call.refuse(error)
            answers.add(call)
            return
        del message  # freed with the storages
        answers.run(call)

    def _make_room(self, call: FrameCall, size: int) -> Entry | None:
        """For a message that does not fit into the buffer."""
        if self.is_doubted:
            self.check()
        if size <= BUFFER_BYTES:
            return None
        messages = -(-size // self._parts.budget.max_message_bytes)
        place = self._parts.room.take(call.caller, messages, self.cancel)
        place.idle_since = self._parts.peers.clock()  # until its bytes are seen to move
        return place
