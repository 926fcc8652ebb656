"""Memory that stays on the device between calls: what it holds, and how long it is held."""

import weakref
from typing import Any

import numpy as np
import pytest

from npucall.errors import ArgumentError, OutOfMemoryError
from npucall_server.devices.base import ResidentPart

from .calls import ASKS, SMALL_ASKS, Case, declared, l1, numbers
from .faults import KERNEL_FAILED, OVERFLOW, failure
from .opened import Opened, bytes_of, release


def test_a_call_reads_handles_as_if_they_had_been_sent(device: Opened) -> None:
    wrong: list[object] = []
    for ask in ASKS:
        for offset in (0, 4, 32, 100):
            case = ask(device)
            parts = device.in_handles(case, offset)
            served = device.serves(case._replace(storages=parts))
            kept = {n: bytes(p.memory.read(p.offset, p.length)) for n, p in parts.items()}
            wrong += [] if served and kept == case.storages else [(ask, offset)]
            release(parts)
    assert wrong == []


@pytest.mark.parametrize("in_handles", [False, True], ids=["host memory", "handles"])
def test_outputs_are_written_into_the_memory_that_is_given_for_them(
    any_way: Opened, in_handles: bool
) -> None:
    wrong = []
    for ask in SMALL_ASKS:
        case = ask(any_way)
        sizes = {name: spec.storage_bytes for name, spec in case.call.outputs.items()}
        make: Any = any_way.device.allocate if in_handles else lambda n: bytearray(b"\xa5" * n)
        targets = {name: make(size) for name, size in sizes.items()}
        outputs = any_way.run(case, targets=targets).outputs[0]
        if in_handles:
            fits = outputs == list(targets.values())
            fits &= [bytes_of(target) for target in targets.values()] == case.answers
            for target in targets.values():
                target.free()
        else:
            fits = list(targets.values()) == case.answers
            fits &= all(map(shares, outputs, targets.values()))
        wrong += [] if fits else [ask]
    assert wrong == []


def shares(output: Any, target: bytearray) -> bool:
    """Whether they are the same memory."""
    target[:] = bytes(len(target))
    return bytes(output) == target


@pytest.mark.parametrize("fails", [False, True], ids=["a call that ends", "a call that fails"])
def test_nothing_of_a_call_is_held_when_it_is_over(any_way: Opened, fails: bool) -> None:
    case = l1(any_way)
    inputs = {name: np.frombuffer(data, np.uint8).copy() for name, data in case.storages.items()}
    held = [weakref.ref(array) for array in inputs.values()]
    storages = {name: array.data for name, array in inputs.items()}
    del inputs
    if fails:
        any_way.simulator.fail("aclnnL1LossBackward", status=OVERFLOW, what="at_sync")
    error = failure(lambda: any_way.run(case._replace(storages=storages)))
    assert (error is not None) == fails
    del error
    storages.clear()
    assert [array() for array in held] == [None] * 3


def test_a_handle_that_is_given_back_while_a_call_reads_it_stays_until_the_end(
    device: Opened,
) -> None:
    case = l1(device)
    storages = device.in_handles(case)
    given_back: list[int] = []

    def check() -> None:
        if not given_back:
            release(storages)
            given_back.append(device.simulator.live_objects()["aclrtMalloc"])

    assert device.answers(case._replace(storages=storages), check) == case.answers
    workspace = 1  # allocated behind the check
    assert device.simulator.live_objects()["aclrtMalloc"] == given_back[0] - 3 + workspace


def test_a_handle_that_has_been_given_back_is_refused(device: Opened) -> None:
    case = l1(device)
    storages = device.in_handles(case)
    release(storages)
    with pytest.raises(ValueError, match="given back"):
        device.run(case._replace(storages=storages))
    assert device.serves(case)


def test_half_of_the_free_memory_is_for_handles(device: Opened) -> None:
    assert device.device.memory_for_handles == (1 << 30) // 2


def test_a_handle_of_nothing_holds_no_memory(device: Opened) -> None:
    memory = device.filled(b"")
    assert bytes(memory.read(0, 0)) == b""
    memory.free()


def test_memory_that_cannot_be_given_back_is_nobodys_error(device: Opened) -> None:
    for status, lost in (107000, 0), (KERNEL_FAILED, 1):
        memory = device.device.allocate(100)
        device.simulator.fail("aclrtFree", status=status)
        memory.free()
        assert len(device.lost) == lost
    device.abandon()


def test_lack_of_memory_for_a_handle_is_told_when_lanes_have_given_theirs(device: Opened) -> None:
    assert device.serves(l1(device, 500_000))
    device.simulator.set_memory(8 << 20)
    memory = device.device.allocate(6 << 20)  # in place of what the lane kept
    with pytest.raises(OutOfMemoryError):
        device.device.allocate(6 << 20)
    memory.free()
    assert device.serves(l1(device))


# --- Labels, which are looked at before a kernel runs ---------------------------------------------


def cross_entropy(device: Opened, *labels: int) -> Case:
    tensors = {
        "grad_loss": np.array(1, np.float32),
        "log_prob": numbers(len(labels), 4, start=-20),
        "target": np.array(labels, np.int64),
    }
    return declared(device, "aclnnCrossEntropyLossGrad", **tensors)


def with_labels(device: Opened, case: Case, labels: bytes, *, told: bool) -> Case:
    """The labels in a handle, of which the device is told the dtype or not."""
    dtype = case.call.inputs["target"].dtype if told else None
    memory = device.device.allocate(len(labels), dtype)
    half = len(labels) // 2 + 3  # in the middle of a label
    memory.write(0, labels[:half])
    memory.write(half, labels[half:])
    part = ResidentPart(memory, 0, len(labels))
    return case._replace(storages={**case.storages, "target": part})


def copies(device: Opened, case: Case) -> int:
    """How often a call that is served copies what a handle holds to the host."""
    return device.functions(lambda: device.serves(case) or pytest.fail("wrong")).get(
        "aclrtMemcpy", 0
    )


@pytest.mark.parametrize("told", [True, False], ids=["told", "read back"])
def test_labels_in_a_handle_are_checked_before_a_kernel_runs(device: Opened, told: bool) -> None:
    case = cross_entropy(device, 2, 0, 1)
    wrong = with_labels(device, case, np.array([2, 0, 7]).tobytes(), told=told)
    launches = device.simulator.counters()["launches"]
    with pytest.raises(ArgumentError, match="labels from 0 to 3, found 7"):
        device.run(wrong)
    assert device.simulator.counters()["launches"] == launches
    right = with_labels(device, case, case.storages["target"], told=told)
    assert [copies(device, right) for _ in range(2)] == [0 if told else 1, 0]
    for each in wrong, right:
        each.storages["target"].memory.free()


def test_labels_that_do_not_count_are_looked_at_once(device: Opened) -> None:
    case = cross_entropy(device, 2, -100, 1)
    labels = with_labels(device, case, case.storages["target"], told=True)
    assert [copies(device, labels) for _ in range(2)] == [1, 0]
    labels.storages["target"].memory.free()
