"""Shows the metrics to Prometheus, on a port of their own, by ``prometheus_client``.

The values are collected during a scrape. Without scrapes this costs nothing.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import ThreadingHTTPServer
from itertools import accumulate, groupby
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from npucall_server.metrics.counters import Buckets, MetricSample
from npucall_server.metrics.declared import BOUNDS_NS, METRICS

_PATIENCE_SECONDS = 10.0
"""How long a peer may take to ask and to read."""
_MOST_PEERS = 16
_BOUNDS = (*(f"{bound / 1e9:g}" for bound in BOUNDS_NS), "+Inf")


class _Samples(Collector):
    """All metrics as prometheus_client's families."""

    def __init__(self, sources: Iterable[Callable[[], Iterable[MetricSample]]]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[Family]:
        samples = [sample for source in self._sources for sample in source()]
        order = {metric: place for place, metric in enumerate(METRICS)}
        samples.sort(key=lambda sample: (order[sample.metric], sample.labels))
        for _, group in groupby(samples, lambda sample: order[sample.metric]):
            yield _family(list(group))

    def describe(self) -> Iterator[Family]:
        """Answers nothing, so that registering collects nothing."""
        return iter(())


class Exposition:
    """Answers scrapes of ``GET /metrics`` on an address until it is closed.

    ``tls`` is called for each connection; None: without TLS. Raises OSError if the address cannot
    be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        sources: Iterable[Callable[[], Iterable[MetricSample]]],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        registry = CollectorRegistry()
        registry.register(_Samples(sources))
        ProcessCollector(registry=registry)
        self._http = _Server((host, port), MetricsHandler.factory(registry), tls)
        self.port: int = self._http.server_port
        threading.Thread(
            target=self._http.serve_forever, name="npucall-metrics", daemon=True
        ).start()

    def close(self) -> None:
        """Stops answering."""
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    """Serves a few peers at a time. No peer can keep the others waiting."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: Any, tls: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._tls = tls
        self._peers = threading.BoundedSemaphore(_MOST_PEERS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Binds without looking up the name of the host, which may take seconds."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuses a peer if there is no room."""
        del request, client_address
        return self._peers.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Runs in the peer's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._peers.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Does the TLS handshake here, in the peer's thread."""
        connection: socket.socket = request
        connection.settimeout(_PATIENCE_SECONDS)
        if self._tls is not None:
            connection = self._tls().wrap_socket(connection, server_side=True)
        try:
            handler: Any = self.RequestHandlerClass
            handler(connection, client_address, self)
        finally:
            if self._tls is not None:
                connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores peers that go away or do not speak TLS."""


def _family(samples: list[MetricSample]) -> Family:
    metric = samples[0].metric
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for _, labels, value in samples:
            assert isinstance(value, Buckets)  # noqa: S101  # declared so
            buckets = list(zip(_BOUNDS, accumulate(value.counts), strict=True))
            histogram.add_metric(labels, buckets, value.seconds)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: Any = kind(metric.name, metric.meaning, labels=metric.labels)
    for _, labels, value in samples:
        family.add_metric(labels, value)
    return family
