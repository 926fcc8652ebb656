"""Counts and shows metrics if the setting asks for them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from npucall.texts import missing_extra
from npucall_server.metrics.counters import Counters, MetricSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from npucall_server.metrics.exposition import Exposition
    from npucall_server.settings.listener import ListenerSettings
    from npucall_server.telemetry.log import Record


class ExtraMissingError(Exception):
    """A package that the metrics need is not installed."""


class Metrics:
    """The metrics of a server; without ``metrics_listen`` there are none, and they cost nothing.

    Raises ExtraMissingError if they are wanted but the extra is not installed.
    """

    def __init__(self, settings: ListenerSettings, operators: list[str]) -> None:
        self._address = settings.metrics_listen
        self._counters = Counters(operators)
        self._exposition: Exposition | None = None
        if self._address:
            _check_extra()

    @property
    def watchers(self) -> Sequence[Callable[[Record], object]]:
        """What has to be told of each call that was answered: nothing without metrics."""
        return [self._counters.called] if self._address else []

    def show(
        self,
        gauges: Callable[[], Iterable[MetricSample]],
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> str:
        """Starts to answer scrapes. Answers the address; empty without ``metrics_listen``.

        ``gauges`` answers the current values. ``tls`` is called for each connection; None: without
        TLS. Raises OSError if the address cannot be bound.
        """
        if not self._address:
            return ""
        from npucall_server.metrics.exposition import Exposition  # noqa: PLC0415  # has the extra

        host, _, port = self._address.rpartition(":")
        sources = self._counters.samples, gauges
        self._exposition = Exposition(host.strip("[]"), int(port), sources, tls)
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
