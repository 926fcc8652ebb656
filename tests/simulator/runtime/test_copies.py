"""Copies and fills, at once and later."""

import ctypes
from collections.abc import Callable
from ctypes import create_string_buffer

import pytest

from .raw import TO_DEVICE, TO_HOST, Cann, host

STALLED = 507015
"""What work answers that was told to stall."""


def test_a_copy_arrives_by_its_kind_and_what_cannot_be_is_refused(cann: Cann) -> None:
    assert cann.download(cann.upload(b"abcd"), 4) == b"abcd"
    assert cann.aclrtMemcpy(None, 0, None, 0, TO_DEVICE) == 0  # of nothing
    target = cann.device(4)
    cann.ok(cann.aclrtMemcpy(target, 4, b"abcd", 4, 4))
    assert cann.download(target, 4) == b"abcd"
    for kind in (6, 7, 8, -1):
        assert cann.aclrtMemcpy(cann.device(4), 4, b"abcd", 4, kind) == 100000
    assert cann.aclrtMemcpy(cann.device(4), 3, b"abcd", 4, TO_DEVICE) == 107000
    first, second = cann.pinned(b"abcd"), cann.pinned(b"efgh")
    for kind in (0, 4):  # none stays within the host
        assert cann.aclrtMemcpyAsync(first, 4, second, 4, kind, None) == 207000
    assert cann.violations() == []


def test_copies_of_what_is_not_there_or_of_another_kind_are_violations(cann: Cann) -> None:
    assert cann.aclrtMemcpy(cann.device(6) + 4, 4, b"abcd", 4, TO_DEVICE) == 107000
    freed, pinned, target = cann.upload(b"abcd"), cann.pinned(b"abcd"), cann.device(4)
    cann.aclrtFree(freed)
    cann.aclrtMemcpy(create_string_buffer(4), 4, freed, 4, TO_HOST)
    cann.aclrtFreeHost(pinned)
    assert cann.aclrtMemcpyAsync(target, 4, pinned, 4, TO_DEVICE, None) == 107000
    assert cann.aclrtMemcpy(target, 4, b"abcd", 4, TO_HOST) == 107000
    kept = cann.pinned(b"abcd")
    assert cann.aclrtMemset(kept, 4, 0, 4) == 107000
    assert cann.violations() == [
        "aclrtMemcpy: dst: 4 bytes at byte 4 of an allocation of 6 bytes",
        f"aclrtMemcpy: src ({freed:#x}) is in memory that was freed",
        f"aclrtMemcpyAsync: src ({pinned:#x}) is in memory that was freed",
        "aclrtMemcpy: the copy's kind is 2, its addresses say 1",
        f"aclrtMemset: {kept:#x} is no device memory",
    ]


def test_an_asynchronous_copy_arrives_at_the_synchronise_of_its_stream_in_order(cann: Cann) -> None:
    target, stream, other = cann.pinned(b"----"), cann.stream(), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(target, 4, cann.upload(b"abcd"), 4, TO_HOST, stream))
    cann.ok(cann.aclrtSynchronizeStream(other))
    assert host(target, 4) in {b"----", b"\xa5\xa5\xa5\xa5"}
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert host(target, 4) == b"abcd"
    staging, target, stream = cann.pinned(b"----"), cann.device(4), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(staging, 4, cann.upload(b"abcd"), 4, TO_HOST, stream))
    cann.ok(cann.aclrtMemcpyAsync(target, 4, staging, 4, TO_DEVICE, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert cann.download(target, 4) == b"abcd"


def test_host_memory_changed_while_a_copy_reads_it_is_a_violation(cann: Cann) -> None:
    source, stream = cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(cann.device(4), 4, source, 4, TO_DEVICE, stream))
    ctypes.memmove(source, b"efgh", 4)
    cann.ok(cann.aclrtSynchronizeStream(stream))
    (line,) = cann.violations()
    assert line.endswith("host memory was changed while an asynchronous copy could still read it")


def test_a_late_copy_of_pageable_memory_reads_what_is_there_then(cann: Cann, stalled: int) -> None:
    source, target = create_string_buffer(b"abcd", 4), cann.device(4)
    cann.ok(cann.aclrtMemcpyAsync(target, 4, source, 4, TO_DEVICE, stalled))
    source.raw = b"efgh"
    cann.clear_faults()
    assert cann.aclrtSynchronizeStream(stalled) == STALLED
    assert (cann.download(target, 4), cann.violations()) == (b"efgh", [])
    assert cann.counters()["pageable_copies"] == 1


def test_a_late_copy_into_pageable_memory_arrives_at_the_synchronise(
    cann: Cann, stalled: int
) -> None:
    target = create_string_buffer(b"----", 4)
    cann.ok(cann.aclrtMemcpyAsync(target, 4, cann.upload(b"abcd"), 4, TO_HOST, stalled))
    assert target.raw == b"----"
    cann.clear_faults()
    assert cann.aclrtSynchronizeStream(stalled) == STALLED
    assert target.raw == b"abcd"


def test_with_a_driver_that_notices_it_a_copy_is_over_when_it_returns(
    cann: Cann, again: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And answers for earlier work."""
    monkeypatch.setenv("NPUCALL_SIM_PAGEABLE", "waits")
    again()
    target, source, stream = create_string_buffer(4), cann.upload(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(target, 4, source, 4, TO_HOST, stream))
    assert target.raw == b"abcd"
    cann.fail("aclrtMemsetAsync", status=507053, what="at_sync")
    cann.ok(cann.aclrtMemsetAsync(source, 4, 0, 4, stream))
    assert cann.aclrtMemcpyAsync(source, 4, b"abcd", 4, TO_DEVICE, stream) == 507053


# --- Streams that touch the same bytes ------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 4])
def test_two_streams_that_touch_the_same_bytes_are_a_violation(cann: Cann, at: int) -> None:
    address = cann.device(8)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, cann.stream()))
    cann.ok(cann.aclrtMemsetAsync(address + at, 4, 2, 4, cann.stream()))
    said = "bytes that work of stream 1 may still write: nothing orders them"
    assert cann.violations() == ([] if at else [f"aclrtMemsetAsync: writes {said}"])
    if not at:  # so is a copy at once
        cann.download(address, 4)
        assert f"aclrtMemcpy: reads {said}" in cann.violations()


@pytest.mark.parametrize(("soc", "copied"), [("Ascend910B2", 8), ("Ascend950PR_9589", 0)])
def test_fills_are_copies_but_ascend_950_has_a_task_for_them(
    cann: Cann, soc: str, copied: int
) -> None:
    cann.set_soc(soc)
    address = cann.device(4)
    cann.ok(cann.aclrtMemset(address, 4, 7, 4))
    cann.ok(cann.aclrtMemsetAsync(address, 4, 1, 4, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.download(address, 4) == b"\1\1\1\1"
    assert cann.counters()["bytes_filled_by_copies"] == copied
