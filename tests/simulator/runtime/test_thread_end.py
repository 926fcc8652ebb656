"""The end of a thread that made a first phase, which comes later than Python says."""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from .helpers import native_end, relu_once

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann

MILLISECONDS = 300


@pytest.fixture(autouse=True)
def _slow(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", str(MILLISECONDS))
    simulator.reset()


def used(cann: Cann) -> None:
    """What a thread does that runs a call."""
    cann.ok(cann.aclrtSetDevice(0))
    relu_once(cann)
    cann.ok(cann.aclrtResetDevice(0))


def give_all_back(cann: Cann, simulator: Simulator) -> None:
    """Memory and descriptors are the tests' own business."""
    cann.ok(cann.aclrtResetDevice(0))
    simulator.violations()


def ended(simulator: Simulator) -> list[str]:
    """The violations, once the thread has ended; join does not wait for that before 3.13."""
    time.sleep(2 * MILLISECONDS / 1000)
    return simulator.violations()


def test_a_thread_that_has_ended_may_lose_its_device(cann: Cann, simulator: Simulator) -> None:
    native_end(lambda: used(cann))
    give_all_back(cann, simulator)
    assert ended(simulator) == []


def test_a_device_reset_while_a_thread_ends_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    thread = Thread(target=used, args=(cann,))
    thread.start()
    while thread.is_alive():
        pass
    give_all_back(cann, simulator)
    assert ended(simulator) == [
        "end of a thread: the context of its phase ones was released before"
    ]


def test_cann_finalised_while_a_thread_ends_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    thread = Thread(target=used, args=(cann,))
    thread.start()
    while thread.is_alive():
        pass
    give_all_back(cann, simulator)
    cann.ok(cann.aclFinalize())
    simulator.violations()
    assert ended(simulator) == ["end of a thread: CANN was finalised before"]


def test_a_thread_that_made_no_first_phase_ends_at_once(cann: Cann, simulator: Simulator) -> None:
    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        cann.ok(cann.aclrtResetDevice(0))

    native_end(run)
    give_all_back(cann, simulator)
    assert ended(simulator) == []
