"""Every metric, declared once: exposition, documents, dashboard and alerts follow from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BOUNDS_NS = (
    *(round(10**exponent * step) for exponent in range(4, 11) for step in (1, 2.5, 5)),
    10**11,
    3 * 10**11,
)
"""Of histograms of time: 10 us to 5 minutes."""


@dataclass(frozen=True)
class Metric:
    """A metric as Prometheus shows it. A histogram's series end in _bucket, _count and _sum."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Names that a query may ask for."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


# --- Counted: by what calls were ---------------------------------------------------------------

CALLS = Metric(
    "npucall_calls_total",
    "counter",
    "Calls that were answered, with those that failed or were refused; reason is OK, or that of "
    "the error. An operator that the device does not know is empty.",
    ("method", "operator", "tenant", "reason"),
)
REQUEST_BYTES = Metric(
    "npucall_request_bytes_total", "counter", "Bytes of their requests.", ("operator", "tenant")
)
RESPONSE_BYTES = Metric(
    "npucall_response_bytes_total", "counter", "Bytes of their answers.", ("operator", "tenant")
)
DEVICE_SECONDS = Metric(
    "npucall_device_seconds_total",
    "counter",
    "Seconds for which they held the device, by the host's clock.",
    ("operator", "tenant"),
)
CALL_SECONDS = Metric(
    "npucall_call_seconds",
    "histogram",
    "Seconds in the server of calls that ran, from the received message to the finished answer.",
    ("operator",),
)
PHASE_SECONDS = Metric(
    "npucall_phase_seconds",
    "histogram",
    "Seconds of a phase of calls that ran: queue and run; on an NPU also plan, copy_in and "
    "copy_out.",
    ("operator", "phase"),
)

# --- Read: how things are at the moment of the scrape --------------------------------------------

INFO = Metric(
    "npucall_info", "gauge", "1; the labels say what the server is.", ("version", "device", "soc")
)
SERVING = Metric("npucall_serving", "gauge", "1 while health is SERVING, else 0.")
CALLS_IN_FLIGHT = Metric(
    "npucall_calls_in_flight", "gauge", "Calls that are admitted and not dismissed."
)
CALLS_RUNNING = Metric("npucall_calls_running", "gauge", "Turns on the device that are taken.")
CALLS_WAITING = Metric("npucall_calls_waiting", "gauge", "Calls that wait for a turn.")
LANES = Metric("npucall_lanes", "gauge", "Turns that there are at a time.")
QUEUE_LIMIT = Metric(
    "npucall_queue_limit", "gauge", "Calls that may wait; the setting queue_length."
)
BYTES_IN_FLIGHT = Metric(
    "npucall_bytes_in_flight", "gauge", "Bytes that callers hold, shared memory counted."
)
WORKING_BYTES = Metric(
    "npucall_working_bytes",
    "gauge",
    "Of these, bytes for computing calls beside their inputs and outputs.",
)
MEMORY_LIMIT = Metric(
    "npucall_memory_limit_bytes", "gauge", "Bytes that they may hold; the setting memory_limit."
)
SHARED_MEMORY = Metric(
    "npucall_shared_memory_bytes", "gauge", "Bytes of shared memory that is mapped."
)
SESSIONS = Metric("npucall_sessions", "gauge", "Sessions that are open.")
HANDLE_BYTES = Metric("npucall_handle_bytes", "gauge", "Bytes that handles hold.")
HANDLE_LIMIT = Metric(
    "npucall_handle_limit_bytes", "gauge", "Bytes that they may hold; the setting handle_memory."
)
DIGEST_BYTES = Metric(
    "npucall_digest_bytes", "gauge", "Bytes of memory_limit that are kept by their digests."
)
DIGEST_HITS = Metric(
    "npucall_digest_hits_total", "counter", "Questions for bytes by a digest that were kept."
)
DIGEST_MISSES = Metric(
    "npucall_digest_misses_total", "counter", "Questions for bytes by a digest that were not."
)
STREAMS = Metric("npucall_streams", "gauge", "Streams that are open.")
RESERVED = Metric("npucall_reserved", "gauge", "1 while somebody has reserved the device, else 0.")
RESERVATION_WAITING = Metric(
    "npucall_reservation_waiting", "gauge", "Callers who wait for a reservation."
)
DEVICE_MEMORY = Metric(
    "npucall_device_memory_bytes",
    "gauge",
    "Memory of an NPU by state, free or used. A CPU has none.",
    ("state",),
)
DEVICE_UTILIZATION = Metric(
    "npucall_device_utilization_ratio",
    "gauge",
    "0 to 1, how busy the units of an NPU are: cube, vector, aicpu. A CPU has none.",
    ("unit",),
)
DEVICE_HEALTHY = Metric(
    "npucall_device_healthy", "gauge", "1 where an NPU says that it is well, else 0."
)

# --- Of a directory ------------------------------------------------------------------------------

MEMBERS = Metric(
    "npucall_directory_members",
    "gauge",
    "Of npucall-directory: members by state, serving, draining or suspect.",
    ("state",),
)
WATCHERS = Metric(
    "npucall_directory_watchers", "gauge", "Of npucall-directory: clients that watch."
)
BEATS = Metric(
    "npucall_directory_beats_total", "counter", "Of npucall-directory: beats of servers."
)

METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of them, in this order."""
