"""Buffers that grow, and the pieces that tensors take in them."""

from ctypes import c_void_p

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.control import Simulator

from npucall.errors import OutOfMemoryError
from npucall_server.devices.cann.device_memory import (
    GrowingBuffer,
    PinnedBuffer,
    device_buffer,
    piece_bytes,
)
from npucall_server.devices.cann.runtime import DeviceContext

MIB, KIB = 2**20, 2**10


class FakeHeap:
    """Memory whose addresses are 1000, 2000 and so on; ``live`` holds what has not been freed."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.made: list[int] = []
        self.full = False

    def allocate(self, pointer: c_void_p, size: int) -> None:
        if self.full:
            raise OutOfMemoryError("full")
        self.made.append(size)
        pointer.value = 1000 * len(self.made)
        self.live[pointer.value] = size

    def free(self, address: int) -> None:
        del self.live[address]

    def buffer(self, granularity: int = 64) -> GrowingBuffer:
        return GrowingBuffer(self.allocate, self.free, granularity)


def test_a_buffer_grows_by_its_granularity_where_it_has_to() -> None:
    heap = FakeHeap()
    buffer = heap.buffer()
    assert (buffer.reserve(0), buffer.size, heap.made) == (None, 0, [])
    addresses = [buffer.reserve(size) for size in (65, 1, 127, 128)]
    assert (addresses, buffer.size, heap.made) == ([1000] * 4, 128, [128])
    assert (buffer.reserve(0), buffer.size) == (None, 128)  # no address for nothing
    assert (buffer.reserve(129), heap.live) == (2000, {2000: 192})


def test_a_released_buffer_is_empty_and_can_be_used_again() -> None:
    heap = FakeHeap()
    buffer = heap.buffer()
    buffer.reserve(64)
    buffer.give_back()
    buffer.give_back()
    assert (buffer.address, buffer.size, heap.live) == (None, 0, {})
    assert buffer.reserve(1) == 2000


def test_a_buffer_that_cannot_grow_is_empty() -> None:
    heap = FakeHeap()
    buffer = heap.buffer()
    buffer.reserve(64)
    heap.full = True
    with pytest.raises(OutOfMemoryError):
        buffer.reserve(65)
    assert (buffer.address, buffer.size, heap.live) == (None, 0, {})


def cleared(buffer: GrowingBuffer, size: int | None = None) -> list[tuple[int, int]]:
    """What is to be cleared: addresses and lengths."""
    found: list[tuple[int, int]] = []
    buffer.clear(lambda address, length, _: found.append((address, length)), size)
    return found


def test_who_clears_hears_how_much_may_be_cleared() -> None:
    buffer, found = FakeHeap().buffer(), []
    buffer.reserve(128)
    cleared(buffer)
    buffer.disown()
    buffer.reserve(10)
    buffer.disown()
    buffer.clear(lambda *told: found.append(told))
    assert found == [(1000, 128, 128)]


def test_new_memory_is_to_be_cleared_as_a_whole_and_once() -> None:
    buffer = FakeHeap().buffer()
    buffer.reserve(65)
    assert [cleared(buffer), cleared(buffer)] == [[(1000, 128)], []]


def test_for_another_owner_as_much_is_cleared_as_was_touched_since_the_last_one() -> None:
    buffer = FakeHeap().buffer(4096)
    for size in (4096, 10, 300, 20):
        buffer.reserve(size)
    cleared(buffer)
    buffer.disown()
    buffer.reserve(5)
    assert cleared(buffer) == [(1000, 4096)]
    buffer.reserve(40)
    buffer.disown()
    buffer.reserve(7)
    assert cleared(buffer) == [(1000, 40)]


def test_so_many_bytes_can_be_cleared_first_and_the_others_later() -> None:
    buffer = FakeHeap().buffer(4096)
    buffer.reserve(100)
    found = [cleared(buffer, size) for size in (100, 128, 200, None, None)]
    assert found == [[(1000, 128)], [], [(1128, 96)], [(1224, 4096 - 224)], []]
    buffer.disown()
    assert cleared(buffer) == [(1000, 100)]


def test_what_was_not_cleared_for_one_owner_is_cleared_for_the_next() -> None:
    buffer = FakeHeap().buffer()
    buffer.reserve(64)
    cleared(buffer)
    buffer.disown()
    buffer.disown()
    assert cleared(buffer) == [(1000, 64)]
    buffer.give_back()
    buffer.disown()
    assert cleared(buffer) == []


@given(st.lists(st.integers(0, 5000), max_size=20), st.sampled_from([1, 64, 4096]))
def test_there_is_always_room_and_never_more_than_one_allocation(
    sizes: list[int], granularity: int
) -> None:
    heap = FakeHeap()
    buffer = heap.buffer(granularity)
    for size in sizes:
        address = buffer.reserve(size)
        assert (address is None) == (size == 0)
        assert size <= buffer.size < max(*sizes, 1) + granularity
        assert buffer.size % granularity == 0
        assert heap.live == ({buffer.address: buffer.size} if buffer.address else {})


@given(st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=8))
def test_pieces_behind_each_other_leave_room_for_what_kernels_touch(lengths: list[int]) -> None:
    start = 0
    for length in lengths:
        end = start + piece_bytes(length)
        touched = start + -(-length // 32) * 32 + 32
        assert start % 512 == 0
        assert touched <= end < touched + 512
        start = end


def test_device_memory_comes_in_huge_pages_and_no_more_than_it_needs(
    simulator: Simulator, context: DeviceContext
) -> None:
    for size in (1, 2 * MIB - 32, 2 * MIB - 31, 2 * MIB, 16 * MIB - 32, 16 * MIB):
        buffer = device_buffer(context.libraries.acl)
        address = buffer.reserve(size)
        assert address is not None
        assert address % 64 == 0
        pages = -(-(size + 32) // (2 * MIB))
        assert buffer.size == pages * 2 * MIB - 32
        assert simulator.counters()["device_bytes"] == pages * 2 * MIB
        buffer.give_back()
        assert "aclrtMalloc" not in simulator.live_objects()


def test_pinned_memory_is_an_array_until_it_is_released(
    simulator: Simulator, context: DeviceContext
) -> None:
    buffer = PinnedBuffer(context.libraries.acl)
    assert buffer.bytes.size == 0
    address = buffer.reserve(100)
    assert (buffer.bytes.size, buffer.bytes.ctypes.data) == (64 * KIB, address)
    buffer.bytes[:] = 7
    first = buffer.bytes
    buffer.reserve(64 * KIB + 1)
    assert buffer.bytes.size == 128 * KIB
    assert first is not buffer.bytes
    buffer.give_back()
    assert buffer.bytes.size == 0
    assert "aclrtMallocHost" not in simulator.live_objects()
