"""A call takes further turns while they are free, and never one that somebody waits for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.errors import CancelledError, DrainingError
from npucall.products import DEFAULT_SOC
from npucall_server.devices.cpu import CpuDevice
from npucall_server.executor import Executor, Limits

from .fakes import (
    PATIENCE,
    FakeCaller,
    FakeDevice,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Turn

CALL = prepared()
LARGE = prepared(1_000_000)  # 4 blocks where threads share


@pytest.mark.parametrize("holds", [False, True])
def test_a_call_takes_every_turn_that_is_free_until_it_leaves_it(holds: bool) -> None:
    taken: list[int] = []

    def run(turn: Turn) -> None:
        with turn() if holds else nullcontext():
            for _ in range(2):
                spare = [each for _ in range(4) if (each := turn.spare()) is not None]
                taken.append(len(spare))
                for each in spare:
                    with each:
                        pass

    subject = executor(FakeDevice(run, lanes=3))
    execute(subject, CALL)
    assert taken == ([2, 2] if holds else [3, 3])
    assert is_at_rest(subject)


@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_that_somebody_waits_for_or_of_a_lost_device_is_not_to_spare(lost: bool) -> None:
    begun, ask = threading.Event(), threading.Event()
    spare: list[object] = []

    def run(turn: Turn) -> None:
        with turn():
            if begun.is_set():
                return
            begun.set()
            assert ask.wait(PATIENCE)
            spare.append(turn.spare())

    subject = executor(FakeDevice(run, lanes=2 if lost else 1))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(execute, subject, CALL)
        assert begun.wait(PATIENCE)
        if lost:
            subject.lose(lambda: DrainingError("lost"))
        else:
            pool.submit(execute, subject, CALL)
            until(lambda: waiting(subject) == 1, "the second waits")
        ask.set()
        first.result(PATIENCE)
    assert spare == [None]
    assert is_at_rest(subject)


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    cpu = CpuDevice(DEFAULT_SOC, "documented", lanes=3)
    yield cpu
    cpu.close()


def storages() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    return {name: random.random(1_000_000, np.float32).tobytes() for name in LARGE.inputs}


def test_large_calls_that_help_each_other_give_what_one_core_gives(device: CpuDevice) -> None:
    sent = storages()
    alone = evaluate.run(LARGE, sent)
    subject = Executor(device, Limits(8, 1 << 30, PATIENCE))
    assert execute(subject, LARGE, sent).outputs == [alone]
    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(execute, subject, LARGE, sent) for _ in range(8)]:
            assert call.result(PATIENCE).outputs == [alone]
    assert is_at_rest(subject)


def test_a_large_call_that_is_cancelled_leaves_no_turn_taken(device: CpuDevice) -> None:
    class Leaving(FakeCaller):
        """Goes away when it is asked for the second time whether it is there."""

        asked = 0

        def is_active(self) -> bool:
            self.asked += 1
            return self.asked < 2

    subject = Executor(device, Limits(8, 1 << 30, PATIENCE))
    with suppress(CancelledError):  # unless helpers have done all before it asks again
        execute(subject, LARGE, storages(), Leaving())
    assert not subject.turns.running
