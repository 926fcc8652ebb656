"""The gRPC server: what it allows peers, its threads, and its services."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from npucall.errors import BusyError, QueueFullError
from npucall.limits import KIB
from npucall.wire import keepalive
from npucall.wire.headers import MOST_CREDENTIAL_BYTES
from npucall.wire.rpcs import RpcKind, rpcs_of
from npucall_server import retries
from npucall_server.access.guard import check_method
from npucall_server.accounts.budget import CONNECTION_CALLS, HEALTH_MESSAGES, LISTING_MESSAGES
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.connections import IDLE_SECONDS
from npucall_server.carriers.grpc_carrier import GrpcCaller, GrpcCarrier, on, refusals_told
from npucall_server.carriers.threads import Threads
from npucall_server.retries import refusal
from npucall_server.services import access_service, operators, reflection
from npucall_server.services.health import NAME as HEALTH
from npucall_server.services.health import Health
from npucall_server.services.sessions import service as sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall.wire.rpcs import Rpc
    from npucall_server.accounts.budget import Budget
    from npucall_server.carriers.door import Door
    from npucall_server.carriers.grpc_carrier import RpcMethodHandler
    from npucall_server.carriers.multiplex.stream_service import StreamService
    from npucall_server.carriers.peers import Peers
    from npucall_server.services.access_service import AccessService
    from npucall_server.services.account import AccountService
    from npucall_server.services.operators import OperatorService
    from npucall_server.services.sessions.service import SessionService
    from npucall_server.settings.server import ServerSettings

_SPARE_THREADS = 8
_STANDING = 16
"""The most watchers of health and streams of reflection at a time."""
_HANDSHAKE_MS = 10_000
"""After this time the handshake of TLS is done, or the connection ends."""
_OTHER_METADATA = 8 * KIB
"""Of a call, beside its credential; gRPC's own limit for all of it."""
_IDENTITY_ALONE = 1
"""The bit for no compression."""


def options(max_message_bytes: int, max_connections: int) -> list[tuple[str, int]]:
    """The options for gRPC.

    It ignores options that it does not know, so tests check their effects.
    """
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MOST_CREDENTIAL_BYTES + _OTHER_METADATA),
        ("grpc.absolute_max_metadata_size", MOST_CREDENTIAL_BYTES + 2 * _OTHER_METADATA),
        ("grpc.so_reuseport", 0),  # a second server on the address must fail
        ("grpc.max_concurrent_streams", CONNECTION_CALLS),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_connection_idle_ms", int(IDLE_SECONDS * 1000)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # A compressed message is refused before anything is unpacked.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ALONE),
        *keepalive.SERVER,
    ]


def server(settings: ServerSettings, budget: Budget, lanes: int) -> grpc.Server:
    """A server with its options and its threads, and no service.

    There are enough threads for calls that wait or run, for streams, and for messages on their way
    in. So no call waits for a thread: gRPC's own queue has no bound and refuses nothing
    [src:grpc-queue].
    """
    calls = settings.queue_length + lanes + budget.max_streams
    told = options(budget.max_message_bytes, budget.max_connections)
    return with_threads(calls + budget.messages, told)


def with_threads(most: int, told: list[tuple[str, int]]) -> grpc.Server:
    """A server with these options and threads for ``most`` calls at a time."""
    threads: Any = Threads(most + _SPARE_THREADS, "npucall-call")  # any executor will do
    return grpc.server(threads, options=told)


class Listings:
    """Health and reflection. They have their own threads, so a busy server answers them too.

    ``names``: the other services of the server.
    """

    def __init__(
        self, names: Sequence[str], door: Door, peers: Peers, is_well: Callable[[], bool]
    ) -> None:
        self._names, self._guard, self._peers = tuple(names), door.guard, peers
        known = peers.finished.__contains__
        self._listing_room = room_for_messages(LISTING_MESSAGES, known)
        self._health_room = room_for_messages(HEALTH_MESSAGES, known)
        self._standing_room = room_for_watchers(_STANDING, "watch health or use reflection", known)
        self._listing_threads = ThreadPoolExecutor(
            LISTING_MESSAGES + _SPARE_THREADS, "npucall-listing"
        )
        self._health_threads = ThreadPoolExecutor(
            HEALTH_MESSAGES + _SPARE_THREADS, "npucall-health-check"
        )
        self._standing_threads = ThreadPoolExecutor(_STANDING + _SPARE_THREADS, "npucall-standing")
        self.health = Health(names, is_well, peers, self._health_room, self._standing_room)

    def health_handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """The handlers of the service of health."""
        return health_handlers(self.health, self._health_threads, self._standing_threads)

    def busy_peers(self) -> set[str]:
        """The peers that have a call on its way in, or a call that stays open."""
        return self._listing_room.peers | self._health_room.peers | self._standing_room.peers

    def add_reflection(self, server: grpc.Server) -> None:
        """Makes the server describe its services to clients such as grpcurl."""
        answers = reflection.answers_for((*self._names, HEALTH))
        room, peers, guard = self._standing_room, self._peers, self._guard

        def describe(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            caller = GrpcCaller(context)
            peers.enter(caller)
            with refusals_told(context):
                caller.identity = guard.identify(caller.peer, caller.metadata, context)
                check_method(caller.identity, reflection.METHOD)
                place = room.take(caller, 1, caller.cancel)
            try:
                told = answers(peers.messages(messages, caller), context)
                yield from peers.read(told, caller, reflection.size_of)
            finally:
                place.give_back()

        handler = grpc.stream_stream_rpc_method_handler(
            on(self._standing_threads, describe), reflection.read_request, reflection.write_response
        )
        for name in (reflection.NAME, reflection.ALPHA):
            methods = {reflection.METHOD: handler}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))


