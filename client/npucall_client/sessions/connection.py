"""A client's connection as calls, pipelines and sessions use it: arguments in, answers out."""

from __future__ import annotations

import threading
import weakref
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.errors import NpucallError
from npucall_client.calls.hints import add_hint
from npucall_client.calls.options import plan_of, result_of, value_of
from npucall_client.sessions.checks import Checks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Binding, Options, Plan, Result
    from npucall_client.sending.session_transport import SessionTransport
    from npucall_client.sending.transport import Transport
    from npucall_client.sessions.home import Home


class Shared:
    """What the clients of one connection share: their sessions, and the rules of the server."""

    def __init__(self) -> None:
        self.closed = False
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._checks: Checks | None = None

    def add(self, home: Home) -> None:
        """A session was opened."""
        with self._lock:
            self._homes.add(home)

    def __contains__(self, home: object) -> bool:
        return home in self._homes

    async def checks(self, made: Callable[[], Awaitable[Checks]]) -> Checks:
        """The rules of the server, asked for once."""
        if self._checks is None:
            self._checks = await made()
        return self._checks

    async def close(self) -> None:
        """Ends all sessions, and the connection."""
        with self._lock:
            homes = [] if self.closed else list(self._homes)
            self.closed = True
        for home in homes:
            await home.close()


class Connection:
    """``transport``: returns the transport for calls, and raises once the client is closed."""

    def __init__(
        self, transport: Callable[[], Transport], binding: Binding, shared: Shared
    ) -> None:
        self._transport = transport
        self._binding = binding
        self._shared = shared

    @property
    def options(self) -> Options:
        """What goes with a call in addition to its arguments."""
        return self._binding.options

    @property
    def sessions(self) -> SessionTransport:
        """The transport that keeps the handles."""
        return self._transport().sessions

    async def checks(self) -> Checks:
        """The rules of the server, in this process."""
        return await self._shared.checks(self._checks)

    def having(self, **options: Any) -> Connection:
        """The same with other options; None means not given."""
        return Connection(self._transport, self._binding.having(**options), self._shared)

    async def bind(  # noqa: PLR0913  # all that makes a call
        self,
        operator: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        home: Home | None = None,
        within: object = None,
        *,
        planning: bool = False,
    ) -> tuple[BoundCall, Options]:
        """The call to send, and its options.

        ``home``: the session to which all tensors on the server belong; ``within``: its program.
        """
        binding = self._binding
        options = binding.options_of(operator, kwargs)
        if not binding.knows(operator):
            info = await self._transport().operator(operator, "", options.timeout)
            binding.declare(info)
        call = binding.bind(operator, args, kwargs, options, home, within, planning=planning)
        if call.home is not home and call.home not in self._shared:
            raise ValueError(
                f"remote: expected a Remote of this connection, found one of {call.home!r}; "
                "fetch() moves it"
            )
        return call, options

    async def bind_ready(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[BoundCall, Options]:
        """The same for a pipeline; opens a lost session again before the call goes."""
        call, options = await self.bind(operator, args, kwargs)
        if call.home is not None:
            await call.home.ready(options.timeout, call.held)
        return call, options

    async def run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``Client.run`` returns."""
        call, options = await self.bind(operator, args, kwargs)
        return value_of(call, await self.send(call, options))

    async def execute(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """What ``Client.execute`` returns."""
        start = perf_counter_ns()
        call, options = await self.bind(operator, args, kwargs)
        return result_of(call, await self.send(call, options), start)

    async def plan(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        """What ``Client.plan`` returns."""
        call, options = await self.bind(operator, args, kwargs, planning=True)
        try:
            answer = await self._transport().plan(call, options.timeout, options.request_id)
        except NpucallError as error:
            add_hint(error, call)
            raise
        return plan_of(answer)

    async def send(self, call: BoundCall, options: Options) -> Response:
        """Sends a call."""
        try:
            return await self._send(call, options)
        except NpucallError as error:
            add_hint(error, call)
            raise

    async def _send(self, call: BoundCall, options: Options) -> Response:
        name = options.request_id
        if call.home is None:
            return await self._transport().execute(call, options.timeout, name)
        return await call.home.attempt(
            lambda seconds: self._transport().execute(call, seconds, name),
            options.timeout,
            call.held,
        )

    async def _checks(self) -> Checks:
        info = await self._transport().server_info(self.options.timeout)
        return Checks(info, self._binding.declared)
