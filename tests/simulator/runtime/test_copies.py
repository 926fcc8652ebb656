"""Copies, at once and later."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import pytest

from .raw import ON_DEVICE, TO_DEVICE, TO_HOST, host

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .raw import Cann

STALLED = 507015
"""What work answers that was told to stall."""


def test_a_copy_arrives(cann: Cann) -> None:
    assert cann.download(cann.upload(b"abcd"), 4) == b"abcd"


def test_a_copy_of_nothing_succeeds_even_without_addresses(cann: Cann) -> None:
    assert cann.aclrtMemcpy(None, 0, None, 0, TO_DEVICE) == 0


@pytest.mark.parametrize("kind", [6, 7, 8, -1])
def test_other_kinds_answer_100000(cann: Cann, kind: int) -> None:
    assert cann.aclrtMemcpy(cann.device(4), 4, b"abcd", 4, kind) == 100000


def test_more_bytes_than_the_destination_has_answer_107000(cann: Cann) -> None:
    assert cann.aclrtMemcpy(cann.device(4), 3, b"abcd", 4, TO_DEVICE) == 107000


def test_a_copy_behind_the_end_of_an_allocation_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    assert cann.aclrtMemcpy(cann.device(6) + 4, 4, b"abcd", 4, TO_DEVICE) == 107000
    assert simulator.violations() == [
        "aclrtMemcpy: dst: 4 bytes at byte 4 of an allocation of 6 bytes"
    ]


def test_a_copy_from_freed_device_memory_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    address = cann.upload(b"abcd")
    cann.aclrtFree(address)
    cann.aclrtMemcpy(ctypes.create_string_buffer(4), 4, address, 4, TO_HOST)
    assert simulator.violations() == [
        f"aclrtMemcpy: src ({address:#x}) is in memory that was freed"
    ]


def test_a_copy_from_freed_pinned_memory_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    source, target = cann.pinned(b"abcd"), cann.device(4)
    cann.aclrtFreeHost(source)
    assert cann.aclrtMemcpyAsync(target, 4, source, 4, TO_DEVICE, None) == 107000
    assert simulator.violations() == [
        f"aclrtMemcpyAsync: src ({source:#x}) is in memory that was freed"
    ]


def test_a_kind_that_the_addresses_contradict_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    cann.aclrtMemcpy(cann.device(4), 4, b"abcd", 4, TO_HOST)
    assert simulator.violations() == ["aclrtMemcpy: the copy's kind is 2, its addresses say 1"]


def test_the_default_kind_takes_the_direction_of_the_addresses(cann: Cann) -> None:
    target = cann.device(4)
    cann.ok(cann.aclrtMemcpy(target, 4, b"abcd", 4, 4))
    assert cann.download(target, 4) == b"abcd"


def test_no_asynchronous_copy_stays_within_the_host(cann: Cann) -> None:
    first, second = cann.pinned(b"abcd"), cann.pinned(b"efgh")
    assert cann.aclrtMemcpyAsync(first, 4, second, 4, 0, None) == 207000


def test_an_asynchronous_copy_arrives_at_the_synchronise(cann: Cann) -> None:
    target, stream = cann.pinned(b"----"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(target, 4, cann.upload(b"abcd"), 4, TO_HOST, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert host(target, 4) == b"abcd"


def test_an_asynchronous_copy_has_not_arrived_before_the_synchronise(cann: Cann) -> None:
    target, stream, other = cann.pinned(b"----"), cann.stream(), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(target, 4, cann.upload(b"abcd"), 4, TO_HOST, stream))
    cann.ok(cann.aclrtSynchronizeStream(other))
    assert host(target, 4) in {b"----", b"\xa5\xa5\xa5\xa5"}


def test_a_copy_through_pinned_memory_and_back_is_in_the_stream_s_order(cann: Cann) -> None:
    staging, target, stream = cann.pinned(b"----"), cann.device(4), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(staging, 4, cann.upload(b"abcd"), 4, TO_HOST, stream))
    cann.ok(cann.aclrtMemcpyAsync(target, 4, staging, 4, TO_DEVICE, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert cann.download(target, 4) == b"abcd"


def test_host_memory_changed_while_a_copy_reads_it_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    source, stream = cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(cann.device(4), 4, source, 4, TO_DEVICE, stream))
    ctypes.memmove(source, b"efgh", 4)
    cann.ok(cann.aclrtSynchronizeStream(stream))
    (line,) = simulator.violations()
    assert line.endswith("host memory was changed while an asynchronous copy could still read it")


@pytest.fixture
def busy(cann: Cann, simulator: Simulator) -> int:
    """A stream on which nothing more runs before the faults are cleared."""
    stream = cann.stream()
    simulator.fail("aclrtMemsetAsync", status=STALLED, what="stall")
    cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))
    return stream


def test_a_late_copy_of_pageable_memory_reads_what_is_there_then(
    cann: Cann, simulator: Simulator, busy: int
) -> None:
    source, target = ctypes.create_string_buffer(b"abcd", 4), cann.device(4)
    cann.ok(cann.aclrtMemcpyAsync(target, 4, source, 4, TO_DEVICE, busy))
    source.raw = b"efgh"
    simulator.clear_faults()
    assert cann.aclrtSynchronizeStream(busy) == STALLED
    assert (cann.download(target, 4), simulator.violations()) == (b"efgh", [])


def test_a_late_copy_into_pageable_memory_arrives_at_the_synchronise(
    cann: Cann, simulator: Simulator, busy: int
) -> None:
    target = ctypes.create_string_buffer(b"----", 4)
    cann.ok(cann.aclrtMemcpyAsync(target, 4, cann.upload(b"abcd"), 4, TO_HOST, busy))
    assert target.raw == b"----"
    simulator.clear_faults()
    assert cann.aclrtSynchronizeStream(busy) == STALLED
    assert target.raw == b"abcd"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, simulator: Simulator, bare: Cann) -> Cann:
    """With a driver that notices pageable memory."""
    monkeypatch.setenv("NPUCALL_SIM_PAGEABLE", "waits")
    simulator.reset()
    bare.ok(bare.aclInit(None))
    bare.ok(bare.aclrtSetDevice(0))
    return bare


def test_a_copy_of_pageable_memory_that_waits_is_over_when_it_returns(waiting: Cann) -> None:
    target, source = ctypes.create_string_buffer(4), waiting.upload(b"abcd")
    waiting.ok(waiting.aclrtMemcpyAsync(target, 4, source, 4, TO_HOST, waiting.stream()))
    assert target.raw == b"abcd"


def test_a_copy_of_pageable_memory_that_waits_answers_for_earlier_work(
    waiting: Cann, simulator: Simulator
) -> None:
    stream, address = waiting.stream(), waiting.device(4)
    simulator.fail("aclrtMemsetAsync", status=507053, what="at_sync")
    waiting.ok(waiting.aclrtMemsetAsync(address, 4, 0, 4, stream))
    assert waiting.aclrtMemcpyAsync(address, 4, b"abcd", 4, TO_DEVICE, stream) == 507053


def test_copies_of_pageable_memory_are_counted(cann: Cann, simulator: Simulator) -> None:
    cann.ok(cann.aclrtMemcpyAsync(cann.device(4), 4, b"abcd", 4, TO_DEVICE, None))
    assert simulator.counters()["pageable_copies"] == 1


def test_a_copy_at_once_of_what_a_stream_still_writes_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, cann.stream()))
    cann.download(address, 4)
    assert simulator.violations() == [
        "aclrtMemcpy: reads bytes that work of stream 1 may still write: nothing orders them"
    ]


def test_two_streams_that_touch_the_same_bytes_are_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, cann.stream()))
    cann.ok(cann.aclrtMemsetAsync(address, 4, 2, 4, cann.stream()))
    assert simulator.violations() == [
        "aclrtMemsetAsync: writes bytes that work of stream 1 may still write: nothing orders them"
    ]


def test_two_streams_may_touch_different_bytes_of_an_allocation(
    cann: Cann, simulator: Simulator
) -> None:
    address = cann.device(8)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, cann.stream()))
    cann.ok(cann.aclrtMemsetAsync(address + 4, 4, 2, 4, cann.stream()))
    assert simulator.violations() == []


def test_an_event_orders_two_streams(cann: Cann, simulator: Simulator) -> None:
    address, event, first, second = cann.device(4), cann.event(), cann.stream(), cann.stream()
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, first))
    cann.ok(cann.aclrtRecordEvent(event, first))
    cann.ok(cann.aclrtStreamWaitEvent(second, event))
    cann.ok(cann.aclrtMemsetAsync(address, 4, 2, 4, second))
    cann.ok(cann.aclrtSynchronizeStream(second))
    assert (cann.download(address, 4), simulator.violations()) == (b"\2\2\2\2", [])


def test_host_memory_cannot_be_filled(cann: Cann, simulator: Simulator) -> None:
    target = cann.pinned(b"abcd")
    assert cann.aclrtMemset(target, 4, 0, 4) == 107000
    assert simulator.violations() == [f"aclrtMemset: {target:#x} is no device memory"]


def seconds(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def test_a_fill_takes_as_long_as_a_copy(cann: Cann, simulator: Simulator) -> None:
    address, stream = cann.device(1000), cann.stream()
    simulator.set_delays(bytes_per_second=10_000)

    def fill_later() -> None:
        cann.ok(cann.aclrtMemsetAsync(address, 1000, 1, 1000, stream))
        cann.ok(cann.aclrtSynchronizeStream(stream))

    assert seconds(fill_later) >= 0.1
    assert seconds(lambda: cann.ok(cann.aclrtMemset(address, 1000, 1, 1000))) >= 0.1
    assert simulator.counters()["bytes_filled_by_copies"] == 2000


def test_ascend_950_has_a_task_that_fills(cann: Cann, simulator: Simulator) -> None:
    simulator.set_soc("Ascend950PR_9589")
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.download(address, 4) == b"\1\1\1\1"
    assert simulator.counters()["bytes_filled_by_copies"] == 0


def test_copied_bytes_are_counted_by_direction(cann: Cann, simulator: Simulator) -> None:
    address = cann.upload(b"abcd")
    cann.ok(cann.aclrtMemcpy(address, 4, address + 2, 2, ON_DEVICE))
    cann.download(address, 3)
    counters = simulator.counters()
    assert [
        counters["bytes_host_to_device"],
        counters["bytes_device_to_device"],
        counters["bytes_device_to_host"],
    ] == [4, 2, 3]
