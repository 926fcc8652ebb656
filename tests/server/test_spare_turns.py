"""A call takes further turns while they are free, and never one that somebody waits for."""

from __future__ import annotations

import threading
from contextlib import suppress
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


def test_a_call_takes_every_turn_that_is_free_and_no_more() -> None:
    taken: list[bool] = []

    def run(turn: Turn) -> None:
        with turn():
            spare = [turn.spare() for _ in range(3)]
            taken.extend(each is not None for each in spare)
            for each in spare:
                if each is not None:
                    with each:
                        pass

    subject = executor(FakeDevice(run, lanes=3))
    execute(subject, CALL)
    assert taken == [True, True, False]
    assert is_at_rest(subject)


def test_a_spare_turn_is_given_back_when_it_is_left() -> None:
    taken: list[bool] = []

    def run(turn: Turn) -> None:
        for _ in range(3):
            spare = turn.spare()
            assert spare is not None
            with spare:
                taken.append(turn.spare() is None)

    subject = executor(FakeDevice(run, lanes=1))
    execute(subject, CALL)
    assert taken == [True, True, True]
    assert is_at_rest(subject)


def test_a_turn_that_somebody_waits_for_is_not_to_spare() -> None:
    begun, ask = threading.Event(), threading.Event()
    spare: list[object] = []

    def run(turn: Turn) -> None:
        with turn():
            if begun.is_set():
                return
            begun.set()
            assert ask.wait(PATIENCE)
            spare.append(turn.spare())

    subject = executor(FakeDevice(run))
    threads = [
        threading.Thread(target=execute, args=(subject, CALL, {}, FakeCaller())) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    until(lambda: waiting(subject) == 1, "the second waits")
    ask.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert spare == [None]
    assert is_at_rest(subject)


def test_a_device_that_is_lost_has_no_turns_to_spare() -> None:
    spare: list[object] = []

    def run(turn: Turn) -> None:
        with turn():
            subject.lose(lambda: DrainingError("lost"))
            spare.append(turn.spare())

    subject = executor(FakeDevice(run, lanes=2))
    execute(subject, CALL)
    assert spare == [None]


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    cpu = CpuDevice(DEFAULT_SOC, "documented", lanes=3)
    yield cpu
    cpu.close()


def storages() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    return {name: random.random(1_000_000, np.float32).tobytes() for name in LARGE.inputs}


def test_a_large_call_on_idle_cores_gives_what_one_core_gives(device: CpuDevice) -> None:
    sent = storages()
    alone = evaluate.run(LARGE, sent)
    subject = Executor(device, Limits(8, 1 << 30, PATIENCE))
    for _ in range(5):
        assert execute(subject, LARGE, sent).outputs == [alone]


def test_calls_that_help_each_other_give_every_turn_back(device: CpuDevice) -> None:
    sent = storages()
    alone = evaluate.run(LARGE, sent)
    subject = Executor(device, Limits(8, 1 << 30, PATIENCE))
    found: list[object] = []

    def run() -> None:
        found.append(execute(subject, LARGE, sent).outputs == [alone])

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [True] * 8
    assert not subject.turns.running
    assert subject.calls_in_flight == 0


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