class Services(Listings):
    """The services of a server of operators."""

    def __init__(
        self, door: Door, peers: Peers, budget: Budget, is_well: Callable[[], bool]
    ) -> None:
        super().__init__([operators.NAME, access_service.NAME, sessions.NAME], door, peers, is_well)
        self._carrier = GrpcCarrier(door, peers)
        self.call_room = room_for_messages(budget.messages, peers.finished.__contains__)
        self._waiting_threads = ThreadPoolExecutor(
            access_service.MOST_WAITING + LISTING_MESSAGES, "npucall-reserve"
        )

    def handlers(
        self,
        calls: OperatorService,
        streams: StreamService,
        accesses: AccessService,
        account: AccountService,
        kept: SessionService,
    ) -> tuple[grpc.GenericRpcHandler[bytes, bytes], ...]:
        """The handlers of npucall's services and of health."""
        self._waiting = accesses.waiting
        services: dict[str, tuple[object, ...]] = {
            operators.NAME: (calls, streams),
            access_service.NAME: (accesses, account),
            sessions.NAME: (kept,),
        }
        handlers = (
            grpc.method_handlers_generic_handler(
                name, {rpc.name: self._handler(rpc, parts) for rpc in rpcs_of(name)}
            )
            for name, parts in services.items()
        )
        return *handlers, self.health_handlers()

    def _handler(self, rpc: Rpc[Any, Any], parts: Sequence[object]) -> RpcMethodHandler:
        """The handler of an RPC; ``parts``: one of these has its method."""
        (method,) = (getattr(part, rpc.function) for part in parts if hasattr(part, rpc.function))
        carrier, room = self._carrier, self._listing_room
        if rpc.kind is RpcKind.CALL:
            return carrier.unary(rpc.name, method, self.call_room)
        if rpc.kind is RpcKind.LISTING:
            return carrier.unary(rpc.name, method, room, self._listing_threads)
        if rpc.kind is RpcKind.WAIT:
            return carrier.unary(rpc.name, method, room, self._waiting_threads)
        return carrier.exchange(rpc.name, method, quiet=rpc.kind is RpcKind.STREAM)

    def busy_peers(self) -> set[str]:
        """The peers that have a call on its way in, or a call that stays open."""
        return super().busy_peers() | self.call_room.peers | self._waiting.peers


def health_handlers(
    health: Health, checks: ThreadPoolExecutor, watches: ThreadPoolExecutor
) -> grpc.GenericRpcHandler[bytes, bytes]:
    """The service of health, with threads for checks and for watchers."""
    methods = {
        "Check": grpc.stream_unary_rpc_method_handler(on(checks, health.check)),
        "Watch": grpc.stream_stream_rpc_method_handler(on(watches, health.watch)),
    }
    return grpc.method_handlers_generic_handler(HEALTH, methods)


def room_for_messages(count: int, is_known: Callable[[str], bool] | None = None) -> Ledger:
    """Room for so many messages on their way in. ``is_known``: see ``Ledger``."""
    sentence = (
        f"the server is receiving {count} requests, as many as a share of memory_limit allows"
    )
    told = {"limit": count, "setting": "memory_limit"}
    return Ledger(
        count,
        lambda *_: refusal(BusyError, sentence, retries.MESSAGE_ROOM, **told),
        is_known=is_known,
    )


def room_for_watchers(
    most: int, what: str, is_known: Callable[[str], bool] | None = None
) -> Ledger:
    """Room for callers who stay. ``what``: what they do. ``is_known``: see ``Ledger``."""
    sentence = f"{most} callers {what}, as many as may"
    return Ledger(
        most,
        lambda *_: refusal(QueueFullError, sentence, retries.WATCHER, limit=most),
        is_known=is_known,
    )
