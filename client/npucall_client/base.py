"""What both clients do, for threads and for asyncio: settings, the transport, the way of a call."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npucall import memory
from npucall_client.calls.options import Binding
from npucall_client.sending.probe import connected
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.reservations import Renewal, keys_of
from npucall_client.sending.senders import finished
from npucall_client.sessions.connection import Connection, Exclusive, Shared
from npucall_client.sessions.session_link import SessionLink
from npucall_client.settings import ClientSettings, Options, checked_seconds
from npucall_client.targets import LOCAL, POOL, RECORDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.transport import Transport
    from npucall_client.sessions.remote import RemoteTensor
    from npucall_client.shared.memory import SharedMemory

_WISHES = ("soc", "product", "labels")


def settings_of(
    options: Options | None = None, older: Mapping[str, Any] = MappingProxyType({}), /, **given: Any
) -> ClientSettings:
    """The settings from the arguments of ``connect``; applies those that hold for the process.

    Raises ValueError for an invalid setting.
    """
    if options is not None:
        older = {**{name: getattr(options, name) for name in options.model_fields_set}, **older}
    given = {**older, **given}
    settings = ClientSettings.of(**given)
    _check_wishes(settings.target, {name: given.get(name) for name in _WISHES})
    if settings.poison:
        memory.poison()
    if settings.keep_memory:
        memory.keep(settings.keep_memory)
    return settings


def _check_wishes(target: str, wishes: dict[str, object]) -> None:
    """Raises ValueError for a wish that does not fit the target, such as a label for one server."""
    for name, wish in wishes.items():
        allowed = target.startswith(POOL) or (name == "soc" and target == LOCAL)
        if wish is not None and not allowed:
            raise ValueError(
                f"{name}: expected none with target {target}, found {wish}; only a pool: "
                + ("or local: " if name == "soc" else "")
                + f"lets you choose the {name}, a server has its own"
            )


async def opened(settings: ClientSettings, sender: Sender) -> Transport:
    """The transport to the place that computes calls. Raises the errors of ``connect``.

    What only some targets need is imported where it is needed, since that takes time.
    """
    if settings.record or settings.target.startswith(RECORDED):
        from npucall_client.local import recorded  # noqa: PLC0415
        from npucall_client.sending.threads import THREADS  # noqa: PLC0415

        def with_file() -> Transport:
            if not settings.record:
                return recorded.RecordedTransport(settings, sender)
            unrecorded = settings.model_copy(update={"record": ""})
            server = finished(opened(unrecorded, THREADS))
            return recorded.RecordingTransport(settings, server, sender)

        return await sender.beside(with_file)
    if settings.target == LOCAL:
        from npucall_client.local.transport import LocalTransport  # noqa: PLC0415

        return LocalTransport(settings.soc, sender)
    if settings.target.startswith(POOL):
        from npucall_client.pool.pool_transport import PoolTransport  # noqa: PLC0415
        from npucall_client.pool.sources import source_of  # noqa: PLC0415

        if settings.reservation:
            keys_of(settings.reservation)
        return await PoolTransport(settings, source_of(settings), sender).open()
    return ServerTransport(await connected(settings, sender))


class ClientBase:
    """A client without its public methods."""

    def __init__(
        self, transport: Transport, settings: ClientSettings, calls: Connection | None = None
    ) -> None:
        self._settings = settings
        self._calls = calls or Connection(
            transport,
            Binding(settings),
            Shared(),
            Exclusive(settings.reservation),
            waits=settings.wait,
        )

    def __repr__(self) -> str:
        server = self._transport.first_info.server
        state = "closed" if self._calls.shared.closed else f"{server.device} as {server.soc}"
        return f"<{type(self).__name__} of {self._settings.target}, {state}>"

    @property
    def target(self) -> str:
        """What it was connected to."""
        return self._settings.target

    @property
    def _transport(self) -> Transport:
        return self._calls.transport

    def _info(self) -> pb.GetServerInfoResponse:
        """What the server, or a member of the pool, said it was when the client connected."""
        return self._transport.first_info

    async def _close(self) -> None:
        await self._calls.shared.close()
        await self._transport.close()

    async def _home(
        self,
        remote: type[RemoteTensor],
        lease: float | None,
        budget: int | None,
        *,
        refill: bool,
    ) -> SessionLink:
        """A session whose tensors are of that class."""
        calls, options = self._calls, self._calls.options
        home = SessionLink(
            calls.sessions,
            self._settings.target,
            0.0 if lease is None else checked_seconds(lease, "lease"),
            budget or 0,
            options.timeout,
            options.request_id,
            refill=refill,
            sender=calls.transport.sender,
            remote=remote,
            asking=calls.request,
        )
        await home.open()
        calls.shared.add(home)
        return home

    async def _memory(self, nbytes: int) -> SharedMemory:
        calls = self._calls
        return await calls.open().shared(
            calls.request(), nbytes, self._settings.shared_memory_socket
        )

    async def _renewal(self, seconds: float, wait: float, count: int) -> Renewal:
        """A reservation, which is renewed from here on."""
        calls = self._calls
        if (renewal := calls.exclusive.renewal) is not None:
            raise ValueError(
                f"reserve: this client has a reservation already, for {renewal.remaining:.0f} s "
                f"more; asked for {count}, {seconds:g} s, wait {wait:g} s"
            )
        if self._settings.reservation:
            raise ValueError(
                "reserve: this client has a reservation already, by the setting reservation "
                "(NPUCALL_RESERVATION); unset it, or call under it"
            )
        seconds = checked_seconds(seconds, "seconds")
        wait = checked_seconds(wait, "wait", zero=True)
        transport = calls.open()
        granted = await transport.reserve(calls.request(), seconds, wait, count)
        return Renewal(transport, granted, transport.sender)


class ReservedBase(ClientBase):
    """A client of the same connection that has the device alone."""

    def __init__(self, client: ClientBase, reservation: Renewal) -> None:
        calls = client._calls  # noqa: SLF001  # of its own kind
        own = Exclusive(reservation.key, reservation)
        super().__init__(
            calls.transport,
            client._settings,  # noqa: SLF001
            Connection(calls.transport, calls.binding, calls.shared, own, waits=calls.waits),
        )
        self._reservation = reservation
        self._of = calls.exclusive
        self._of.key, self._of.renewal = reservation.key, reservation

    async def _release(self) -> None:
        """Releases the device. From here on the other client's calls are like those of others."""
        if self._of.renewal is self._reservation:  # closed twice, it ends no other
            self._of.key, self._of.renewal = "", None
        await self._reservation.close()

    @property
    def key(self) -> str:
        """The key that calls carry: NPUCALL_RESERVATION for a child process."""
        return self._reservation.key

    @property
    def remaining(self) -> float:
        """Seconds until the reservation ends, at most; 0 if it has ended or was lost."""
        return self._reservation.remaining
