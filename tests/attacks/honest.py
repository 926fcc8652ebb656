"""Honest callers in a process of their own: ``python -m tests.attacks.honest TARGET [large]``.

Each line on standard input ends a phase, of which one line of JSON tells; the end of the input
ends the process. A caller that is told that the server is full waits and asks again, and its call
is lost if it is not answered within PATIENCE.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.end_to_end import wire

import npucall_client
from npucall.errors import NpucallError, QueueFullError
from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

PATIENCE = 10.0
"""Seconds after which an honest call is lost."""
CALLERS = 2
_PAUSES = {"small": 0.02, "large": 1.0, "health": 0.5}
_SIZES = {"small": 256, "large": 2 * 2**20}
_AGAIN_SECONDS = 0.05


class Seen(NamedTuple):
    """What honest callers saw in a phase; times in milliseconds."""

    answered: int
    lost: int
    wrong: int
    p50: float
    p99: float
    longest: float
    health: int
    """Checks on a fresh connection that were answered SERVING within a second."""
    unhealthy: int
    why: list[str]
    """Of what was lost, each once."""

    @property
    def all_served(self) -> bool:
        return bool(self.answered) and not (self.lost or self.wrong or self.unhealthy)

    def __str__(self) -> str:
        return (
            f"{self.answered} answered, {self.lost} lost, {self.wrong} wrong, "
            f"p50 {self.p50:.1f} p99 {self.p99:.0f} longest {self.longest:.0f} ms; "
            f"health {self.health} of {self.health + self.unhealthy}"
            + (f"; {', '.join(self.why)}" if self.why else "")
        )


class Honest:
    """The callers, from outside their process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def seen(self) -> Seen:
        """What they saw since the last time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Seen(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """They ask no more."""
        self._process.kill()
        self._process.wait()


@contextmanager
def honest(target: str, *kinds: str) -> Iterator[Honest]:
    """Honest callers of a server, who have begun."""
    command = [sys.executable, "-m", "tests.attacks.honest", target, *kinds]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield Honest(process)
        finally:
            process.kill()


# --- In their process -----------------------------------------------------------------------------


@dataclass
class _Phase:
    latencies: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: int = 0
    health: list[str] = field(default_factory=list)
    running: set[object] = field(default_factory=set)

    @contextmanager
    def call(self) -> Iterator[None]:
        token = object()
        self.running.add(token)
        try:
            yield
        finally:
            self.running.discard(token)

    def seen(self) -> Seen:
        times = [1000 * latency for latency in self.latencies] or [float("inf")]
        p50, p99 = np.percentile(times, [50, 99], method="nearest")
        serving = self.health.count("SERVING")
        why = {*self.lost, *self.health, *(["hangs"] if self.running else [])} - {"SERVING"}
        return Seen(
            answered=len(self.latencies),
            lost=len(self.lost) + len(self.running),
            wrong=self.wrong,
            p50=float(p50),
            p99=float(p99),
            longest=max(times),
            health=serving,
            unhealthy=len(self.health) - serving,
            why=sorted(why),
        )


class _Callers:
    def __init__(self, target: str) -> None:
        self.target = target
        self.phase = _Phase()

    def repeat(self, what: Callable[[], None], pause: float) -> None:
        def run() -> None:
            while True:
                what()
                time.sleep(pause)

        threading.Thread(target=run, daemon=True).start()

    def caller(self, client: Client, kind: str) -> Callable[[], None]:
        numbers = np.random.default_rng().standard_normal(_SIZES[kind]).astype(np.float32)
        expected = np.sign(numbers)

        def once() -> None:
            phase, start = self.phase, time.monotonic()
            with phase.call():
                try:
                    answer = _patiently(client, numbers)
                except (NpucallError, grpc.RpcError) as error:
                    phase.lost.append(type(error).__name__)
                    return
                phase.latencies.append(time.monotonic() - start)
                phase.wrong += not np.array_equal(answer, expected)

        return once

    def check_health(self) -> None:
        phase = self.phase
        with wire.bare_channel(self.target) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=1)
                phase.health.append(
                    health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
                )
            except grpc.RpcError as error:
                phase.health.append(f"health {error.code().name}")


def _patiently(client: Client, numbers: np.ndarray) -> np.ndarray:
    end = time.monotonic() + PATIENCE
    while (left := end - time.monotonic()) > 0:
        patient = client.options(timeout=left)
        with suppress(QueueFullError):
            return patient.run(l1_loss_backward, np.float32(1), numbers, np.float32(0), reduction=2)
        time.sleep(_AGAIN_SECONDS)
    raise QueueFullError("server: full for too long")


def main(target: str, kinds: list[str]) -> None:
    callers = _Callers(target)
    for kind in ["small"] * CALLERS + kinds:
        client = npucall_client.connect(target, wait=False)
        once = callers.caller(client, kind)
        once()  # the connection stands
        callers.repeat(once, _PAUSES[kind])
    callers.repeat(callers.check_health, _PAUSES["health"])
    callers.phase = _Phase()
    print("begun", flush=True)
    for _ in sys.stdin:
        ended, callers.phase = callers.phase, _Phase()
        until = time.monotonic() + PATIENCE + 1
        while ended.running and time.monotonic() < until:
            time.sleep(_AGAIN_SECONDS)
        print(json.dumps(ended.seen()._asdict()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
