"""Inputs that are no arrays: numbers, nested lists, buffers, arrays of other libraries."""

import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall import ops
from npucall.errors import ArgumentError
from npucall_client import Client

HALF = np.ones((2, 3), np.float16)
INT8 = np.array([1, 2], np.int8)


class Lent:
    """What another library has."""

    def __dlpack__(self, **wanted: Any) -> Any:
        return HALF.__dlpack__(**wanted)

    def __dlpack_device__(self) -> Any:
        return HALF.__dlpack_device__()


@each(
    ("value", "array"),
    [
        (2, HALF * 2),
        (0.5, HALF / 2),
        (-0.0, -0.0 * HALF),
        ([[1, 2, 3], [4, 5.5, 6]], np.array([[1, 2, 3], [4, 5.5, 6]], np.float16)),
        (range(3), np.arange(3, dtype=np.float16)),
        (memoryview(HALF), HALF),
        (SimpleNamespace(__array_interface__=HALF.__array_interface__, kept=HALF), HALF),
        (Lent(), HALF),
    ],
)
def test_a_value_is_the_array_that_it_means(client: Client, value: Any, array: Any) -> None:
    expected = client.run(ops.mul, HALF, array)
    for _ in range(2):  # as the second call of its kind, too
        found = client.run(ops.mul, HALF, value)
        assert found.dtype == np.float16
        assert found.tobytes() == expected.tobytes()


def test_the_dtype_is_that_of_the_first_input_that_can_hold_it(client: Client) -> None:
    assert client.run(ops.add, INT8, [3, 4], 1).dtype == np.int8
    assert client.run(ops.softmax, [[1, 2.5]], 1).dtype == np.float32
    assert client.run(ops.mul, array.array("f", [1, 2]), 2).dtype == np.float32
    labels = client.run(
        ops.nll_loss, np.float32([[1, 2], [3, 4]]), [1, 0], np.ones(2, np.float32), 1, -100
    )
    assert labels.out == -2.5
    for wide in np.float32([1, 2]), np.float16([1, 2]):  # the value alone is no key of the call
        assert client.run(ops.mul, wide, 2).dtype == wide.dtype


@each(
    ("value", "said"),
    [
        ([[1], [2, 3]], "other: expected lists of the same length"),
        (300, "other: expected numbers that INT8 can hold, .*, found 300 to 300"),
        (2**70, "other: expected numbers of up to 64 bits, found 1180591620717411303424"),
    ],
)
def test_what_no_array_can_be_is_refused(client: Client, value: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as caught:
        client.run(ops.add, INT8, value, 1)
    assert caught.value.parameter == "other"
