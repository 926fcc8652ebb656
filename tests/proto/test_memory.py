"""Kept memory, in processes of their own, since what malloc is told counts for a whole process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from npucall import memory

needs_glibc = pytest.mark.skipif(memory._libc() is None, reason="needs Linux with glibc")
PROGRAM = """
import threading
import numpy as np
from npucall import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def touch(size):
    array = np.empty(size, np.uint8)
    array[::4096] = 1

MIB = 2**20
kept = memory.keep({limit}) if {limit} else False
before = resident()
thread = threading.Thread(target=touch, args=({size},))
thread.start()
thread.join()
after = resident()
memory.give_back()
print(kept, (after - before) // MIB, (resident() - before) // MIB)
"""


def resident_mib(*, limit: int, size: int) -> tuple[bool, int, int]:
    """Whether memory is kept; MiB more than before, after an array was freed, and given back."""
    program = PROGRAM.format(limit=limit, size=size)
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    return answer[0] == "True", int(answer[1]), int(answer[2])


@needs_glibc
def test_a_freed_block_stays_in_the_process_and_goes_when_it_is_given_back() -> None:
    kept, after_free, given_back = resident_mib(limit=2**30, size=2**28)
    assert kept
    assert after_free > 200
    assert given_back < 20


@needs_glibc
def test_without_it_a_freed_block_goes_back_at_once() -> None:
    kept, after_free, _ = resident_mib(limit=0, size=2**28)
    assert not kept
    assert after_free < 20


@needs_glibc
def test_what_exceeds_the_limit_goes_back_at_once() -> None:
    kept, after_free, _ = resident_mib(limit=2**26, size=2**28)
    assert kept
    assert after_free < 80


@needs_glibc
def test_more_than_malloc_can_be_told_counts_as_the_most() -> None:
    assert resident_mib(limit=2**40, size=2**28)[:1] == (True,)


def test_where_there_is_no_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_libc", lambda: None)
    assert (memory.keep(2**30), memory.give_back()) == (False, False)


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    memory._libc.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "darwin")
        assert memory._libc() is None
    memory._libc.cache_clear()
