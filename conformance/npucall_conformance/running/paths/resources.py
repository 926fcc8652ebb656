"""Connections, a session and memory, which paths need; each is opened once for a server."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

from npucall_client.base import opened
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.loop import LoopSender
from npucall_client.sending.pipeline import Calls
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session_link import SessionLink
from npucall_client.shared.memory import SharedMemory
from npucall_client.targets import LOCAL, POOL
from npucall_conformance.running.subject import Subject

if TYPE_CHECKING:
    from npucall.v1 import operator_service_pb2 as pb

T = TypeVar("T")

SECONDS = 15.0
"""The time for one call, including its repetitions."""
_LEAST_MEMORY = 1 << 16


def request_of(call: BoundCall) -> Request:
    """The request for a call, with the time that every path has."""
    return Request(SECONDS, name=call.operator, call=call, home=call.home, held=call.held)


@dataclass(frozen=True)
class Route:
    """A connection, and who awaits what is sent on it: this thread, or an event loop."""

    transport: Any
    loop: asyncio.AbstractEventLoop | None = None

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result."""
        if self.loop is None:
            return finished(work)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def each(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """The results of coroutines: one after the other, or at once in tasks of a loop."""
        if self.loop is None:
            return [finished(work) for work in works]

        async def all_of_them() -> list[T]:
            return list(await asyncio.gather(*works))

        return self.done(all_of_them())


class Resources:
    """Everything that paths open to one server. Each is opened when a path first needs it.

    Safe to use from several threads. The properties raise NpucallError.
    """

    def __init__(self, subject: Subject) -> None:
        self._client = subject.client
        self._settings: Any = subject.client._settings  # noqa: SLF001  # what Client hides
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._open = ExitStack()
        self._memory: SharedMemory | None = None
        self.memory_lock = threading.Lock()
        self.silent: dict[str, int] = {}
        """By path, how many calls in a row had no answer."""
        self.transport: Any = subject.client._transport  # noqa: SLF001  # likewise
        """The transport through which the server is judged: local, or of a channel."""
        self.server = Route(self.transport)
        self.is_remote = isinstance(self.transport, ServerTransport)
        """Messages travel."""
        self.address = str(self._settings.target)
        """HOST:PORT, unix:PATH or ``local:``."""
        self.is_local = self.address == LOCAL
        """It is this process, not a library in place of a server."""

    def close(self) -> None:
        """Closes all of it."""
        self._open.close()

    @property
    def info(self) -> pb.GetServerInfoResponse:
        """The server's description and limits."""
        return self._once("info", self._client.server_info)

    @property
    def home(self) -> SessionLink:
        """A session."""
        return self._once("home", self._opened_home)

    @property
    def pool(self) -> Route:
        """A pool of which the server is the only member."""
        settings = self._settings.model_copy(update={"target": POOL + self.address})
        return self._once("pool", lambda: self._kept(Route(finished(opened(settings, THREADS)))))

    @property
    def loop(self) -> Route:
        """A client for asyncio."""
        return self._once("loop", self._opened_loop)

    def pipeline(self, name: str) -> tuple[Route, Calls]:
        """The route of that name, and a pipeline on it that stays open."""
        route: Route = getattr(self, name)

        async def calls() -> Calls:
            pipeline: Calls = route.transport.calls()
            return pipeline

        def made() -> Calls:
            pipeline = route.done(calls())
            self._open.callback(lambda: route.done(pipeline.close()))
            return pipeline

        return route, self._once(f"{name} pipeline", made)

    def memory(self, nbytes: int) -> SharedMemory:
        """Empty shared memory of at least so many bytes.

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

    @property
    def shared_memory_socket(self) -> str:
        """The socket's path here; empty if the server shares no memory."""
        named = self.info.shared_memory_socket
        return self._settings.shared_memory_socket or named if named else ""

    def _once(self, name: str, made: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._made:
                self._made[name] = made()
            kept: T = self._made[name]
            return kept

    def _kept(self, route: Route) -> Route:
        self._open.callback(lambda: route.done(route.transport.close()))
        return route

    def _opened_home(self) -> SessionLink:
        transport = self.transport
        home = SessionLink(
            transport.sessions, self.address, 0.0, 0, SECONDS, refill=False,
            sender=transport.sender, remote=Remote,
        )  # fmt: skip
        finished(home.open())
        self._open.callback(lambda: finished(home.close()))
        return home

    def _opened_loop(self) -> Route:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="npucall-conform-loop", daemon=True)
        thread.start()
        self._open.callback(loop.close)
        self._open.callback(thread.join)
        self._open.callback(loop.call_soon_threadsafe, loop.stop)
        soc = self.info.server.soc if self.is_local else self._settings.soc

        async def connected() -> Any:
            return await opened(self._settings.model_copy(update={"soc": soc}), LoopSender())

        return self._kept(Route(Route(None, loop).done(connected()), loop))


def lacking(resources: Resources, needs: str) -> str:
    """Why something of these words of ``NEEDS`` is not there; empty if all is."""
    for name in needs.split():
        holds, reason = NEEDS[name]
        if not holds(resources):
            return reason.format(socket=resources.shared_memory_socket) if "{" in reason else reason
    return ""


NEEDS: dict[str, tuple[Callable[[Resources], Any], str]] = {
    "messages": (lambda r: r.is_remote, "nothing travels here"),
    "linux": (lambda _: sys.platform == "linux", "memory is shared on Linux alone"),
    "keeping": (lambda r: r.is_remote or r.is_local, "nobody keeps anything here"),
    "asyncio": (lambda r: r.is_remote or r.is_local, "asyncio's client does not reach it"),
    "ports": (
        lambda r: not r.address.startswith("unix"), "no pool has members on Unix sockets"
    ),
    "streams": (
        lambda r: not r.is_remote or r.info.limits.stream_window, "the server has no streams"
    ),
    "early": (lambda r: r.info.limits.early_outputs, "the server sends no outputs early"),
    "handles": (
        lambda r: r.is_local
        or (r.info.limits.handle_memory and r.info.limits.session_lease_seconds),
        "the server holds no handles",
    ),
    "programs": (lambda r: r.info.limits.program_steps, "the server runs no programs"),
    "digests": (lambda r: r.info.limits.digest_cache_bytes, "the server remembers no digests"),
    "memory": (lambda r: r.shared_memory_socket, "the server shares no memory"),
    "socket": (lambda r: FilePath(r.shared_memory_socket).exists(), "{socket} is not on this host"),
}  # fmt: skip
"""What paths need, and the reason where it is not there."""
