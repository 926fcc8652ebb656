"""The listener of a server: its addresses, its health, its metrics, its ready file."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import grpc

from npucall_server.access.setup import Access
from npucall_server.carriers.connections import Connections
from npucall_server.carriers.peers import Peers
from npucall_server.metrics.counters import MetricSample
from npucall_server.metrics.shown import ExtraMissingError, Metrics
from npucall_server.services.health import Health
from npucall_server.serving import binding, ready_file
from npucall_server.serving.health_server import MOST_PROBES, HealthServer
from npucall_server.settings import addresses
from npucall_server.settings.addresses import Security
from npucall_server.settings.listener import ListenerSettings
from npucall_server.telemetry.log import Log


class Listener:
    """Binds the addresses at once. ``names``: the services that health answers for."""

    def __init__(  # noqa: PLR0913  # everything of a server but its services
        self,
        server: grpc.Server,
        settings: ListenerSettings,
        health: Health,
        names: Sequence[str],
        is_well: Callable[[], bool],
        peers: Peers,
        log: Log,
    ) -> None:
        self._grpc, self._settings, self._log = server, settings, log
        self._health = health
        self._certificates = binding.certificates_of(settings, log)
        self._addresses = binding.bind(server, settings, self._certificates)
        where = settings.health_listen
        self._probes = HealthServer(where, names, is_well, peers) if where else None
        self._metrics_address = ""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as callers write it."""
        return [each.where for each in self._addresses]

    def show_metrics(self, metrics: Metrics, gauges: Callable[[], Iterable[MetricSample]]) -> None:
        """Shows metrics if the settings ask for them."""
        try:
            address = metrics.show(gauges, self._tls)
        except OSError as error:
            raise binding.BindError(
                "metrics_listen: expected a free address, found "
                f"{self._settings.metrics_listen}: {error}"
            ) from error
        if address and not addresses.is_loopback(address) and not self._settings.tls_certificate:
            self._log.event(
                "warning", message=f"everybody who reaches {address} can read the metrics"
            )
        self._metrics_address = address

    @property
    def _tls(self) -> Callable[[], ssl.SSLContext] | None:
        """What makes a context for a new connection, if the server has a certificate."""
        if self._certificates is None:
            return None
        security = Security.TLS if self._settings.tls_client_ca is None else Security.MTLS
        return partial(self._certificates.context, security)

    def start(self, advertised: str = "", **told: str | float) -> None:
        """Starts to serve, then writes the ready file. ``told``: facts for the line in the log.

        ``advertised``: the address for others, if it differs from the bound one.
        """
        self._grpc.start()
        self._health.set(serving=True)
        if self._probes is not None:
            self._probes.start()
        settings, metrics = self._settings, self._metrics_address
        self._log.event(
            "serving",
            address=self.addresses[0],
            addresses=", ".join(map(str, self._addresses)),
            **told,
            **({"metrics": metrics} if metrics else {}),
        )
        for message in binding.warnings(self._addresses, settings):
            self._log.event("warning", message=message)
        self._log.flush()
        if settings.ready_file is not None:
            ready_file.write(settings.ready_file, advertised or self.addresses[0])
        ready_file.tell_systemd("READY=1")

    def connections(self, most: int, busy: Callable[[], set[str]], peers: Peers) -> Connections:
        """Those of its addresses, each of which may have ``most``. See ``Connections``."""
        ports = {port: most for each in self.addresses if (port := addresses.port(each))}
        if self._probes is not None and (port := addresses.port(self._probes.address.where)):
            ports[port] = MOST_PROBES
        return Connections(ports, busy, peers, self._log)

    def report_not_serving(self) -> None:
        """From now on health says that the server takes no calls."""
        ready_file.tell_systemd("STOPPING=1")
        self._health.set(serving=False)
        if self._probes is not None:
            self._probes.health.set(serving=False)

    def stop(self, seconds: float) -> None:
        """Stops the servers. Open calls are cut after so many seconds."""
        self._grpc.stop(seconds).wait()
        if self._probes is not None:
            self._probes.stop()
        self.remove_ready_file()

    def remove_ready_file(self) -> None:
        """Removes the ready file, since the server no longer answers."""
        if self._settings.ready_file is not None:
            self._settings.ready_file.unlink(missing_ok=True)


def access_of(settings: ListenerSettings, log: Log, side_socket: Path | None = None) -> Access:
    """Makes what decides who may call. Raises SettingsError."""
    try:
        return Access(settings, log, side_socket)
    except (OSError, ValueError) as error:
        raise binding.SettingsError(f"access: {error}") from error


def metrics_of(settings: ListenerSettings, operators: list[str]) -> Metrics:
    """Makes what counts calls. Raises SettingsError."""
    try:
        return Metrics(settings, operators)
    except ExtraMissingError as error:
        raise binding.SettingsError(str(error)) from error
