"""Arrays of ``client.shared``, in memory of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.errors import DTypeError
from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

pytestmark = pytest.mark.usefixtures("sender")

ONE = np.ones((), np.float32)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with npucall_client.connect("local:") as client:
        yield client


def test_an_array_has_the_shape_and_dtype_asked_for(client: Client) -> None:
    with client.shared(4096) as memory:
        array = memory.empty((2, 3), ml_dtypes.bfloat16)
    assert (array.shape, array.dtype, array.nbytes) == ((2, 3), ml_dtypes.bfloat16, 12)


def test_an_extent_alone_is_a_shape(client: Client) -> None:
    with client.shared(4096) as memory:
        assert memory.empty(5, np.float32).shape == (5,)
        assert memory.empty(np.int64(5), np.float32).shape == (5,)


def test_zeros_are_zeros_where_something_else_was(client: Client) -> None:
    with client.shared(64) as memory:
        memory.empty(16, np.float32)[...] = 7
        memory.clear()
        assert memory.zeros(16, np.float32).tolist() == [0.0] * 16


def test_an_array_of_an_existing_one_is_a_copy_of_it(client: Client) -> None:
    given = np.arange(6, dtype=np.float16).reshape(2, 3).T
    with client.shared(4096) as memory:
        array = memory.array(given)
    given[0, 0] = 9
    assert (array.dtype, array.tolist()) == (np.float16, [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    assert array.flags.c_contiguous


def test_what_cannot_travel_has_no_place(client: Client) -> None:
    with client.shared(4096) as memory:
        with pytest.raises(DTypeError, match="array: expected a dtype among"):
            memory.array(np.array(["text"]))
        with pytest.raises(TypeError, match=r"references|object"):
            memory.empty(2, object)


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_arrays_begin_at_multiples_of_64_bytes(client: Client, size: int) -> None:
    with client.shared(4096) as memory:
        first, second = memory.empty(size, np.uint8), memory.empty(1, np.uint8)
    assert first.ctypes.data % 64 == 0
    assert second.ctypes.data - first.ctypes.data == -(-size // 64) * 64


def test_what_is_left_counts_from_the_next_such_place(client: Client) -> None:
    with client.shared(200) as memory:
        assert (memory.nbytes, memory.left) == (200, 200)
        memory.empty(65, np.uint8)
        assert memory.left == 72
        memory.empty(72, np.uint8)
        assert memory.left == 0


def test_an_array_without_room_is_a_memory_error_that_says_how_much_there_is(
    client: Client,
) -> None:
    with client.shared(200) as memory:
        memory.empty(65, np.uint8)
        with pytest.raises(MemoryError, match="72 of 200 bytes left, and the array needs 73"):
            memory.empty(73, np.uint8)
        assert memory.empty(72, np.uint8).size == 72


def test_an_empty_array_needs_no_room(client: Client) -> None:
    with client.shared(64) as memory:
        memory.empty(64, np.uint8)
        assert memory.empty((0, 3), np.float32).shape == (0, 3)


def test_clear_starts_at_the_beginning_again(client: Client) -> None:
    with client.shared(128) as memory:
        first = memory.empty(128, np.uint8)
        memory.clear()
        second = memory.empty(128, np.uint8)
    assert first.ctypes.data == second.ctypes.data


@pytest.mark.parametrize("shape", [-1, (2, -1), (-2, -3)])
def test_a_negative_extent_is_refused(client: Client, shape: int | tuple[int, ...]) -> None:
    with client.shared(64) as memory:
        with pytest.raises(ValueError, match="expected extents of 0 or more"):
            memory.empty(shape, np.uint8)
        assert memory.left == 64


@pytest.mark.parametrize("size", [0, -1])
def test_memory_of_no_bytes_is_refused(client: Client, size: int) -> None:
    with pytest.raises(ValueError, match=f"nbytes: expected 1 or more, found {size}"):
        client.shared(size)


def test_arrays_outlive_their_memory(client: Client) -> None:
    with client.shared(64) as memory:
        array = memory.array(np.arange(4, dtype=np.float32))
    memory.close()
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_closed_memory_gives_no_arrays(client: Client) -> None:
    memory = client.shared(64)
    memory.close()
    with pytest.raises(ValueError, match="the shared memory is closed"):
        memory.empty(1, np.uint8)
    assert repr(memory) == "<SharedMemory of 64 bytes, closed>"


def test_nobody_shares_the_memory_of_this_process(client: Client) -> None:
    with client.shared(64) as memory:
        assert not memory.shared


def test_a_call_with_outputs_in_it_writes_there(client: Client) -> None:
    with client.shared(4096) as memory:
        array, out = memory.array(np.array([-3, 5], np.float32)), memory.empty(2, np.float32)
        writing = client.options(outputs={"grad_input": out})
        assert writing.run(l1_loss_backward, ONE, array, np.zeros_like(ONE), reduction=2) is out
    assert out.tolist() == [-1.0, 1.0]
