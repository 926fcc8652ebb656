"""Every metric, declared once: exposition, documents, dashboard and alerts follow from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BOUNDS_NS = (
    *(round(10**exponent * step) for exponent in range(4, 11) for step in (1, 2.5, 5)),
    10**11,
    3 * 10**11,
)
"""The buckets of histograms of time: 10 us to 5 minutes."""


@dataclass(frozen=True)
class Metric:
    """A metric as Prometheus shows it. A histogram's series end in _bucket, _count and _sum."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


# --- Counted: what calls were ---------------------------------------------------------------

CALLS = Metric(
    "npucall_calls_total",
    "counter",
    "Calls that the server answered, also those that failed or were refused. reason is OK, or the "
    "reason of the error. operator is empty if the device does not know it. "
    "carrier is grpc or frames.",
    ("method", "operator", "tenant", "carrier", "reason"),
)
REQUEST_BYTES = Metric(
    "npucall_request_bytes_total",
    "counter",
    "Bytes of the requests of these calls.",
    ("operator", "tenant"),
)
RESPONSE_BYTES = Metric(
    "npucall_response_bytes_total",
    "counter",
    "Bytes of the answers to these calls.",
    ("operator", "tenant"),
)
DEVICE_SECONDS = Metric(
    "npucall_device_seconds_total",
    "counter",
    "Seconds that these calls held the device, by the host's clock.",
    ("operator", "tenant"),
)
CALL_SECONDS = Metric(
    "npucall_call_seconds",
    "histogram",
    "Seconds that calls which ran spent in the server, from the received message to the finished "
    "answer.",
    ("operator",),
)
PHASE_SECONDS = Metric(
    "npucall_phase_seconds",
    "histogram",
    "Seconds that calls which ran spent in a phase: queue and run; on an NPU also plan, copy_in "
    "and copy_out.",
    ("operator", "phase"),
)

# --- Read: how things are at the moment of the scrape --------------------------------------------

INFO = Metric(
    "npucall_info",
    "gauge",
    "Always 1; the labels say what the server is.",
    ("version", "device", "soc"),
)
SERVING = Metric("npucall_serving", "gauge", "1 while health is SERVING, else 0.")
ENDED_UNDRAINED = Metric(
    "npucall_ended_without_drain_total",
    "counter",
    "Processes of this server that ended without a drain; 0 if it has no state_folder.",
)
SLOWED_CALLERS = Metric(
    "npucall_slowed_callers",
    "gauge",
    "Callers whose calls ended two processes of this server, and now go one at a time.",
)
CALLS_IN_FLIGHT = Metric(
    "npucall_calls_in_flight",
    "gauge",
    "Calls that the server has admitted and that have not ended.",
)
CALLS_RUNNING = Metric("npucall_calls_running", "gauge", "Calls that run on the device now.")
CALLS_WAITING = Metric("npucall_calls_waiting", "gauge", "Calls that wait for the device.")
LANES = Metric("npucall_lanes", "gauge", "Calls that the device can run at a time.")
QUEUE_LIMIT = Metric(
    "npucall_queue_limit", "gauge", "Calls that may wait for the device: the setting queue_length."
)
BYTES_IN_FLIGHT = Metric(
    "npucall_bytes_in_flight", "gauge", "Bytes that calls hold, shared memory included."
)
WORKING_BYTES = Metric(
    "npucall_working_bytes",
    "gauge",
    "Part of npucall_bytes_in_flight: working memory of calls, without their inputs and outputs.",
)
MEMORY_LIMIT = Metric(
    "npucall_memory_limit_bytes", "gauge", "Bytes that calls may hold: the setting memory_limit."
)
SHARED_MEMORY = Metric(
    "npucall_shared_memory_bytes", "gauge", "Bytes of shared memory that are mapped."
)
SESSIONS = Metric("npucall_sessions", "gauge", "Open sessions.")
HANDLE_BYTES = Metric("npucall_handle_bytes", "gauge", "Bytes that handles hold.")
HANDLE_LIMIT = Metric(
    "npucall_handle_limit_bytes", "gauge", "Bytes that handles may hold: the setting handle_memory."
)
DIGEST_BYTES = Metric(
    "npucall_digest_bytes",
    "gauge",
    "Bytes of memory_limit that the server remembers by their digests.",
)
DIGEST_HITS = Metric(
    "npucall_digest_hits_total",
    "counter",
    "Digests that callers named and whose bytes the server had.",
)
DIGEST_MISSES = Metric(
    "npucall_digest_misses_total",
    "counter",
    "Digests that callers named and whose bytes the server did not have.",
)
STREAMS = Metric("npucall_streams", "gauge", "Open streams.")
RESERVED = Metric("npucall_reserved", "gauge", "1 while somebody has reserved the device, else 0.")
RESERVATION_WAITING = Metric(
    "npucall_reservation_waiting", "gauge", "Callers who wait for a reservation."
)
DEVICE_MEMORY = Metric(
    "npucall_device_memory_bytes",
    "gauge",
    "Memory of an NPU by state, free or used. Not shown on a CPU.",
    ("state",),
)
DEVICE_UTILIZATION = Metric(
    "npucall_device_utilization_ratio",
    "gauge",
    "How busy the units of an NPU are, 0 to 1: cube, vector, aicpu. Not shown on a CPU.",
    ("unit",),
)
DEVICE_HEALTHY = Metric(
    "npucall_device_healthy", "gauge", "1 while an NPU reports that it is healthy, else 0."
)

# --- Of a directory ------------------------------------------------------------------------------

MEMBERS = Metric(
    "npucall_directory_members",
    "gauge",
    "Only of npucall-directory: members by state: serving, draining or suspect.",
    ("state",),
)
WATCHERS = Metric(
    "npucall_directory_watchers",
    "gauge",
    "Only of npucall-directory: clients that watch the members.",
)
BEATS = Metric(
    "npucall_directory_beats_total",
    "counter",
    "Only of npucall-directory: announcements (beats) received from servers.",
)

METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All metrics, in this order."""
