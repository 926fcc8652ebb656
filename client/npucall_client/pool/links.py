"""The links to the members: opened in the background, checked for health after a failure."""

from __future__ import annotations

import copy
import threading
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from npucall.errors import (
    DrainingError,
    NpucallError,
    ServerUnreachableError,
    SettingError,
    UnauthenticatedError,
)
from npucall.wire.rpcs import LIST_OPERATORS
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.link import Link
from npucall_client.sending.paths import HEALTH_CHECK
from npucall_client.sending.probe import connected
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.targets import DIRECTORIES, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.members import Member
    from npucall_client.pool.table import Table
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings

_SHORTEST = 1e-3
_OPEN_SECONDS = 3.0
"""Time for a connection, and for an answer on it."""
_HEALTH_SECONDS = 1.0
"""Time for the answer of a member that has failed, on the connection that there is."""
_SERVES = b"\x08\x01"
"""``grpc.health.v1.HealthCheckResponse`` with the status SERVING."""


class Links:
    """Links of a client, of which each makes one attempt at a call."""

    def __init__(self, settings: ClientSettings, table: Table[Link], sender: Sender) -> None:
        self._settings = settings
        self._table = table
        self._sender = sender
        self._is_closed = False
        self._lock = threading.Lock()
        self._retired: list[Candidate[Link]] = []

    def start(self) -> None:
        """Asks members from here on, until it is closed, or nothing uses it any longer."""
        look = partial(_look_after, weakref.ref(self), self._table)
        self._sender.start(look, "npucall-pool")

    async def of(self, candidate: Candidate[Link], seconds: float) -> Link:
        """The link to a member. Opens it if there is none. Raises the error if it cannot."""
        link = candidate.link if candidate.is_proved else None
        if link is None:
            link = await self._waited_for(candidate, seconds)
        self._table.check(candidate)
        return link

    async def _waited_for(self, candidate: Candidate[Link], seconds: float) -> Link:
        """Opens the link, or waits until another thread has opened it."""
        if not await candidate.opening.acquire(seconds):
            raise ServerUnreachableError(
                f"the client could not connect to {candidate.address} in {seconds:g} s"
            )
        try:
            if candidate.rests_until and candidate.failure is not None:
                raise copy.copy(candidate.failure)  # somebody else has just tried
            return await self._opened(candidate, min(seconds, _OPEN_SECONDS))
        finally:
            candidate.opening.release()

    async def _opened(self, candidate: Candidate[Link], seconds: float) -> Link:
        """The link, over which the member has said what it is. With ``opening`` held."""
        link = candidate.link
        if link is None:
            settings = settings_of(candidate.member, self._settings, seconds)
            link = await self._connected(settings)
            with self._lock:
                if not self._is_closed:
                    candidate.link = link
            if self._is_closed:
                await link.close()
            link.check_open()
            info = link.info
        elif candidate.is_proved:
            return link
        else:
            info = await Attempts(Request(seconds, once=True)).run(link, Link.ask)
        member = said(candidate.member, info)
        await self._learn_operators(member, link, seconds)
        self._table.learn(candidate, member)
        return link

    async def _connected(self, settings: ClientSettings) -> Link:
        if trusts(self._settings):
            return await connected(settings, self._sender, waits=False)
        try:
            return await connected(settings, self._sender, waits=False, trusted=False)
        except UnauthenticatedError as error:
            raise type(error)(
                f"{error}; a directory without TLS named {settings.target}, so the client sends it "
                "no credential: set ca or tls (NPUCALL_CA, NPUCALL_TLS), or list the servers in "
                "the target (NPUCALL_TARGET)"
            ) from error

    async def _learn_operators(self, member: Member, link: Link, seconds: float) -> None:
        """Asks which operators there are, once for all members that have the same ones.

        If all members have the same ones, the client need not know them.
        """
        catalogues = self._table.catalogues
        open_ones = {e.member.catalogue: e.link for e in self._table.known.values() if e.is_proved}
        open_ones[member.catalogue] = link
        if len(open_ones) < 2:  # noqa: PLR2004  # to differ
            return
        for catalogue, each in open_ones.items():
            if catalogue and catalogue not in catalogues and each is not None:
                once, asked = Request(seconds, once=True), LIST_OPERATORS.request()
                answer = await ServerTransport(each).answer(once, LIST_OPERATORS, asked)
                listed = answer.operators
                names = [(each.name, each.variant) for each in listed]
                names += [(each.name, "") for each in listed]
                catalogues[catalogue] = frozenset(names)

    async def ask(self, candidate: Candidate[Link]) -> None:
        """Asks a member what it is now, and whether it serves; tells the table."""
        failure: NpucallError | None = None
        try:
            if candidate.rests_until and candidate.is_proved:
                await self._check_serves(candidate)
            async with candidate.opening:  # a call may be about to open it too
                await self._opened(candidate, _OPEN_SECONDS)
        except NpucallError as error:
            failure = error
        except ValueError as error:  # of the client's own settings
            failure = SettingError(str(error))
        self._table.asked(candidate, failure)

    async def _check_serves(self, candidate: Candidate[Link]) -> None:
        """Asks a member that failed. It may be another process now."""
        link = candidate.link
        assert link is not None  # noqa: S101  # it is proved
        if not await serves(link, _HEALTH_SECONDS):
            raise DrainingError(  # as if it had refused a call
                f"{candidate.address} says that it takes no calls now"
            )
        info = await link.ask(Attempts(Request(_HEALTH_SECONDS)))
        self._table.learn(candidate, said(candidate.member, info))

    def hear(self, members: Sequence[Member], *, complete: bool) -> None:
        """Takes what the source lists. Links to members that have left it are closed once idle.

        The source keeps no other reference to the pool: all clients of it share these links.
        """
        gone = self._table.update(members, complete=complete)
        with self._lock:
            self._retired += gone

    async def look(self) -> bool:
        """Has members asked that are to be asked, closes idle links. False once it is closed."""
        await self.close_idle()
        for candidate in () if self._is_closed else self._table.to_ask():
            # Each in a task of its own: one that does not answer must not delay the others.
            self._sender.start(partial(self.ask, candidate), "npucall-pool-health")
        return not self._is_closed

    async def close_idle(self) -> None:
        """Closes the links to members that are gone, if no call is under way there."""
        with self._lock:
            idle = [each for each in self._retired if not each.own]
            self._retired = [each for each in self._retired if each.own]
        await _close(idle)

    async def close(self) -> None:
        """Closes every link, and opens no other. Calls under way are cancelled."""
        with self._lock:
            self._is_closed = True
            every = [*self._retired, *self._table.known.values()]
        await _close(every)


