"""Device memory and pinned host memory."""

import ctypes
import signal
import subprocess
from collections.abc import Callable
from ctypes import byref, c_size_t, c_void_p

import pytest

from .raw import TO_DEVICE, Cann, host

MIB = 2**20


def taken(cann: Cann, size: int, function: str = "aclrtMalloc") -> int:
    """The bytes that an allocation takes of the device; they come back when it is freed."""

    def free_bytes() -> int:
        free, total = c_size_t(), c_size_t()
        cann.ok(cann.aclrtGetMemInfo(1, byref(free), byref(total)))
        return free.value

    before = free_bytes()
    address = cann.made(function, size, 0)
    found = before - free_bytes()
    cann.ok(cann.aclrtFree(address))
    assert free_bytes() == before
    return found


def test_an_allocation_takes_its_size_rounded_up_and_large_ones_whole_pages(cann: Cann) -> None:
    sizes = {
        MIB - 32: MIB,
        MIB - 31: 2 * MIB,
        2 * MIB - 32: 2 * MIB,
        2 * MIB - 31: 4 * MIB,
        2 * MIB: 4 * MIB,
        16 * MIB: 18 * MIB,
    }
    assert {size: taken(cann, size) for size in sizes} == sizes
    assert (taken(cann, 100), taken(cann, 100, "aclrtMallocAlign32")) == (160, 128)
    cann.set_soc("Ascend950PR_9589")
    assert taken(cann, 100) == 128


def test_more_than_the_device_has_answers_207001(cann: Cann) -> None:
    made = c_void_p()
    cann.set_memory(5 * MIB)
    cann.device(2 * MIB - 32)
    assert cann.aclrtMalloc(byref(made), 2 * MIB, 0) == 207001
    assert "4194304 bytes wanted, 2097152 of 5242880 in use" in cann.text()
    cann.device(2 * MIB - 32)
    assert cann.counters()["device_bytes"] == 4 * MIB
    cann.set_memory(4 * MIB + 1000)
    cann.device(700)
    assert cann.aclrtMalloc(byref(made), 300, 0) == 207001
    said = f"EL0004: [aclrtMalloc] 352 bytes wanted, {4 * MIB + 736} of {4 * MIB + 1000} in use"
    assert cann.text().startswith(said)


def test_fresh_memory_is_aligned_garbage_at_a_new_address_and_never_of_no_bytes(cann: Cann) -> None:
    addresses = [cann.device(1000) for _ in range(4)]
    assert {address % 128 for address in addresses} == {64}
    cann.ok(cann.aclrtFree(addresses[0]))
    assert cann.device(1000) not in addresses
    assert cann.download(cann.device(4), 4) == b"\xa5" * 4
    assert host(cann.made("aclrtMallocHost", 4), 4) == b"\xa5" * 4
    made = c_void_p()
    assert [cann.aclrtMalloc(byref(made), 0, 0), cann.aclrtMallocHost(byref(made), 0)] == [
        100000
    ] * 2
    assert [cann.aclrtFree(None), cann.aclrtFreeHost(None)] == [100000] * 2


def test_memory_is_freed_once_as_a_whole_and_by_the_function_of_its_kind(cann: Cann) -> None:
    address = cann.device(100)
    assert cann.aclrtFree(address + 64) == 107000
    cann.ok(cann.aclrtFree(address))
    assert cann.aclrtFree(address) == 107000
    pinned = cann.pinned(b"abcd")
    cann.aclrtFree(pinned)
    assert cann.violations() == [
        f"aclrtFree: {address + 64:#x} is not the start of its allocation",
        f"aclrtFree: {address:#x} is freed already",
        f"aclrtFree: {pinned:#x} is memory of the other kind",
    ]


def test_bytes_written_behind_pinned_memory_are_found_at_the_free_or_a_synchronise(
    cann: Cann,
) -> None:
    address = cann.pinned(b"abcd")
    ctypes.memset(address + 4, 0, 1)
    cann.aclrtFreeHost(address)
    said = "behind an allocation of 4 bytes was overwritten"
    assert cann.violations() == [f"aclrtFreeHost: byte 0 {said}"]
    ctypes.memset(cann.pinned(b"abcd") + 5, 0, 1)
    cann.aclrtSynchronizeStream(None)
    assert cann.violations() == [f"aclrtSynchronizeStream: byte 1 {said}"]


@pytest.mark.parametrize("free", ["aclrtFree", "aclrtFreeHost", ""])
def test_memory_freed_while_work_uses_it_is_a_violation(cann: Cann, free: str) -> None:
    address, source, stream = cann.device(4), cann.pinned(b"abcd"), cann.stream()
    cann.ok(cann.aclrtMemcpyAsync(address, 4, source, 4, TO_DEVICE, stream))
    if not free:
        cann.ok(cann.aclrtSynchronizeStream(stream))
        cann.ok(cann.aclrtFree(address))
        assert cann.violations() == []
        return
    cann.aclrtFree(address) if free == "aclrtFree" else cann.aclrtFreeHost(source)
    what = "write" if free == "aclrtFree" else "read"
    said = f"frees bytes that work of stream 1 may still {what}: nothing orders them"
    assert cann.violations() == [f"{free}: {said}"]


@pytest.mark.parametrize(
    "program",
    ["ctypes.memset(cann.device(64), 0, 1)",
     "address = cann.pinned(b'abcd'); cann.aclrtFreeHost(address); host(address, 1)",
     "cann.fail('aclrtMalloc', status=1, what='crash'); cann.device(4)"],
    ids=["device memory", "freed pinned memory", "a function that is told to crash"],
)  # fmt: skip
def test_the_host_cannot_touch_what_is_not_its_own(
    process: Callable[..., subprocess.CompletedProcess[str]], program: str
) -> None:
    ended = process(program)
    assert ended.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in ended.stderr
