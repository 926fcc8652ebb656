"""Connections, a session and memory, which paths need; each is opened once for a server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from npucall_client.base import opened
from npucall_client.sending.loop import LoopSender
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session_link import SessionLink
from npucall_client.targets import LOCAL, POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.transport import Transport
    from npucall_client.shared.memory import SharedMemory
    from npucall_conformance.running.subject import Subject

T = TypeVar("T")

SECONDS = 15.0
"""The time for one call, including its repetitions."""
_LEAST_MEMORY = 1 << 16


def request_of(call: BoundCall) -> Request:
    """The request for a call, with the time that every path has."""
    return Request(SECONDS, name=call.operator, call=call, home=call.home, held=call.held)


class Resources:
    """Everything that paths open to one server. Each is opened when a path first needs it.

    Safe to use from several threads.
    """

    def __init__(self, subject: Subject) -> None:
        self._client = subject.client
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._open = ExitStack()
        self._memory: SharedMemory | None = None
        self.memory_lock = threading.Lock()
        self.silent: dict[str, int] = {}
        """By path, how many calls in a row had no answer."""

    def close(self) -> None:
        """Closes all of it."""
        self._open.close()

    @property
    def transport(self) -> Any:
        """The transport through which the server is judged: local, or of a channel."""
        return self._client._transport  # noqa: SLF001  # what Client hides

    @property
    def is_remote(self) -> bool:
        """Whether messages travel."""
        return isinstance(self.transport, ServerTransport)

    @property
    def is_local(self) -> bool:
        """Whether it is this process, not a library in place of a server."""
        return bool(self._settings.target == LOCAL)

    @property
    def info(self) -> pb.GetServerInfoResponse:
        """The server's description and limits. Raises NpucallError."""
        return self._once("info", self._client.server_info)

    @property
    def address(self) -> str:
        """HOST:PORT, unix:PATH or ``local:``."""
        return str(self._settings.target)

    @property
    def pipeline(self) -> Calls:
        """A pipeline that stays open. Raises NpucallError."""
        return self._once("pipeline", lambda: self._pipeline_of(self.transport))

    @property
    def home(self) -> SessionLink:
        """A session. Raises NpucallError."""
        return self._once("home", self._opened_home)

    @property
    def pool(self) -> Any:
        """A pool of which the server is the only member. Raises NpucallError."""
        return self._once("pool", self._opened_pool)

    @property
    def pool_pipeline(self) -> Calls:
        """A pipeline over that pool. Raises NpucallError."""
        return self._once("pool pipeline", lambda: self._pipeline_of(self.pool))

    @property
    def loop(self) -> Loop:
        """A client for asyncio. Raises NpucallError."""
        return self._once("loop", self._opened_loop)

    def memory(self, nbytes: int) -> SharedMemory:
        """Empty shared memory of at least so many bytes. Raises NpucallError.

        Hold ``memory_lock`` while you call this and use the memory.
        """
        memory = self._memory
        if memory is not None and memory.nbytes >= nbytes and memory.shared:
            memory.clear()
            return memory
        if memory is not None:
            memory.close()
        socket = self._settings.shared_memory_socket
        work = self.transport.shared(Request(SECONDS), max(nbytes, _LEAST_MEMORY), socket)
        taken: SharedMemory = finished(work)
        self._memory = taken
        self._open.callback(taken.close)
        return taken

    def _once(self, name: str, made: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._made:
                self._made[name] = made()
            kept: T = self._made[name]
            return kept

    def _pipeline_of(self, transport: Any) -> Calls:
        calls: Calls = transport.calls()
        self._open.callback(lambda: finished(calls.close()))
        return calls

    def _opened_home(self) -> SessionLink:
        transport = self.transport
        home = SessionLink(
            transport.sessions, self.address, 0.0, 0, SECONDS, refill=False,
            sender=transport.sender, remote=Remote,
        )  # fmt: skip
        finished(home.open())
        self._open.callback(lambda: finished(home.close()))
        return home

    def _opened_pool(self) -> Transport:
        settings = replace(self._settings, target=POOL + self.address)
        transport = finished(opened(settings, THREADS))
        self._open.callback(lambda: finished(transport.close()))
        return transport

    def _opened_loop(self) -> Loop:
        loop = Loop()
        try:
            soc = self.info.server.soc if self.is_local else self._settings.soc
            loop.open(replace(self._settings, soc=soc))
        except BaseException:
            loop.close()
            raise
        self._open.callback(loop.close)
        return loop

    @property
    def shared_memory_socket(self) -> str:
        """The socket's path here; empty if the server shares no memory. Raises NpucallError."""
        named = self.info.shared_memory_socket
        return self._settings.shared_memory_socket or named if named else ""

    @property
    def _settings(self) -> Any:
        return self._client._settings  # noqa: SLF001  # what Client hides


class Loop:
    """An event loop in a thread of its own, and a connection that belongs to it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="npucall-conform-loop", daemon=True
        )
        self._thread.start()
        self.transport: Any = None

    def open(self, settings: Any) -> None:
        """Connects. Raises NpucallError."""

        async def connected() -> Transport:
            return await opened(settings, LoopSender())

        self.transport = self.done(connected())

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Closes the connection, and ends the thread."""
        if self.transport is not None:
            self.done(self.transport.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
