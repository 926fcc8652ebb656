"""npucall.memory: kept memory, and new memory that nobody has written."""

import subprocess
import sys

import numpy as np
import pytest
from tests.rows import each

from npucall import memory

PROGRAM = """
import threading
import numpy as np
from npucall import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def touch():
    array = np.empty(2**28, np.uint8)
    array[::4096] = 1

for limit in {limits}:
    kept = memory.keep(limit) if limit else False
    before = resident()
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()
    after = resident()
    memory.give_back()
    print(int(kept), (after - before) // 2**20, (resident() - before) // 2**20)
"""
"""Whether memory is kept; MiB more than before, of a freed array, and once memory is given back."""


@pytest.mark.skipif(memory._libc() is None, reason="needs Linux with glibc")
def test_a_freed_block_within_the_limit_stays_in_the_process_until_it_is_given_back() -> None:
    within, most, too_large = measured("2**30, 2**40, 2**26")
    assert within[0] == most[0] == too_large[0] == 1
    assert within[1] > 200
    assert most[1] > 200
    assert too_large[1] < 80
    assert within[2] < 20
    (without,) = measured("0,")
    assert without[0] == 0
    assert without[1] < 20


def measured(limits: str) -> list[tuple[int, ...]]:
    command = [sys.executable, "-c", PROGRAM.format(limits=limits)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [tuple(map(int, line.split())) for line in said.splitlines()]


def test_where_there_is_no_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_libc", lambda: None)
    assert (memory.keep(2**30), memory.give_back()) == (False, False)


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    memory._libc.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "darwin")
        assert memory._libc() is None
    memory._libc.cache_clear()


@each("size", [0, 1, 100, 100_000])
def test_new_memory_is_filled_with_the_pattern_in_the_debug_mode_alone(size: int) -> None:
    before = memory.is_poisoned()
    try:
        memory.poison(True)
        assert bytes(memory.fresh(size)) == b"\xa5" * size
        memory.poison(False)
        assert len(memory.fresh(size)) == size
        assert size < 100 or bytes(memory.fresh(size)) != b"\xa5" * size
    finally:
        memory.poison(before)


@each("shape", [(), (0,), (3,), (2, 0, 3), (200, 300)])
@each("dtype", [np.float32, np.float64, np.bool_, np.uint8])
def test_so_is_a_new_array_of_any_shape(shape: tuple[int, ...], dtype: type) -> None:
    array = memory.fresh_array(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.tobytes() == b"\xa5" * array.nbytes


def test_the_whole_suite_runs_in_the_debug_mode() -> None:
    assert memory.is_poisoned()
