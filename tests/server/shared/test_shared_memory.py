"""Regions: what clients cannot do to them, how long they stay, what they cost."""

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.fakes import ledger

from npucall.errors import (
    OutOfMemoryError,
    QueueFullError,
    SharedMemoryError,
    TensorLayoutError,
    TooLargeError,
)
from npucall.places import RegionPart
from npucall_server.shared.regions import Regions

PAGE = mmap.PAGESIZE
KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h: FALLOC_FL_*


@contextmanager
def created(regions: Regions, size: int) -> Iterator[tuple[bytes, int]]:
    """A region's id, and the descriptor that a client has."""
    name, descriptor = regions.create(size)
    try:
        yield name, descriptor
    finally:
        os.close(descriptor)


def make(regions: Regions, size: int) -> bytes:
    with created(regions, size) as (name, _):
        return name


def left_of(inode: int) -> tuple[int, int]:
    """How often a file of memory is mapped in this process, and how many descriptors it has."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = sum("/memfd:" in line and line.split()[4] == str(inode) for line in maps)
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it has been closed meanwhile
            is_memory = str(each.readlink()).startswith("/memfd:")
            found += is_memory and each.stat().st_ino == inode
    return mapped, found


def test_server_and_client_see_the_same_bytes_which_are_zeros_at_first() -> None:
    regions = Regions(1 << 20, ledger())
    with created(regions, PAGE + 5) as (name, descriptor):
        assert os.fstat(descriptor).st_size == PAGE + 5
        assert regions.view(RegionPart(name, 0, PAGE + 5), "self") == bytes(PAGE + 5)
        theirs = mmap.mmap(descriptor, PAGE + 5)
        view = regions.view(RegionPart(name, 10, 4), "self")
        theirs[10:14] = b"abcd"
        assert view == b"abcd"
        view[1:3] = b"xy"
        assert theirs[10:14] == b"axyd"


def test_its_pages_are_reserved_and_a_client_changes_neither_length_nor_seals() -> None:
    with created(Regions(1 << 20, ledger()), 10 * PAGE) as (_, descriptor):
        assert os.fstat(descriptor).st_blocks * 512 == 10 * PAGE
        for size in (0, 1, 2 * PAGE, 20 * PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_pages_that_a_client_gives_back_are_zeros_for_the_server() -> None:
    regions = Regions(1 << 20, ledger())
    with created(regions, 4 * PAGE) as (name, descriptor):
        view = regions.view(RegionPart(name, 0, 4 * PAGE), "self")
        view[:] = b"\x01" * (4 * PAGE)
        fallocate = ctypes.CDLL(None).fallocate64
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        assert fallocate(descriptor, KEEP_SIZE | PUNCH_HOLE, PAGE, 2 * PAGE) == 0
        assert view == b"\x01" * PAGE + bytes(2 * PAGE) + b"\x01" * PAGE


@given(
    st.integers(1, 3 * PAGE),
    st.integers(0, 2**64 - 1) | st.integers(0, 4 * PAGE),
    st.integers(0, 2**64 - 1) | st.integers(0, 4 * PAGE),
)
def test_a_view_has_the_bytes_of_its_part_or_is_refused(
    size: int, offset: int, length: int
) -> None:
    regions = Regions(1 << 20, ledger())
    with created(regions, size) as (name, descriptor):
        model = os.urandom(size)
        os.pwrite(descriptor, model, 0)
        region = RegionPart(name, offset, length)
        if offset + length <= size:
            assert regions.view(region, "self") == model[offset : offset + length]
        else:
            with pytest.raises(TensorLayoutError) as caught:
                regions.view(region, "self")
            assert caught.value.parameter == "self"


def test_an_unknown_id_is_refused_with_what_to_do() -> None:
    regions = Regions(PAGE, ledger())
    forgotten = make(regions, 8)
    regions.give_back(forgotten)
    for name in b"", b"x", b"x" * 16, b"x" * 1000, forgotten:
        with pytest.raises(SharedMemoryError, match="send the bytes") as caught:
            regions.view(RegionPart(name, 0, 0), "self")
        assert caught.value.parameter == "self"


def test_a_view_outlives_its_region_and_the_mapping_goes_with_it() -> None:
    regions = Regions(PAGE, ledger())
    with created(regions, 8) as (name, descriptor):
        inode = os.fstat(descriptor).st_ino
    view = regions.view(RegionPart(name, 2, 4), "self")
    regions.give_back(name)
    view[:] = b"abcd"
    assert view == b"abcd"
    assert left_of(inode) == (1, 1)  # an mmap has a descriptor of its own
    del view
    assert left_of(inode) == (0, 0)


def test_bytes_count_in_whole_pages_until_the_last_view_has_gone() -> None:
    regions = Regions(2 * PAGE, ledger())
    name = make(regions, PAGE + 1)
    view = regions.view(RegionPart(name, 0, 0), "self")
    assert regions.bytes_taken == 2 * PAGE
    regions.give_back(name)
    with pytest.raises(QueueFullError) as caught:
        regions.create(1)
    assert caught.value.details == {"limit": str(2 * PAGE), "setting": "shared_memory_limit"}
    assert caught.value.retry_after == 1.0
    del view
    assert regions.bytes_taken == 0
    make(regions, 2 * PAGE)


def test_more_than_the_limit_is_too_large_for_ever() -> None:
    for size in PAGE + 1, 2**63, 2**64 - 1:
        with pytest.raises(TooLargeError) as caught:
            Regions(PAGE, ledger()).create(size)
        assert caught.value.details == {"limit": str(PAGE), "setting": "shared_memory_limit"}


def test_at_most_256_regions_are_there_at_a_time_each_with_an_id_of_its_own() -> None:
    regions = Regions(1 << 30, ledger())
    names = [make(regions, 1) for _ in range(256)]
    assert {len(name) for name in names} == {16}
    assert len(set(names)) == 256
    with pytest.raises(QueueFullError, match="256"):
        regions.create(1)
    regions.give_back(names[0])
    make(regions, 1)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("memfd_create", OSError(errno.EMFILE, "Too many open files")),
        ("ftruncate", OverflowError("too large")),
        ("posix_fallocate", OSError(errno.ENOSPC, "No space left on device")),
        ("posix_fallocate", OSError(errno.ENOMEM, "Cannot allocate memory")),
    ],
)
def test_memory_that_the_host_does_not_have_is_refused_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    made, real = list[int](), os.memfd_create

    def watched(*arguments: Any) -> int:
        descriptor = real(*arguments)
        made.append(os.fstat(descriptor).st_ino)
        return descriptor

    regions = Regions(PAGE, ledger())
    monkeypatch.setattr(os, "memfd_create", watched)
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OutOfMemoryError, match=str(error.args[-1])):
        regions.create(PAGE)
    assert len(made) == (function != "memfd_create")
    assert [left_of(inode) for inode in made] == [(0, 0)] * len(made)
    monkeypatch.undo()
    make(regions, PAGE)
