"""Metrics from their setting: counted and shown if somebody wants them, else neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_server.metrics.counters import Counters

if TYPE_CHECKING:
    import ssl

    from npucall_server.log import Record
    from npucall_server.metrics.exposition import Exposition
    from npucall_server.metrics.gauges import Gauges
    from npucall_server.settings import ServerSettings


class ExtraMissingError(Exception):
    """What the metrics need is not installed."""


class Metrics:
    """The metrics of a server; without ``metrics_listen`` there are none, and they cost nothing.

    Raises ExtraMissingError where they are wanted and the extra is not installed.
    """

    def __init__(self, settings: ServerSettings, operators: list[str]) -> None:
        self._address = settings.metrics_listen
        self._counters = Counters(operators)
        self._exposition: Exposition | None = None
        if self._address:
            _check_extra()

    def called(self, record: Record) -> None:
        """A call has been answered."""
        if self._address:
            self._counters.called(record)

    def show(self, gauges: Gauges, tls: ssl.SSLContext | None = None) -> str:
        """Answers scrapes from here on, and tells the address; empty if nobody wants them.

        Raises OSError where the address cannot be bound.
        """
        if not self._address:
            return ""
        from npucall_server.metrics.exposition import Exposition  # noqa: PLC0415  # has the extra

        host, _, port = self._address.rpartition(":")
        sources = self._counters.samples, gauges.samples
        self._exposition = Exposition(host.strip("[]"), int(port), sources, tls)
        return f"{host}:{self._exposition.port}"

    def close(self) -> None:
        """Shows them no more."""
        if self._exposition is not None:
            self._exposition.close()


def _check_extra() -> None:
    try:
        import prometheus_client  # noqa: F401, PLC0415
    except ImportError:
        raise ExtraMissingError(
            "metrics_listen: expected the extra metrics, found it missing: "
            "pip install 'npucall-server[metrics]'"
        ) from None
