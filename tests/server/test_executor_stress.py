"""Many calls at once that fail, end and are cancelled whenever it happens: nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeviceError, NpucallError

from .scripted import (
    PATIENCE,
    ScriptedCaller,
    ScriptedDevice,
    execute,
    executor,
    is_at_rest,
    prepared,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Turn

CALL = prepared()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_when_calls_fail_end_and_are_cancelled_at_any_moment(
    pool: ThreadPoolExecutor, seed: int
) -> None:
    """Deadlines and cancellations fall before, into and behind the waits, on 3 lanes."""
    stress(pool, seed, calls=500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_nothing_is_lost_in_a_long_run_of_failing_calls(
    pool: ThreadPoolExecutor, seed: int
) -> None:
    stress(pool, seed, calls=2000)


def stress(pool: ThreadPoolExecutor, seed: int, calls: int) -> None:
    random, lock = Random(seed), threading.Lock()
    held = 0
    cancels: list[ScriptedCaller] = []

    def run(turn: Turn) -> None:
        nonlocal held
        for _ in range(random.randrange(4)):
            with turn():
                with lock:
                    held += 1
                    assert held <= 3
                fault = random.randrange(8)
                if random.random() < 0.3 and cancels:
                    random.choice(cancels[-8:]).cancel()
                threading.Event().wait(0.0002)
                with lock:
                    held -= 1
                if fault == 0:
                    raise DeviceError("broken")
                if fault == 1:
                    raise MemoryError

    subject = executor(ScriptedDevice(run, lanes=3), queue_length=26, call_timeout=0.2)

    def call() -> str:
        caller = ScriptedCaller(random.choice([None, 0.0, 0.0005, 0.002, 0.01]))
        cancels.append(caller)
        try:
            execute(subject, CALL, {}, caller)
        except NpucallError as error:
            return error.reason
        except MemoryError:
            return "MEMORY"
        return "OK"

    reasons = {future.result(PATIENCE) for future in [pool.submit(call) for _ in range(calls)]}
    assert is_at_rest(subject)
    assert reasons >= {"OK", "DEADLINE", "DEVICE_ERROR"}
    assert reasons <= {
        "OK", "CANCELLED", "DEADLINE", "DEVICE_ERROR", "MEMORY", "QUEUE_FULL"
    }  # fmt: skip
