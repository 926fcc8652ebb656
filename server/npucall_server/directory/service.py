"""``npucall.v1.DirectoryService``: servers announce themselves, clients watch."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

from npucall.errors import DrainingError, MessageError, QueueFullError
from npucall.membership import split_address
from npucall.v1 import directory_service_pb2 as pb
from npucall_server import retries
from npucall_server.access.guard import Guard
from npucall_server.access.identity import KnownBy
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.peers import Peers, Visitor
from npucall_server.directory import messages
from npucall_server.directory.endings import PoolEndings
from npucall_server.directory.feed import Feed
from npucall_server.directory.hosts import Hosts
from npucall_server.directory.table import Beat
from npucall_server.retries import refusal
from npucall_server.services.parsing import parse
from npucall_server.telemetry.log import Record

NAME: str = pb.DESCRIPTOR.services_by_name["DirectoryService"].full_name
_MOST_BEATS, _SPARE_BEATS = 100, 200
"""The most beats of one stream: a second, and at a time. So no stream takes all the time."""


class DirectoryService:
    """The methods, from bytes to bytes."""

    def __init__(
        self,
        feed: Feed,
        hosts: Hosts,
        guard: Guard,
        peers: Peers,
        most: int,
    ) -> None:
        """``most``: servers that announce, and as many clients that watch."""
        self._feed, self._hosts, self._guard, self._peers = feed, hosts, guard, peers
        self.announcers = Ledger(most, lambda *_: _full("announce", most))
        self.watchers = Ledger(most, lambda *_: _full("watch", most))
        self._endings = PoolEndings()
        self._draining = False

    def announce(
        self, requests: Iterator[bytes], _: Record, caller: Visitor
    ) -> Generator[bytes, None, None]:
        """Takes the beats of one server, and answers them."""
        place = self.announcers.take(caller, 1, caller.cancel)
        try:
            announced, pace = "", _Pace()
            for request in self._peers.messages(requests, caller):
                pace.keep()
                self._guard.check(caller.identity)
                beat = messages.read_beat(request)
                if announced not in ("", beat.address):
                    raise MessageError(
                        f"address: expected {announced}, as in the first beat of the stream, found "
                        f"{beat.address}"
                    )
                announced = beat.address
                yield self._heard(beat, caller)
        finally:
            place.give_back()

    def watch_members(
        self, requests: Iterator[bytes], _: Record, caller: Visitor
    ) -> Generator[bytes, None, None]:
        """Sends the table to one client."""
        if self._draining:
            raise _draining()
        place = self.watchers.take(caller, 1, caller.cancel)
        try:
            request = next(self._peers.messages(requests, caller), None)
            if request is None:
                raise MessageError("request: expected one message, found none")
            parse(pb.WatchMembersRequest, request)
            caller.add_callback(self._feed.wake)
            for message in self._feed.messages(caller.is_active):
                self._guard.check(caller.identity)
                yield message
        finally:
            place.give_back()

    def _heard(self, beat: Beat, caller: Visitor) -> bytes:
        """Takes a beat, and answers it."""
        is_private = caller.peer.startswith("unix:") or bool(caller.connection.peer_identities())
        host = split_address(beat.address)[0]
        self._hosts.check(caller.identity, host, is_private=is_private)
        if self._draining:
            raise _draining()
        self._feed.beat(beat, caller.identity.person)
        if is_private or caller.identity.known_by is not KnownBy.NOTHING:
            self._endings.hear(beat.address, beat.ended)
        return messages.answer(beat, self._endings.in_all(self._feed.knows))

    def drain(self) -> None:
        """Ends all streams. New ones are refused from now on."""
        self._draining = True
        self._feed.stop()


class _Pace:
    """Limits how fast the beats of one stream are read: as fast as an honest server needs."""

    def __init__(self) -> None:
        self._spare = float(_SPARE_BEATS)
        self._last = time.monotonic()

    def keep(self) -> None:
        """Waits if beats have come too fast for too long."""
        now = time.monotonic()
        self._spare = min(_SPARE_BEATS, self._spare + (now - self._last) * _MOST_BEATS) - 1
        self._last = now
        if self._spare < 0:
            time.sleep(-self._spare / _MOST_BEATS)


def _draining() -> DrainingError:
    return refusal(DrainingError, "the directory is shutting down", retries.DIRECTORY)


def _full(what: str, most: int) -> QueueFullError:
    sentence = f"as many already {what} as the directory allows (max_connections = {most})"
    return refusal(
        QueueFullError, sentence, retries.DIRECTORY, limit=most, setting="max_connections"
    )
