"""Device memory and pinned host memory."""

from __future__ import annotations

import ctypes
import mmap
import signal
from ctypes import byref, c_size_t, c_void_p
from typing import TYPE_CHECKING

import pytest

from .raw import TO_DEVICE, host

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .raw import Cann


MIB = 2**20


def free_bytes(cann: Cann) -> int:
    """What aclrtGetMemInfo says is free."""
    free, total = c_size_t(), c_size_t()
    cann.ok(cann.aclrtGetMemInfo(1, byref(free), byref(total)))
    return free.value


def test_no_bytes_cannot_be_allocated(cann: Cann) -> None:
    made = c_void_p()
    assert [cann.aclrtMalloc(byref(made), 0, 0), cann.aclrtMallocHost(byref(made), 0)] == [
        100000,
        100000,
    ]


def test_an_allocation_takes_its_size_rounded_up_to_32_and_32_more(cann: Cann) -> None:
    before = free_bytes(cann)
    cann.device(100)
    assert before - free_bytes(cann) == 160


def test_malloc_align_32_takes_no_32_more(cann: Cann) -> None:
    before = free_bytes(cann)
    cann.made("aclrtMallocAlign32", 100, 0)
    assert before - free_bytes(cann) == 128


def test_ascend_950_takes_no_32_more(cann: Cann, simulator: Simulator) -> None:
    simulator.set_soc("Ascend950PR_9589")
    before = free_bytes(cann)
    cann.device(100)
    assert before - free_bytes(cann) == 128


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (MIB - 32, MIB),
        (MIB - 31, 2 * MIB),
        (2 * MIB - 32, 2 * MIB),
        (2 * MIB - 31, 4 * MIB),
        (2 * MIB, 4 * MIB),
        (16 * MIB, 18 * MIB),
    ],
)
def test_more_than_half_a_huge_page_takes_whole_ones(cann: Cann, size: int, taken: int) -> None:
    before = free_bytes(cann)
    address = cann.device(size)
    assert before - free_bytes(cann) == taken
    cann.ok(cann.aclrtFree(address))
    assert before == free_bytes(cann)


def test_huge_pages_count_against_the_memory_of_a_device(cann: Cann, simulator: Simulator) -> None:
    simulator.set_memory(5 * MIB)
    cann.device(2 * MIB - 32)
    assert cann.aclrtMalloc(byref(c_void_p()), 2 * MIB, 0) == 207001
    assert "4194304 bytes wanted, 2097152 of 5242880 in use" in cann.text()
    cann.device(2 * MIB - 32)
    assert simulator.counters()["device_bytes"] == 4 * MIB


def test_more_than_the_device_has_answers_207001(cann: Cann, simulator: Simulator) -> None:
    simulator.set_memory(1000)
    cann.device(700)
    assert cann.aclrtMalloc(byref(c_void_p()), 300, 0) == 207001
    assert cann.text().startswith("EL0004: [aclrtMalloc] 352 bytes wanted, 736 of 1000 in use")


def test_addresses_are_multiples_of_64_and_of_nothing_more(cann: Cann) -> None:
    assert {cann.device(1000) % 128 for _ in range(4)} == {64}


def test_an_address_is_not_given_out_again(cann: Cann) -> None:
    first = cann.device(100)
    cann.ok(cann.aclrtFree(first))
    assert cann.device(100) != first


def test_fresh_memory_is_garbage(cann: Cann) -> None:
    assert cann.download(cann.device(4), 4) == b"\xa5" * 4
    assert host(cann.made("aclrtMallocHost", 4), 4) == b"\xa5" * 4


def test_memory_freed_twice_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    address = cann.device(100)
    cann.ok(cann.aclrtFree(address))
    assert cann.aclrtFree(address) == 107000
    assert simulator.violations() == [f"aclrtFree: {address:#x} is freed already"]


def test_the_middle_of_an_allocation_cannot_be_freed(cann: Cann, simulator: Simulator) -> None:
    address = cann.device(100) + 64
    assert cann.aclrtFree(address) == 107000
    assert simulator.violations() == [f"aclrtFree: {address:#x} is not the start of its allocation"]


