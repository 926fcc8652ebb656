"""Counts and shows metrics if the setting asks for them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from npucall.texts import missing_extra
from npucall_server.metrics.counters import Counters, MetricSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from npucall_server.metrics.exposition import Exposition
    from npucall_server.settings.listener import ListenerSettings
    from npucall_server.telemetry.log import Record


class ExtraMissingError(Exception):
    """A package that the metrics need is not installed."""


class ServerTls:
    """TLS with the certificate that is in the files when a connection comes.

    With ``client_ca`` the client needs a certificate of that authority.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._files = certificate, key, client_ca
        self._good: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext:
        """The context for a new connection. Raises OSError if the files have never been good."""
        try:
            self._good = _context(*self._files)
        except (OSError, ValueError):  # one of the files is being changed
            if self._good is None:
                raise
        return self._good


def _context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, password="")
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Metrics:
    """The metrics of a server; without ``metrics_listen`` there are none, and they cost nothing.

    Raises ExtraMissingError if they are wanted but the extra is not installed.
    """

    def __init__(self, settings: ListenerSettings, operators: list[str]) -> None:
        self._address = settings.metrics_listen
        self._tls = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            certificate, key = settings.tls_certificate, settings.tls_key
            self._tls = ServerTls(certificate, key, settings.tls_client_ca)
        self._counters = Counters(operators)
        self._exposition: Exposition | None = None
        if self._address:
            _check_extra()

    @property
    def watchers(self) -> Sequence[Callable[[Record], object]]:
        """What has to be told of each call that was answered: nothing without metrics."""
        return [self._counters.called] if self._address else []

    def show(self, gauges: Callable[[], Iterable[MetricSample]]) -> str:
        """Starts to answer scrapes. Answers the address; empty without ``metrics_listen``.

        ``gauges`` answers the current values. With TLS if the server has a certificate. Raises
        OSError if the address cannot be bound.
        """
        if not self._address:
            return ""
        from npucall_server.metrics.exposition import Exposition  # noqa: PLC0415  # has the extra

        host, _, port = self._address.rpartition(":")
        sources = self._counters.samples, gauges
        self._exposition = Exposition(host.strip("[]"), int(port), sources, self._tls)
        return f"{host}:{self._exposition.port}"

    def close(self) -> None:
        """Stops showing the metrics."""
        if self._exposition is not None:
            self._exposition.close()


def _check_extra() -> None:
    try:
        import prometheus_client  # noqa: F401, PLC0415
    except ImportError:
        raise ExtraMissingError(
            missing_extra("metrics_listen", "npucall-server", "metrics")
        ) from None
