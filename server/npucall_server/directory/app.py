"""Connects the table, its service and the listener, and drains."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from npucall.limits import MAX_MEMBER_BYTES
from npucall.wire.replies import ServerIdentity
from npucall.wire.rpcs import rpcs_of
from npucall_server.carriers.door import Door
from npucall_server.carriers.grpc_carrier import GrpcCarrier
from npucall_server.carriers.peers import Peers
from npucall_server.directory import service
from npucall_server.directory.feed import Feed
from npucall_server.directory.hosts import Hosts
from npucall_server.directory.service import DirectoryService
from npucall_server.directory.settings import DirectorySettings
from npucall_server.directory.table import MemberTable
from npucall_server.metrics import declared
from npucall_server.metrics.counters import MetricSample
from npucall_server.serving import grpc_server, process_limits
from npucall_server.serving.listener import Listener, access_of, metrics_of
from npucall_server.serving.watch import Watch
from npucall_server.telemetry.log import Log

_OTHER_DESCRIPTORS = 64
_LOOK_SECONDS = 1.0
_LAST_ANSWERS_SECONDS = 1.0
_LARGEST_MESSAGE = 4 * MAX_MEMBER_BYTES
"""More than is allowed, so that npucall itself refuses a message that is too long."""


class Directory:
    """A directory, from binding to draining."""

    def __init__(
        self, settings: DirectorySettings, log: Log, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._access = access_of(settings, log)
        wanted, doors = settings.max_connections, len(settings.listens)
        possible = process_limits.connections(wanted, doors, _OTHER_DESCRIPTORS, log)
        connections = min(wanted, possible)
        self.feed = Feed(MemberTable(clock()), log, clock)
        peers, guard = Peers(log, settings.peer_timeout), self._access.guard
        self._lets_all_announce = settings.insecure_bind and not guard.asks
        hosts = Hosts(self._access.tenants, anybody=self._lets_all_announce)
        self.service = DirectoryService(self.feed, hosts, guard, peers, connections)
        self._metrics = metrics_of(settings, [])
        told = grpc_server.options(_LARGEST_MESSAGE, connections)
        self._grpc = grpc_server.with_threads(2 * connections, told)
        identity = ServerIdentity(secrets.token_hex(6), "", "")
        door = Door(identity, log, guard, self._metrics.watchers)
        self._listings = grpc_server.Listings([service.NAME], door, peers, _is_well)
        self._add_services(GrpcCarrier(door, peers), settings)
        with _sockets_of_this_user():
            self._listener = Listener(
                self._grpc, settings, self._listings.health, [service.NAME], _is_well, peers, log
            )
        self._listener.show_metrics(self._metrics, self._samples)
        looks = self._listener.connections(connections, self._busy_peers, peers)
        self._watch = Watch(_LOOK_SECONDS, log, peers.look, self._access.look, looks.look)

    def start(self) -> None:
        """Starts to answer, then writes the ready file."""
        self._watch.start()
        self._listener.start(epoch=f"{self.feed.epoch:016x}")
        if self._lets_all_announce:
            message = (
                f"everybody who reaches {self.address} can announce servers, to which clients send "
                "their tensors: nobody proves there who they are"
            )
            self._log.event("warning", message=message)

    def reload(self) -> None:
        """Reads the files that say who may call again, at once."""
        self._access.look()

    def drain(self) -> None:
        """Reports NOT_SERVING and ends the streams."""
        self._log.event("draining", **self.feed.counts())
        self._listener.report_not_serving()
        self.service.drain()
        self._listener.stop(_LAST_ANSWERS_SECONDS)
        self._watch.stop()
        self._access.close()
        self._metrics.close()
        self._log.event("stopped", finished=True)

    @property
    def address(self) -> str:
        """The first of the addresses, as callers write it."""
        return self._listener.addresses[0]

    def _samples(self) -> list[MetricSample]:
        """The current values of gauges, for Prometheus."""
        counts, watchers = self.feed.counts(), self.service.watchers
        return [
            MetricSample(declared.SERVING, (), self._listings.health.is_serving),
            MetricSample(declared.WATCHERS, (), watchers.used),
            MetricSample(declared.BEATS, (), self.feed.beats),
            *(MetricSample(declared.MEMBERS, (state,), count) for state, count in counts.items()),
        ]

    def _add_services(self, carrier: GrpcCarrier, settings: DirectorySettings) -> None:
        methods = {
            rpc.name: carrier.exchange(rpc.name, getattr(self.service, rpc.function), quiet=True)
            for rpc in rpcs_of(service.NAME)
        }
        self._grpc.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(service.NAME, methods),
                self._listings.health_handlers(),
            )
        )
        if settings.has_reflection:
            self._listings.add_reflection(self._grpc)

    def _busy_peers(self) -> set[str]:
        """The peers that have a stream."""
        streams = self.service.announcers.peers | self.service.watchers.peers
        return streams | self._listings.busy_peers()


@contextmanager
def _sockets_of_this_user() -> Iterator[None]:
    """Unix sockets that are made meanwhile let in this user alone, and root.

    gRPC does not tell who is at the other end; the system itself refuses all others.
    """
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _is_well() -> bool:
    """Always: a directory has no device that could hang."""
    return True