def test_pinned_memory_is_not_freed_as_device_memory(cann: Cann, simulator: Simulator) -> None:
    address = cann.pinned(b"abcd")
    cann.aclrtFree(address)
    assert simulator.violations() == [f"aclrtFree: {address:#x} is memory of the other kind"]


def test_null_cannot_be_freed(cann: Cann) -> None:
    assert [cann.aclrtFree(None), cann.aclrtFreeHost(None)] == [100000, 100000]


def test_bytes_written_behind_pinned_memory_are_found_at_the_free(
    cann: Cann, simulator: Simulator
) -> None:
    address = cann.pinned(b"abcd")
    ctypes.memset(address + 4, 0, 1)
    cann.aclrtFreeHost(address)
    assert simulator.violations() == [
        "aclrtFreeHost: byte 0 behind an allocation of 4 bytes was overwritten"
    ]


def test_bytes_written_behind_pinned_memory_are_found_at_a_synchronise(
    cann: Cann, simulator: Simulator
) -> None:
    ctypes.memset(cann.pinned(b"abcd") + 5, 0, 1)
    cann.aclrtSynchronizeStream(None)
    assert simulator.violations() == [
        "aclrtSynchronizeStream: byte 1 behind an allocation of 4 bytes was overwritten"
    ]


def test_memory_freed_while_work_uses_it_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    address, source, stream = cann.device(4), cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(address, 4, source, 4, TO_DEVICE, stream))
    cann.aclrtFree(address)
    assert simulator.violations() == [
        "aclrtFree: frees bytes that work of stream 1 may still write: nothing orders them"
    ]


def test_pinned_memory_freed_while_a_copy_reads_it_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    address, source, stream = cann.device(4), cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(address, 4, source, 4, TO_DEVICE, stream))
    cann.aclrtFreeHost(source)
    assert simulator.violations() == [
        "aclrtFreeHost: frees bytes that work of stream 1 may still read: nothing orders them"
    ]


def test_memory_may_be_freed_after_the_synchronise(cann: Cann, simulator: Simulator) -> None:
    address, source, stream = cann.device(4), cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(address, 4, source, 4, TO_DEVICE, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    cann.ok(cann.aclrtFree(address))
    assert simulator.violations() == []


def test_registered_memory_is_pinned_until_it_is_unregistered(
    cann: Cann, simulator: Simulator
) -> None:
    with mmap.mmap(-1, 4096) as pages:
        pages[:4] = b"abcd"
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        cann.ok(cann.aclrtHostRegister(address, 4096, 0, byref(c_void_p())))
        cann.ok(cann.aclrtMemcpyAsync(cann.device(4), 4, address, 4, TO_DEVICE, None))
        cann.ok(cann.aclrtSynchronizeStream(None))
        cann.ok(cann.aclrtHostUnregister(address))
        assert (simulator.counters()["pageable_copies"], simulator.violations()) == (0, [])


def test_unregistering_what_is_not_registered_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    assert cann.aclrtHostUnregister(cann.pinned(b"abcd")) == 107000
    assert simulator.violations()[0].endswith("is not registered")


def test_the_host_cannot_touch_device_memory(
    process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    ended = process("ctypes.memset(cann.device(64), 0, 1)")
    assert ended.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in ended.stderr


def test_the_host_cannot_touch_pinned_memory_that_was_freed(
    process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    program = "address = cann.pinned(b'abcd'); cann.aclrtFreeHost(address); host(address, 1)"
    ended = process(program)
    assert ended.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in ended.stderr


def test_counters_tell_the_peak_of_device_memory(cann: Cann, simulator: Simulator) -> None:
    first = cann.device(1000)
    cann.device(32)
    cann.aclrtFree(first)
    counters = simulator.counters()
    assert (counters["device_bytes_peak"], counters["device_bytes"]) == (1056 + 64, 64)
