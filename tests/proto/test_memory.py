"""Kept memory, in a process of its own, since what malloc is told counts for a whole process."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
