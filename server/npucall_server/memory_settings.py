"""Settings of memory, and what the host has of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ByteSize, Field

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)
_UserId = Annotated[int, Field(ge=0, lt=2**32 - 1)]


def half_of_memory() -> ByteSize:
    """Half of the memory that the machine has, or that its control group allows, in bytes."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _CGROUP_LIMITS:
        if file.exists() and (limit := file.read_text().strip()).isdecimal():
            total = min(total, int(limit))
    return ByteSize(total // 2)


def quarter_of_memory() -> ByteSize:
    """Half of that."""
    return ByteSize(half_of_memory() // 2)


class MemorySettings(BaseModel):
    """How much memory the server takes, and what for."""

    memory_limit: ByteSize = Field(
        default_factory=half_of_memory,
        gt=0,
        description="Bytes that calls may hold at a time, from admission until their answers have "
        "been read, and the most that one tensor may hold; for example 8GiB. The process takes "
        "less than 1.5 times as much and 256 MiB, whatever callers send. Default: half of the "
        "memory.",
    )
    keep_memory: ByteSize = Field(
        ByteSize(2**30),
        ge=0,
        description="Bytes of freed host memory kept for the next calls, at most 2GiB, which makes "
        "large calls several times as fast; 0 keeps none. Given back when no call has come for ten "
        "seconds. Needs Linux with glibc, and does nothing elsewhere.",
    )
    shared_memory: Path | None = Field(
        None,
        description="Path of a Unix socket to make, that hands out memory to processes of the same "
        "user on this host, so that tensors need not travel. Linux alone.",
    )
    shared_memory_limit: ByteSize = Field(
        default_factory=quarter_of_memory,
        gt=0,
        description="Bytes of shared memory that may be in use at a time, for example 8GiB. They "
        "count towards --memory-limit. Default: a quarter of the memory.",
    )
    shared_memory_users: tuple[_UserId, ...] = Field(
        (),
        description="Numbers of the users who get shared memory besides the server's own, for "
        "example 1000,1001.",
    )