async def _look_after(links_of: weakref.ref[Links], table: Table[Link]) -> None:
    while (links := links_of()) is not None and await links.look():
        del links
        await table.pause()


async def _close(candidates: Iterable[Candidate[Link]]) -> None:
    for candidate in candidates:
        if candidate.link is not None:
            await candidate.link.close()


def trusts(settings: ClientSettings) -> bool:
    """Whether members may have the caller's credential.

    They have proved their name, or the user wrote it; a directory could name anybody.
    """
    return settings.encrypts or parse(settings.target).module != DIRECTORIES


def settings_of(member: Member, settings: ClientSettings, seconds: float) -> ClientSettings:
    """The settings for the link to one member, from those of the pool; it waits ``seconds``."""
    timeout, name = max(_SHORTEST, min(seconds, settings.connect_timeout)), settings.server_name
    if settings.encrypts:
        name = name or member.server_name
    return settings.model_copy(
        update={"target": member.address, "connect_timeout": timeout, "server_name": name}
    )


async def serves(link: Link, seconds: float) -> bool:
    """Whether a member takes calls."""
    return await link.send_once(HEALTH_CHECK, b"", Attempts(Request(seconds))) == _SERVES


def said(member: Member, info: pb.GetServerInfoResponse) -> Member:
    """A member, completed by what it says about itself."""
    return replace(
        member,
        instance=info.server.instance,
        device=info.server.device,
        soc=info.server.soc,
        product=info.product,
        version=info.version,
        catalogue=info.catalogue,
        memory_limit=info.limits.memory_limit,
        labels={**member.labels, **info.labels},
    )
