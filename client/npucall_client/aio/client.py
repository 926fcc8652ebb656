"""``connect`` and ``Client`` for asyncio."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from npucall.wire.rpcs import GET_ACTIVITY, GET_SERVER_INFO, GET_USAGE, LIST_OPERATORS
from npucall_client import client
from npucall_client.aio.opening import Opening
from npucall_client.aio.pipeline import Pipeline
from npucall_client.aio.sessions import Remote, Session
from npucall_client.base import ClientBase, ReservedBase, opened, settings_of
from npucall_client.sending.loop import LoopSender
from npucall_client.sending.progress import on_loop
from npucall_client.sending.senders import shortly
from npucall_client.views import (
    OperatorInfo,
    ServerActivity,
    ServerInfo,
    ServerOperators,
    ServerUsage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from npucall.declare import Operator
    from npucall_client.calls.options import Plan, Progress, Result
    from npucall_client.shared.memory import SharedMemory

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")
R = TypeVar("R")


def _like(other: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives a function the parameters of another one."""

    def typed(function: Callable[..., R]) -> Callable[P, R]:
        return functools.wraps(other, assigned=())(function)

    return typed


@_like(client.connect)
def connect(*args: Any, **kwargs: Any) -> Opening[Client]:
    """Connects to a server or to a pool, by ``async with`` or by ``await``.

    Settings and errors are those of ``npucall_client.connect``. The client belongs to the event
    loop on which it was opened. Raises ValueError at once for an invalid setting.
    """
    given = inspect.signature(client.connect).bind(*args, **kwargs).arguments
    settings = settings_of(given.pop("options", None), given.pop("older", {}), **given)

    async def open_() -> Client:
        return Client(await opened(settings, LoopSender()), settings)

    return Opening(open_, Client.close)


class Client(ClientBase):
    """Calls operators, for the tasks of one event loop. Made by ``connect``.

    Methods, options and errors are those of ``npucall_client.Client``; you await the methods that
    wait there. If you cancel a task, that cancels the call that it waits for, on the server too.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the sessions, then the connection. Calls under way and later ones fail.

        They raise the CancelledError of ``npucall.errors``, which is not asyncio.CancelledError.
        """
        await self._close()

    @overload
    async def run(self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any: ...
    async def run(self, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Runs an operator: arrays in, an array out; a named tuple of arrays if it has several.

        Arrays must not be changed until it is done. See ``npucall_client.Client.run``.
        """
        return await shortly(self._calls.run(operator, args, kwargs))

    @overload
    async def execute(
        self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Result: ...
    @overload
    async def execute(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Result: ...
    async def execute(self, operator: Any, /, *args: Any, **kwargs: Any) -> Result:
        """Runs as ``run``, and returns everything: outputs, variant, timings, warnings, server."""
        return await shortly(self._calls.execute(operator, args, kwargs))

    @overload
    async def plan(
        self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Plan: ...
    @overload
    async def plan(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Plan: ...
    async def plan(self, operator: Any, /, *args: Any, **kwargs: Any) -> Plan:
        """Checks a call as ``run`` would, without sending or computing data."""
        return await shortly(self._calls.plan(operator, args, kwargs))

    def pipeline(self) -> Pipeline:
        """A stream for many calls, several in flight at a time, with the options of this client.

        ``async with client.pipeline() as p: calls = [await p.submit(operator, ...) for ...]``, then
        ``await`` each of them.
        """
        transport = self._calls.open()
        return Pipeline(transport.calls(), self._calls.bind_ready, transport.sender)

    def session(
        self, *, lease: float | None = None, budget: int | None = None, refill: bool = False
    ) -> Opening[Session]:
        """Arrays that stay on the server, to be computed with many times.

        ``async with client.session() as s: x = await s.put(array)``, then ``await s.run(...)``. See
        ``npucall_client.Client.session``.
        """

        async def open_() -> Session:
            return Session(await self._home(Remote, lease, budget, refill=refill), self._calls)

        return Opening(open_, Session.close)

    def shared(self, nbytes: int) -> Opening[SharedMemory]:
        """Memory that a server on this host sees too, so that arrays in it do not travel.

        ``async with client.shared(2**30) as memory: x = memory.array(x)``. See
        ``npucall_client.Client.shared``.
        """
        return Opening(lambda: self._memory(nbytes), _closed)

    def reserve(self, seconds: float, *, wait: float = 0.0, count: int = 1) -> Opening[Reserved]:
        """Reserves the device, and returns a client of the same connection that has it alone.

        ``async with client.reserve(60) as quiet:``. See ``npucall_client.Client.reserve``.
        """

        async def open_() -> Reserved:
            return Reserved(self, await self._renewal(seconds, wait, count))

        return Opening(open_, Reserved.close)

    async def release_reservation(self) -> None:
        """Ends any reservation. Raises PermissionDeniedError unless you are an admin."""
        await self._calls.open().release(self._calls.request(), "")

    def options(  # noqa: PLR0913  # one an option
        self,
        *,
        timeout: float | None = None,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        keep_layout: bool | None = None,
        progress: Progress | None = None,
        wait: bool | None = None,
    ) -> Client:
        """A client of the same connection with these options: see ``npucall_client.Client``.

        ``progress`` is called on the event loop.
        """
        calls = self._calls.having(
            wait,
            timeout=timeout,
            variant=variant,
            outputs=outputs,
            request_id=request_id,
            keep_layout=keep_layout,
            progress=on_loop(progress),
        )
        return Client(self._transport, self._settings, calls)

    async def operators(self) -> ServerOperators:
        """What the server lists."""
        return ServerOperators(await self._calls.answer(LIST_OPERATORS))

    async def operator(self, name: str, variant: str = "") -> OperatorInfo:
        """One operator of the server. Raises OperatorUnknownError."""
        return OperatorInfo(await self._calls.operator(name, variant))

    async def info(self) -> ServerInfo:
        """What the server is and allows."""
        return ServerInfo(await self._calls.answer(GET_SERVER_INFO))

    server_info = info
    """Its name in 0.1."""

    async def carrier(self) -> str:
        """How calls travel now: in ``frames``, over ``grpc``, or ``local`` if they do not."""
        return await self._calls.open().carrier(self._calls.request())

    async def usage(self, last_seconds: float = 0) -> ServerUsage:
        """What callers used in the last seconds (0: all that the server knows)."""
        asked = GET_USAGE.request(last_seconds=last_seconds)
        return ServerUsage(await self._calls.answer(GET_USAGE, asked))

    async def activity(self) -> ServerActivity:
        """Who uses the server now: your own line, and the sums."""
        return ServerActivity(await self._calls.answer(GET_ACTIVITY))


class Reserved(ReservedBase, Client):
    """A client that has the device alone, until it is closed. Made by ``Client.reserve``."""

    async def close(self) -> None:
        """Releases the device. The client that reserved it stays open."""
        await self._release()


async def _closed(memory: SharedMemory) -> None:
    memory.close()
