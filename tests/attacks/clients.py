"""Clients in a process of their own: ``python -m tests.attacks.clients KIND TARGET [MORE ...]``.

``polite TARGET [large]`` callers ask the server politely, and tell what they see. Each line on
standard input ends a phase, of which one line of JSON tells. A caller that is told that the server
is full waits and asks again; its call is lost if it is not answered within PATIENCE.

``greedy TARGET WHAT COUNT`` callers take all that the server gives them. They run with the lowest
priority, since they stand for other machines. ``NPUCALL_TOKEN`` says who they are.

``hostile TARGET LIMIT`` lets loose one attack after the other, in any order.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from tests.end_to_end import wire

import npucall_client
from npucall.errors import NpucallError, QueueFullError
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import attacks, requests
from .http2 import HEALTH, pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

PATIENCE = 10.0
"""Seconds after which a polite call is lost."""
HOLD_SECONDS = 4.0
"""For which an attack stands, with its connections open."""
_SIZES = {"small": 256, "large": 2 * 2**20}
_PAUSES = {"small": 0.02, "large": 1.0, "health": 0.5}
_SERVING = b"\x08\x01"
_AGAIN_SECONDS = 0.05
ONE, ZERO = np.float32(1), np.float32(0)


@dataclass
class Seen:
    """What polite callers saw in a phase."""

    seconds: list[float] = field(default_factory=list)
    """That calls took which were answered, and right."""
    lost: list[str] = field(default_factory=list)
    """Why the others were lost."""
    health: list[str] = field(default_factory=list)
    """What fresh connections were told within a second."""
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
def clients(kind: str, target: str, *more: object, token: str = "") -> Iterator[Any]:
    """The process of such clients, who have begun."""
    command = [sys.executable, "-m", "tests.attacks.clients", kind, target, *map(str, more)]
    environment = {**os.environ, **({"NPUCALL_TOKEN": token} if token else {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@contextmanager
def polite(target: str, *kinds: str, token: str = "") -> Iterator[Callable[[], Seen]]:
    """Polite callers, and what they saw since the last time."""
    with clients("polite", target, *kinds, token=token) as process:

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
        time.sleep(_AGAIN_SECONDS)
    raise QueueFullError("server: full for too long")


def health_of(target: str) -> str:
    """What a fresh connection is told within a second."""
    with wire.bare_channel(target) as channel:
        check: Any = channel.unary_unary(HEALTH)  # type: ignore[call-arg]
        try:
            return "SERVING" if check(b"", timeout=1) == _SERVING else "NOT_SERVING"
        except grpc.RpcError as error:
            return f"health {error.code().name}"


def _polite(target: str, *kinds: str) -> None:
    phase = Seen()

    def repeat(act: Callable[[], None], pause: float) -> None:
        while True:
            act()
            time.sleep(pause)

    acts: dict[Callable[[], None], float] = {
        lambda: phase.health.append(health_of(target)): _PAUSES["health"]
    }
    for kind in "small", "small", *kinds:
        client = npucall_client.connect(target, wait=False)
        _ask(client, kind, Seen())  # the connection stands
        acts[lambda client=client, kind=kind: _ask(client, kind, phase)] = _PAUSES[kind]  # type: ignore[misc]
    for each in acts.items():
        threading.Thread(target=repeat, args=each, daemon=True).start()
    print("begun", flush=True)
    for _ in sys.stdin:
        ended, phase = phase, Seen()
        until = time.monotonic() + PATIENCE + 1
        while ended.running and time.monotonic() < until:
            time.sleep(_AGAIN_SECONDS)
        ended.lost += ["hangs"] * ended.running
        print(json.dumps(asdict(ended)), flush=True)


# --- Greedy and hostile ---------------------------------------------------------------------------


_LONG = {"ctc": requests.ctc(steps=1000, labels=100), "busy": requests.BUSY}
"""Calls of few bytes, so that callers ask faster than they are answered, however busy they are."""


def _greedy_call(target: str, kind: str) -> Callable[[], object]:
    """What a caller of that kind does again and again."""
    if kind in _LONG:
        metadata = (("authorization", f"Bearer {os.environ['NPUCALL_TOKEN']}"),)
        method = wire.method(grpc.insecure_channel(target), "Execute")
        return lambda: method(_LONG[kind], metadata=metadata)
    client = npucall_client.connect(target, wait=False)
    size = {"unary": 2**18, "large": 2**24, "streams": 2**16}[kind]
    call: Any = l1_loss_backward, ONE, np.ones(size, np.float32), ZERO
    if kind != "streams":
        return lambda: client.run(*call, reduction=2)

    def many() -> None:
        with client.pipeline() as pipeline:
            for future in [pipeline.submit(*call, reduction=2) for _ in range(64)]:
                future.result()

    return many


def _greedy(target: str, kind: str, callers: str) -> None:
    os.nice(19)

    def repeat(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except (NpucallError, grpc.RpcError) as error:
                code: Any = error.code
                if (code() if callable(code) else code).name != "RESOURCE_EXHAUSTED":
                    raise
                time.sleep(_AGAIN_SECONDS)

    for _ in range(int(callers)):
        threading.Thread(target=repeat, args=(_greedy_call(target, kind),), daemon=True).start()
    print("begun", flush=True)
    sys.stdin.read()


def _hostile(target: str, limit: str) -> None:
    let_loose = attacks.let_loose(target, int(limit))
    print("begun", flush=True)
    while True:
        with suppress(OSError, grpc.RpcError), random.choice(let_loose)() as held:
            pump(held, HOLD_SECONDS)
        time.sleep(0.1)  # a server that refuses all connections


if __name__ == "__main__":
    {"polite": _polite, "greedy": _greedy, "hostile": _hostile}[sys.argv[1]](*sys.argv[2:])  # type: ignore[operator]
