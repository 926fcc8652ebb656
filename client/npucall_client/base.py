"""What both clients do, for threads and for asyncio: settings, the transport, the way of a call."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from npucall import memory
from npucall.products import DEFAULT_SOC
from npucall_client.calls.options import Binding, closed
from npucall_client.local.transport import LocalTransport
from npucall_client.pool.sources import source_of
from npucall_client.pool.transport import PoolTransport
from npucall_client.sending.channel import ChannelTransport
from npucall_client.sending.reservations import Renewal
from npucall_client.sessions.connection import Connection, Shared
from npucall_client.sessions.home import Home
from npucall_client.settings import ClientSettings, checked_seconds
from npucall_client.targets import LOCAL, POOL

if TYPE_CHECKING:
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.transport import Transport
    from npucall_client.sessions.remote import RemoteTensor
    from npucall_client.shared.memory import SharedMemory

_KEPT = 2**30
"""Bytes that ``keep_memory=True`` keeps."""
_PATHS = ("ca", "certificate", "key", "token_file")
_WISHES = ("soc", "product", "labels")


def settings_of(**given: Any) -> ClientSettings:
    """The settings from the arguments of ``connect``; applies those that hold for the process.

    Raises ValueError for an invalid setting.
    """
    for name in _PATHS:
        if given.get(name) is not None:
            given[name] = fspath(given[name])
    if given.get("keep_memory") is True:
        given["keep_memory"] = _KEPT
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
    """The transport to the place that computes calls. Raises the errors of ``connect``."""
    if settings.target == LOCAL:
        return LocalTransport(settings.soc or DEFAULT_SOC, sender)
    transport: Transport
    if settings.target.startswith(POOL):
        transport = await PoolTransport(settings, source_of(settings), sender).open()
    else:
        transport = await ChannelTransport(settings, sender).open()
    return transport.under(settings.reservation)


class ClientBase:
    """A client without its public methods."""

    def __init__(
        self,
        transport: Transport,
        settings: ClientSettings,
        binding: Binding | None = None,
        shared: Shared | None = None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._binding = binding or Binding(settings)
        self._shared = shared or Shared()
        self._reserved: tuple[Transport, Renewal] | None = None
        """While this client has the device alone: the transport of its calls, and why."""
        self._calls = Connection(self._open, self._binding, self._shared)

    async def _close(self) -> None:
        await self._shared.close()
        await self._transport.close()

    async def _home(
        self,
        remote: type[RemoteTensor],
        lease: float | None,
        budget: int | None,
        *,
        refill: bool,
    ) -> Home:
        """A session whose tensors are of that class."""
        transport, options = self._open(), self._binding.options
        home = Home(
            transport.sessions,
            self._settings.target,
            0.0 if lease is None else checked_seconds(lease, "lease"),
            budget or 0,
            options.timeout,
            options.request_id,
            refill=refill,
            sender=transport.sender,
            remote=remote,
        )
        await home.open()
        self._shared.add(home)
        return home

    async def _memory(self, nbytes: int) -> SharedMemory:
        socket, timeout = self._settings.shared_memory_socket, self._binding.options.timeout
        return await self._open().shared(nbytes, socket, timeout)

    async def _renewal(self, seconds: float, wait: float, count: int) -> Renewal:
        """A reservation, which is renewed from here on."""
        if self._reserved is not None:
            remaining = self._reserved[1].remaining
            raise ValueError(
                f"reserve: this client has a reservation already, for {remaining:.0f} s more; "
                f"asked for {count}, {seconds:g} s, wait {wait:g} s"
            )
        if self._settings.reservation:
            raise ValueError(
                "reserve: this client has a reservation already, by the setting reservation "
                "(NPUCALL_RESERVATION); unset it, or call under it"
            )
        seconds = checked_seconds(seconds, "seconds")
        wait = checked_seconds(wait, "wait", zero=True)
        transport = self._open()
        granted = await transport.reserve(seconds, wait, self._binding.options.timeout, count)
        return Renewal(transport, granted, transport.sender)

    def _waiting(self, wait: bool | None) -> Transport:  # noqa: FBT001  # as the option
        """The transport with this option; None: as it is."""
        transport = self._transport if self._reserved is None else self._reserved[0]
        return transport if wait is None else transport.waiting(wait)

    def _open(self) -> Transport:
        """The transport. Raises CancelledError once the client is closed.

        Raises ReservedError if its reservation was lost.
        """
        transport = self._transport
        if self._reserved is not None:
            transport, renewal = self._reserved
            renewal.check()
        if self._shared.closed:
            raise closed()
        return transport


class ReservedBase(ClientBase):
    """A client of the same connection that has the device alone."""

    def __init__(self, client: ClientBase, reservation: Renewal) -> None:
        of = client._transport.under(reservation.key)  # noqa: SLF001  # of its own kind
        super().__init__(of, client._settings, client._binding, client._shared)  # noqa: SLF001
        self._reservation = reservation
        self._of = client
        self._reserved = client._reserved = of, reservation  # noqa: SLF001

    async def _release(self) -> None:
        """Releases the device. From here on the other client's calls are like those of others."""
        if self._of._reserved is self._reserved:  # noqa: SLF001  # closed twice, it ends no other
            self._of._reserved = None  # noqa: SLF001
        await self._reservation.close()

    @property
    def key(self) -> str:
        """The key that calls carry: NPUCALL_RESERVATION for a child process."""
        return self._reservation.key

    @property
    def remaining(self) -> float:
        """Seconds until the reservation ends, at most; 0 if it has ended or was lost."""
        return self._reservation.remaining
