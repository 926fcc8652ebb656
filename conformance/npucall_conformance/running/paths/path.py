"""``Path``, a call that takes it, and what paths need, which is opened once for a server."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.errors import NpucallError
from npucall.places import Place
from npucall.wire.messages import Response
from npucall.wire.replies import Timings
from npucall_client.base import opened
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.pipeline import Calls
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session_link import SessionLink
from npucall_client.shared.memory import SharedMemory
from npucall_client.targets import LOCAL
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.running.subject import Subject
from npucall_conformance.wire import AnswerOrError, in_message, received, unreadable

if TYPE_CHECKING:
    from npucall.v1 import operator_service_pb2 as pb

Fetch: TypeAlias = Callable[[str, Place], bytes]


class OutOfReachError(Exception):
    """This call cannot take a path; the text says why."""


@dataclass(frozen=True, eq=False)
class PathCall:
    """A call, and its answer by the usual path, with which all other paths are compared."""

    made: MadeCall
    answer: AnswerOrError
    unsent: tuple[str, ...] = ()
    """Inputs whose storage is not sent."""
    takes: tuple[str, str] | None = None
    """An input, and the output of the first sample from which it is taken. Only programs have such
    calls."""

    def request(self) -> BoundCall:
        """A new copy of the call, since sending a call may change it."""
        return self.made.request(self.unsent)

    @property
    def is_refused(self) -> bool:
        """Whether its answer is an error."""
        return isinstance(self.answer, NpucallError)

    @property
    def output_bytes(self) -> Mapping[str, int]:
        """Sizes of the storages of its outputs, in bytes; empty if the call was refused."""
        if isinstance(self.answer, NpucallError):
            return {}
        return {name: len(data) for name, data in self.answer.storages.items()}


@dataclass(frozen=True)
class Path:
    """A way by which calls travel."""

    name: str
    send: Callable[[Resources, Sequence[PathCall]], Sequence[AnswerOrError]]
    """Sends the calls and returns their outcomes. Raises an error if none can be sent."""
    needs: str
    """Words of ``NEEDS``."""
    required: bool = True
    """Whether a server without it is wrong."""
    timed: bool = True
    """Whether its answers say where the server's time went."""
    links: bool = False
    """Whether a call may take the output of another call as an input."""
    long: bool = True
    """Whether long calls take the path too."""
    alone: bool = False
    """Whether calls on the path cannot affect each other, so that one call is enough."""


def ended(work: Awaitable[Response], fetch: Fetch = in_message) -> AnswerOrError:
    """How a call ends: its answer, or the error that came instead. Raises OutOfReachError."""
    start = perf_counter_ns()

    async def awaited() -> Response:
        return await work

    try:
        response: Response | Exception = finished(awaited())
    except OutOfReachError:
        raise
    except Exception as error:  # noqa: BLE001  # the call's own
        response = error
    return outcome_of(response, perf_counter_ns() - start, fetch)


def outcome_of(
    ended: Response | Exception, total_ns: int, fetch: Fetch = in_message
) -> AnswerOrError:
    """How a call ended; ``fetch`` as for ``received``."""
    if isinstance(ended, Exception):
        return ended if isinstance(ended, NpucallError) else unreadable(ended)
    try:
        return received(ended, total_ns, fetch)
    except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
        return unreadable(error)


_CLOCKS = 0.01
"""By how much two clocks may differ in speed."""


def of_timings(timings: Timings, total_ns: int, *, computed: bool) -> list[str]:
    """What is wrong with the times that a server tells.

    ``total_ns``: the time of the whole call as the client measured it; ``computed``: whether there
    was anything to compute.
    """
    told = sum(timings) - min(timings.copy_in_ns, timings.plan_ns)  # an NPU does both at once
    problems = []
    if told > total_ns * (1 + _CLOCKS):
        parts = ", ".join(f"{n} {ns}" for n, ns in timings._asdict().items() if ns)
        problems.append(f"expected times within {total_ns} ns, found {parts}, {told} together")
    if min(timings) < 0 or (computed and timings.run_ns <= 0):
        problems.append(f"expected times of 0 or more and run_ns above 0, found {timings}")
    return problems


