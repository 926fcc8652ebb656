"""The front of a server: where it is reached, its health, its metrics, its ready file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_server import addresses, binding, process_limits, ready_file
from npucall_server.access.setup import Access
from npucall_server.connections import IdleConnections
from npucall_server.health_server import HealthServer
from npucall_server.metrics.shown import ExtraMissingError, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import grpc

    from npucall_server.front_settings import FrontSettings
    from npucall_server.log import Log
    from npucall_server.metrics.counters import Sample
    from npucall_server.peers import Peers
    from npucall_server.services.health import Health


class Front:
    """Binds its addresses at once. ``names``: of the services that its health answers for."""

    def __init__(  # noqa: PLR0913  # all that a server has beside its services
        self,
        server: grpc.Server,
        settings: FrontSettings,
        health: Health,
        names: Sequence[str],
        is_well: Callable[[], bool],
        peers: Peers,
        log: Log,
    ) -> None:
        self._grpc, self._settings, self._log = server, settings, log
        self._health = health
        self._addresses = binding.bind(server, settings, log)
        where = settings.health_listen
        self._probes = HealthServer(where, names, is_well, peers) if where else None
        self._metrics_address = ""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as callers write it."""
        return [each.where for each in self._addresses]

    def show_metrics(self, metrics: Metrics, gauges: Callable[[], Iterable[Sample]]) -> None:
        """Shows metrics where the settings say so."""
        try:
            address = metrics.show(gauges)
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

    def start(self, advertised: str = "", **told: str | float) -> None:
        """Serves from here on; then writes the ready file. ``told``: what the log says of it.

        ``advertised``: the address for others, where it is another one than is bound.
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

    def looks(self, most: int, busy: Callable[[], set[str]]) -> list[Callable[[], None]]:
        """What closes connections without a call where most of so many are open."""
        ports = {port for each in self.addresses if (port := addresses.port(each))}
        return [IdleConnections(port, most, busy, self._log).look for port in ports]

    def report_not_serving(self) -> None:
        """Health says from now on that no calls are taken."""
        self._health.set(serving=False)
        if self._probes is not None:
            self._probes.health.set(serving=False)

    def stop(self, seconds: float) -> None:
        """Ends what is open, after so many seconds at the most."""
        self._grpc.stop(seconds).wait()
        if self._probes is not None:
            self._probes.stop()
        self.remove_ready_file()

    def remove_ready_file(self) -> None:
        """Nobody shall read any more that it answers."""
        if self._settings.ready_file is not None:
            self._settings.ready_file.unlink(missing_ok=True)


def access_of(settings: FrontSettings, log: Log, side_socket: Path | None = None) -> Access:
    """Who may call. Raises SettingsError."""
    try:
        return Access(settings, log, side_socket)
    except (OSError, ValueError) as error:
        raise binding.SettingsError(f"access: {error}") from error


def metrics_of(settings: FrontSettings, operators: list[str]) -> Metrics:
    """What counts calls. Raises SettingsError."""
    try:
        return Metrics(settings, operators)
    except ExtraMissingError as error:
        raise binding.SettingsError(str(error)) from error


def connections_possible(other_descriptors: int) -> int:
    """How many this process may have open, beside the descriptors that it needs itself."""
    most = process_limits.descriptors()
    return max(most - other_descriptors, most // 2)
