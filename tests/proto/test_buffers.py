"""npucall.buffers: new memory shows, in the debug mode, that nobody wrote it."""

from __future__ import annotations

import numpy as np
from tests.rows import each

from npucall import buffers


@each("size", [0, 1, 100, 100_000])
def test_new_memory_is_filled_with_the_pattern_in_the_debug_mode_alone(size: int) -> None:
    before = buffers.is_poisoned()
    try:
        buffers.poison(True)
        assert bytes(buffers.fresh(size)) == b"\xa5" * size
        buffers.poison(False)
        assert len(buffers.fresh(size)) == size
        assert size < 100 or bytes(buffers.fresh(size)) != b"\xa5" * size
    finally:
        buffers.poison(before)


@each("shape", [(), (0,), (3,), (2, 0, 3), (200, 300)])
@each("dtype", [np.float32, np.float64, np.bool_, np.uint8])
def test_so_is_a_new_array_of_any_shape(shape: tuple[int, ...], dtype: type) -> None:
    array = buffers.fresh_array(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.tobytes() == b"\xa5" * array.nbytes


def test_the_whole_suite_runs_in_the_debug_mode() -> None:
    assert buffers.is_poisoned()
