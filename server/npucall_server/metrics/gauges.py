"""Current values, from the parts of the server that know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from npucall_server.accounts.endings import Endings
from npucall_server.accounts.ledger import Ledger
from npucall_server.devices.base import DeviceFacts
from npucall_server.metrics import declared
from npucall_server.metrics.counters import MetricSample
from npucall_server.metrics.declared import Metric
from npucall_server.scheduling.executor import Executor
from npucall_server.scheduling.gate import Gate
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.open_sessions import Sessions
from npucall_server.shared.regions import Regions

_PERCENT = 100


@dataclass(frozen=True)
class Gauges:
    """Reads the parts of one server. ``streams``: the ledger of streams."""

    executor: Executor
    streams: Ledger
    regions: Regions
    sessions: Sessions
    digests: Digests
    gate: Gate
    is_serving: Callable[[], bool]
    endings: Endings | None = None

    def samples(self) -> list[MetricSample]:
        """All current values. Those that the device does not tell are left out."""
        plain = [MetricSample(metric, (), value) for metric, value in self._plain().items()]
        device = self.executor.device
        labels = version("npucall-server"), device.name, device.soc
        facts = device.facts()
        of_device = list(_of_device(facts)) if facts else []
        return [MetricSample(declared.INFO, labels, 1), *plain, *of_device]

    def _plain(self) -> dict[Metric, float]:
        executor, shown = self.executor, self.gate.shown()
        return {
            declared.SERVING: self.is_serving(),
            declared.CALLS_IN_FLIGHT: executor.calls_in_flight,
            declared.CALLS_RUNNING: executor.turns.running,
            declared.CALLS_WAITING: executor.turns.waiting,
            declared.ENDED_UNDRAINED: self.endings.undrained if self.endings is not None else 0,
            declared.SLOWED_CALLERS: len(self.endings.slowed()) if self.endings is not None else 0,
            declared.LANES: executor.device.lanes,
            declared.QUEUE_LIMIT: executor.limits.queue_length,
            declared.BYTES_IN_FLIGHT: executor.bytes_in_flight,
            declared.WORKING_BYTES: executor.working_bytes,
            declared.MEMORY_LIMIT: executor.limits.memory_limit,
            declared.SHARED_MEMORY: self.regions.bytes_taken,
            declared.SESSIONS: len(self.sessions),
            declared.HANDLE_BYTES: self.sessions.memory.ledger.used,
            declared.HANDLE_LIMIT: self.sessions.memory.ledger.limit,
            declared.DIGEST_BYTES: self.digests.used,
            declared.DIGEST_HITS: self.digests.hits,
            declared.DIGEST_MISSES: self.digests.misses,
            declared.STREAMS: self.streams.used,
            declared.RESERVED: shown is not None,
            declared.RESERVATION_WAITING: shown.waiting if shown is not None else 0,
        }


def _of_device(facts: DeviceFacts) -> Iterator[MetricSample]:
    if facts.memory_total_bytes:
        free = facts.memory_free_bytes
        yield MetricSample(declared.DEVICE_MEMORY, ("free",), free)
        yield MetricSample(declared.DEVICE_MEMORY, ("used",), facts.memory_total_bytes - free)
    percents = {
        "cube": facts.cube_percent,
        "vector": facts.vector_percent,
        "aicpu": facts.aicpu_percent,
    }
    for unit, percent in percents.items():
        if percent is not None:
            yield MetricSample(declared.DEVICE_UTILIZATION, (unit,), percent / _PERCENT)
    if facts.healthy is not None:
        yield MetricSample(declared.DEVICE_HEALTHY, (), facts.healthy)