SECONDS = 15.0
"""The time for one call, including its repetitions."""
_LEAST_MEMORY = 1 << 16


def request_of(call: BoundCall) -> Request:
    """The request for a call, with the time that every path has."""
    return Request(SECONDS, name=call.operator, call=call, home=call.home, held=call.held)


class Resources:
    """Everything that paths open to one server, when a path first needs it.

    The properties raise NpucallError.
    """

    def __init__(self, subject: Subject) -> None:
        self._client = subject.client
        self._settings: Any = subject.client._settings  # noqa: SLF001  # what Client hides
        self._open = ExitStack()
        self._memory: SharedMemory | None = None
        self.silent: dict[str, int] = {}
        """By path, how many calls in a row had no answer."""
        self.transport: Any = subject.client._transport  # noqa: SLF001  # likewise
        """The transport through which the server is judged: local, or of a channel."""
        self.is_remote = isinstance(self.transport, ServerTransport)
        """Messages travel."""
        self.keeps = self.is_remote or str(self._settings.target) == LOCAL
        """It is a server or this process, not a library in place of a server."""

    def close(self) -> None:
        """Closes all of it."""
        self._open.close()

    @cached_property
    def info(self) -> pb.GetServerInfoResponse:
        """The server's description and limits."""
        return self._client.server_info()

    @cached_property
    def home(self) -> SessionLink:
        """A session."""
        transport = self.transport
        home = SessionLink(
            transport.sessions, str(self._settings.target), 0.0, 0, SECONDS, refill=False,
            sender=transport.sender, remote=Remote,
        )  # fmt: skip
        finished(home.open())
        self._open.callback(lambda: finished(home.close()))
        return home

    @cached_property
    def pipeline(self) -> Calls:
        """A pipeline that stays open, on a stream of gRPC: in frames it is calls like others."""
        transport = self.transport
        if self.is_remote:
            settings = self._settings.model_copy(update={"carrier": "grpc"})
            transport = finished(opened(settings, THREADS))
            self._open.callback(lambda: finished(transport.close()))
        pipeline: Calls = transport.calls()
        self._open.callback(lambda: finished(pipeline.close()))
        return pipeline

    def request(self) -> Request:
        """A request within the session."""
        return Request(SECONDS, home=self.home)

    def memory(self, nbytes: int) -> SharedMemory:
        """Empty shared memory of at least so many bytes."""
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


NEEDS: dict[str, tuple[Callable[[Resources], Any], str]] = {
    "messages": (lambda r: r.is_remote, "nothing travels here"),
    "linux": (lambda _: sys.platform == "linux", "memory is shared on Linux alone"),
    "keeping": (lambda r: r.keeps, "nobody keeps anything here"),
    "streams": (
        lambda r: not r.is_remote or r.info.limits.stream_window, "the server has no streams"
    ),
    "early": (lambda r: r.info.limits.early_outputs, "the server sends no outputs early"),
    "handles": (
        lambda r: not r.is_remote
        or (r.info.limits.handle_memory and r.info.limits.session_lease_seconds),
        "the server holds no handles",
    ),
    "programs": (lambda r: r.info.limits.program_steps, "the server runs no programs"),
    "digests": (lambda r: r.info.limits.digest_cache_bytes, "the server remembers no digests"),
    "memory": (lambda r: r.shared_memory_socket, "the server shares no memory"),
    "socket": (
        lambda r: FilePath(r.shared_memory_socket).exists(), "the socket is not on this host"
    ),
}  # fmt: skip
"""What paths need, and the reason where it is not there."""
OF_HERE = ("messages", "linux", "keeping")
"""Needs about which a server can do nothing."""


def lacking(resources: Resources, needs: str) -> tuple[str, str]:
    """The first of these words of ``NEEDS`` that does not hold, and why; empty if all hold."""
    for name in needs.split():
        holds, reason = NEEDS[name]
        if not holds(resources):
            return name, reason
    return "", ""
