"""A client's connection as calls, pipelines and sessions use it: arguments in, answers out."""

from __future__ import annotations

import threading
import weakref
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.declare import Operator
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.wire.rpcs import GET_OPERATOR, GET_SERVER_INFO
from npucall_client.calls.arguments import BoundCall
from npucall_client.calls.hints import add_hint
from npucall_client.calls.options import closed, plan_of, result_of, value_of
from npucall_client.sending.request import Request
from npucall_client.sessions.checks import Checks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.calls.options import Binding, CallOptions, Plan, Result
    from npucall_client.sending.reservations import Renewal
    from npucall_client.sending.session_transport import SessionTransport
    from npucall_client.sending.transport import Transport
    from npucall_client.sessions.session_link import SessionLink


class Shared:
    """What the clients of one connection share: their sessions, and the rules of the server."""

    def __init__(self) -> None:
        self.closed = False
        self._homes: weakref.WeakSet[SessionLink] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._checks: Checks | None = None

    def add(self, home: SessionLink) -> None:
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


class Exclusive:
    """Under which reservation the calls of a client run now; its sessions and options share this.

    ``renewal``: of the reservation that this client made.
    """

    def __init__(self, key: str = "", renewal: Renewal | None = None) -> None:
        self.key = key
        self.renewal = renewal


class Connection:
    """``waits``: whether calls wait for a server that is full."""

    def __init__(
        self,
        transport: Transport,
        binding: Binding,
        shared: Shared,
        exclusive: Exclusive,
        *,
        waits: bool,
    ) -> None:
        self.transport = transport
        self.binding = binding
        self.shared = shared
        self.exclusive = exclusive
        self.waits = waits

    @property
    def options(self) -> CallOptions:
        """What goes with a call in addition to its arguments."""
        return self.binding.options

    @property
    def sessions(self) -> SessionTransport:
        """The transport that keeps the handles."""
        return self.open().sessions

    def open(self) -> Transport:
        """The transport. Raises CancelledError once the client is closed.

        Raises ReservedError if its reservation was lost.
        """
        if self.exclusive.renewal is not None:
            self.exclusive.renewal.check()
        if self.shared.closed:
            raise closed()
        return self.transport

    def request(self, timeout: float | None = None) -> Request:
        """A request with the options of the client, under its reservation if it has one."""
        options = self.binding.options
        seconds = options.timeout if timeout is None else timeout
        return Request(seconds, options.request_id, self.exclusive.key, self.waits)

    async def answer(self, rpc: Rpc[Q, A], asked: Q | None = None) -> A:
        """The answer to an RPC of one message each way; without ``asked``, to an empty one."""
        return await self.open().answer(self.request(), rpc, asked or rpc.request())

    async def operator(
        self, name: str, variant: str = "", timeout: float | None = None
    ) -> pb.OperatorInfo:
        """One operator of the server, or of a member of the pool that has it."""
        name = CATALOGUE.c_name(name)
        wanted = BoundCall(name, variant=variant)
        asked = GET_OPERATOR.request(operator=name, variant=variant)
        request = self.request(timeout)._replace(call=wanted)
        return (await self.open().answer(request, GET_OPERATOR, asked)).operator

    async def checks(self) -> Checks:
        """The rules of the server, in this process."""
        return await self.shared.checks(self._checks)

    def having(self, wait: bool | None = None, **options: Any) -> Connection:  # noqa: FBT001
        """The same with other options; None means not given."""
        return Connection(
            self.transport,
            self.binding.having(**options),
            self.shared,
            self.exclusive,
            waits=self.waits if wait is None else wait,
        )

    async def bind(  # noqa: PLR0913  # all that makes a call
        self,
        operator: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        home: SessionLink | None = None,
        within: object = None,
        *,
        planning: bool = False,
    ) -> Request:
        """The request for a call.

        ``home``: the session to which all tensors on the server belong; ``within``: its program.
        """
        binding = self.binding
        options = binding.options_of(operator, kwargs)
        if isinstance(operator, str):
            operator = CATALOGUE.c_name(operator)
        if not (isinstance(operator, Operator) or binding.knows(operator)):
            binding.declare(await self.operator(operator, timeout=options.timeout))
        call = binding.bind(operator, args, kwargs, options, home, within, planning=planning)
        if call.home is not home and call.home not in self.shared:
            raise ValueError(
                f"remote: expected a Remote of this connection, found one of {call.home!r}; "
                "fetch() moves it"
            )
        return Request(
            options.timeout,
            options.request_id,
            self.exclusive.key,
            self.waits,
            call.operator,
            call,
            call.home,
            call.held,
        )

    async def bind_ready(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Request:
        """The same for a pipeline; opens a lost session again before the call goes."""
        request = await self.bind(operator, args, kwargs)
        if request.home is not None:
            await request.home.ready(request.timeout, request.held)
        return request

    async def run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``Client.run`` returns."""
        request = await self.bind(operator, args, kwargs)
        return value_of(request.call, await self.send(request))

    async def execute(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """What ``Client.execute`` returns."""
        start = perf_counter_ns()
        request = await self.bind(operator, args, kwargs)
        return result_of(request.call, await self.send(request), start)

    async def plan(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        """What ``Client.plan`` returns."""
        request = await self.bind(operator, args, kwargs, planning=True)
        try:
            return plan_of(await self.open().plan(request))
        except NpucallError as error:
            add_hint(error, request.call)
            raise

    async def send(self, request: Request) -> Response:
        """Sends a call."""
        try:
            is_free = self.exclusive.renewal is None and not self.shared.closed
            return await (self.transport if is_free else self.open()).execute(request)
        except NpucallError as error:
            add_hint(error, request.call)
            raise

    async def _checks(self) -> Checks:
        return Checks(await self.answer(GET_SERVER_INFO), self.binding.declared)
