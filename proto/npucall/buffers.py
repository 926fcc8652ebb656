"""Unwritten memory: all memory whose bytes may leave the process comes from here.

It may hold what others have freed, so the caller must write all of it. The debug mode fills it with
a pattern; a test then sees a number that it does not expect where bytes were forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer

PATTERN = 0xA5
"""Of each byte: -2.9e-16 as float32, -1.2e-127 as float64, -0.022 as float16, 165 as uint8."""
_SMALL = 1 << 14
"""Bytes below which Python's own memory is there sooner than NumPy's."""


class _Mode:
    """Of this process."""

    poisoned = False


def poison(on: bool = True) -> None:  # noqa: FBT001, FBT002  # a switch
    """Turns the debug mode of this process on, or off."""
    _Mode.poisoned = on


def is_poisoned() -> bool:
    """Whether the debug mode is on."""
    return _Mode.poisoned


def fresh(size: int) -> Buffer:
    """So many bytes of anything."""
    memory = bytearray(size) if size < _SMALL else np.empty(size, np.uint8).data
    return spoilt(memory) if _Mode.poisoned else memory


def fresh_array(shape: Sequence[int], dtype: np.dtype[Any] | type[Any]) -> AnyArray:
    """A row-major array of anything."""
    array = np.empty(shape, dtype)
    if _Mode.poisoned:
        spoilt(array.reshape(-1).view(np.uint8).data)
    return array


def spoilt(memory: Buffer) -> Buffer:
    """The memory, filled with the pattern."""
    if len(memory):
        np.frombuffer(memory, np.uint8).fill(PATTERN)
    return memory
