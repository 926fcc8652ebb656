"""The phase-one cache that every thread has."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

from .helpers import in_thread, native_end, relu_once

if TYPE_CHECKING:
    import pytest
    from tests.simulator.control import Simulator

    from .raw import Cann


def hits(simulator: Simulator) -> int:
    """Phase ones answered from a cache so far."""
    return simulator.counters()["cache_hits"]


def test_the_same_call_again_is_answered_from_the_cache(cann: Cann, simulator: Simulator) -> None:
    relu_once(cann)
    relu_once(cann)
    assert hits(simulator) == 1


def test_another_shape_is_another_entry(cann: Cann, simulator: Simulator) -> None:
    relu_once(cann)
    relu_once(cann, 9)
    assert hits(simulator) == 0


def test_an_entry_is_usable_after_its_first_phase_two(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    cann.planned("aclnnRelu", source, target)
    relu_once(cann)
    assert hits(simulator) == 0


def test_every_thread_has_a_cache_of_its_own(cann: Cann, simulator: Simulator) -> None:
    relu_once(cann)

    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        relu_once(cann)

    in_thread(run)
    assert hits(simulator) == 0


def test_the_cache_can_be_switched_off(
    cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISABLE_L2_CACHE", "1")
    relu_once(cann)
    relu_once(cann)
    assert hits(simulator) == 0


def test_the_cache_holds_as_many_entries_as_its_limit(
    cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACLNN_CACHE_LIMIT", "1")
    relu_once(cann)
    relu_once(cann, 9)
    relu_once(cann)
    assert hits(simulator) == 0


def test_the_deterministic_option_is_part_of_the_key(cann: Cann, simulator: Simulator) -> None:
    relu_once(cann)
    cann.ok(cann.aclrtSetSysParamOpt(0, 1))
    relu_once(cann)
    assert hits(simulator) == 0


def test_one_descriptor_for_two_parameters_is_part_of_the_key(
    cann: Cann, simulator: Simulator
) -> None:
    relu_once(cann)
    tensor = cann.tensor(cann.device(32), [8])
    cann.planned("aclnnRelu", tensor, tensor)
    assert hits(simulator) == 0


def test_an_executor_of_the_cache_launches_with_the_addresses_of_its_call(
    cann: Cann, simulator: Simulator
) -> None:
    relu_once(cann)
    source, _, *tensors = cann.relu()
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclrtFree(source))
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.violations() == [f"aclnnRelu: self ({source:#x}) is in memory that was freed"]


def test_an_executor_of_the_cache_is_not_repeatable(cann: Cann) -> None:
    relu_once(cann)
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 561000


def test_an_executor_of_a_cache_whose_thread_ended_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executors = []

    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        relu_once(cann)
        *_, source, target = cann.relu()
        executors.append(cann.planned("aclnnRelu", source, target).executor)

    native_end(run)
    cann.aclnnRelu(None, 0, executors[0], None)
    assert simulator.violations() == [
        "aclnnRelu: the thread of phase one, whose cache holds the executor, has ended"
    ]


def test_a_phase_two_may_run_on_another_thread(cann: Cann, simulator: Simulator) -> None:
    executors, planned, launched = [], Event(), Event()

    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        relu_once(cann)
        *_, source, target = cann.relu()
        executors.append(cann.planned("aclnnRelu", source, target).executor)
        planned.set()
        launched.wait(10)

    thread = Thread(target=run)
    thread.start()
    planned.wait(10)
    cann.ok(cann.aclnnRelu(None, 0, executors[0], None))
    launched.set()
    thread.join()
    assert simulator.violations() == []


def test_a_repeatable_executor_takes_its_call_out_of_the_cache(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    relu_once(cann)
    assert hits(simulator) == 0
