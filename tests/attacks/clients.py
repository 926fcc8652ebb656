"""Polite clients, and how clients are started that are a process of their own.

``TARGET [large]``: callers ask the server politely, and tell what they see. Those of one server ask
over gRPC, all but one; those of a pool, and that one, as NPUCALL_CARRIER says.
Each line on standard input ends a phase, of which one line of JSON tells. A caller that hears that
the server is full waits and asks again; its call is lost if it is not answered within PATIENCE.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc
import numpy as np
from tests.end_to_end import wire

import npucall_client
from npucall.errors import NpucallError, QueueFullError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client

from .http2 import HEALTH

PATIENCE = 20.0
"""Seconds after which a polite call is lost, and a health check: sooner than anything that makes no
progress is given back.
"""
_SIZES = {"small": 256, "large": 2 * 2**20}
_PAUSES = {"small": 0.02, "large": 1.0, "health": 0.5}
_SERVING = b"\x08\x01"
AGAIN_SECONDS = 0.05
ONE, ZERO = np.float32(1), np.float32(0)


@dataclass
class Seen:
    """What polite callers saw in a phase."""

    seconds: list[float] = field(default_factory=list)
    """That calls took which were answered, and right."""
    lost: list[str] = field(default_factory=list)
    """Why the others were lost."""
    health: list[str] = field(default_factory=list)
    """What fresh connections were told."""
    running: int = 0

    @property
    def all_served(self) -> bool:
        return bool(self.seconds) and not self.lost and set(self.health) <= {"SERVING"}

    @property
    def p99(self) -> float:
        return float(np.percentile(self.seconds or [float("inf")], 99, method="nearest"))

    def __str__(self) -> str:
        lost, health = dict(Counter(self.lost)), dict(Counter(self.health))
        answered = f"{len(self.seconds)} answered, p99 {1000 * self.p99:.0f} ms"
        return f"{answered}; lost {lost}; health {health}"


# --- From outside ---------------------------------------------------------------------------------


@contextmanager
def clients(
    module: str, target: str, *more: object, token: str = "", carrier: str = "auto"
) -> Iterator[Any]:
    """The process of a module's clients, who have begun. ``NPUCALL_TOKEN`` says who they are."""
    command = [sys.executable, "-m", module, target, *map(str, more)]
    environment = {**os.environ, **({"NPUCALL_TOKEN": token} if token else {})}
    environment["NPUCALL_CARRIER"] = carrier
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@contextmanager
def polite(target: str, *kinds: str, **options: str) -> Iterator[Callable[[], Seen]]:
    """Polite callers, and what they saw since the last time."""
    with clients("tests.attacks.clients", target, *kinds, **options) as process:

        def seen() -> Seen:
            process.stdin.write("\n")
            process.stdin.flush()
            return Seen(**json.loads(process.stdout.readline()))

        yield seen


# --- Polite ---------------------------------------------------------------------------------------


def _ask(client: Client, kind: str, phase: Seen) -> None:
    numbers = np.random.default_rng().standard_normal(_SIZES[kind]).astype(np.float32)
    start = time.monotonic()
    phase.running += 1
    try:
        answer = _patiently(client, numbers)
        if np.array_equal(answer, np.sign(numbers)):
            phase.seconds.append(time.monotonic() - start)
        else:
            phase.lost.append("a wrong answer")
    except (NpucallError, grpc.RpcError) as error:
        phase.lost.append(type(error).__name__)
    finally:
        phase.running -= 1


def _patiently(client: Client, numbers: np.ndarray) -> np.ndarray:
    end = time.monotonic() + PATIENCE
    while (left := end - time.monotonic()) > 0:
        patient = client.options(timeout=left)
        with suppress(QueueFullError):
            return patient.run(l1_loss_backward, ONE, numbers, ZERO, reduction=2)
        time.sleep(AGAIN_SECONDS)
    raise QueueFullError("server: full for too long")


def health_of(target: str) -> str:
    """What a fresh connection is told."""
    with wire.bare_channel(target) as channel:
        check: Any = channel.unary_unary(HEALTH)  # type: ignore[call-arg]
        try:
            return "SERVING" if check(b"", timeout=PATIENCE) == _SERVING else "NOT_SERVING"
        except grpc.RpcError as error:
            return f"health {error.code().name}"


def _polite(target: str, *kinds: str) -> None:
    phase = Seen()

    def repeat(act: Callable[[], None], pause: float) -> None:
        while True:
            act()
            time.sleep(pause)

    acts: dict[Callable[[], None], float] = {}
    if not target.startswith("pool:"):
        acts[lambda: phase.health.append(health_of(target))] = _PAUSES["health"]
    for number, kind in enumerate(("small", "small", *kinds)):
        usual = target.startswith("pool:") or not number
        options = npucall_client.Options() if usual else npucall_client.Options(carrier="grpc")
        client = npucall_client.connect(target, wait=False, options=options)
        _ask(client, kind, Seen())  # the connection stands
        acts[lambda client=client, kind=kind: _ask(client, kind, phase)] = _PAUSES[kind]  # type: ignore[misc]
    for each in acts.items():
        threading.Thread(target=repeat, args=each, daemon=True).start()
    print("begun", flush=True)
    for _ in sys.stdin:
        ended, phase = phase, Seen()
        until = time.monotonic() + PATIENCE + 1
        while ended.running and time.monotonic() < until:
            time.sleep(AGAIN_SECONDS)
        ended.lost += ["hangs"] * ended.running
        print(json.dumps(asdict(ended)), flush=True)


if __name__ == "__main__":
    _polite(*sys.argv[1:])
