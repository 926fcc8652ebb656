"""Settings of memory, and what the host has of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ByteSize, Field

if TYPE_CHECKING:
    from collections.abc import Iterator

_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UserId = Annotated[int, Field(ge=0, lt=2**32 - 1)]


def half_of_memory(servers: int = 1) -> ByteSize:
    """Half of what one of so many servers can have, in bytes.

    That is its share of the machine, or what its control group allows, whatever is less.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // servers
    for file in _limits():
        if file.exists() and (limit := file.read_text().strip()).isdecimal():
            total = min(total, int(limit))
    return ByteSize(total // 2)


def _limits() -> Iterator[Path]:
    """The files of the control groups that this process is in, of both versions."""
    lines = _OWN_CGROUP.read_text().splitlines() if _OWN_CGROUP.exists() else []
    groups = {kind: Path(path) for _, kind, path in (line.split(":", 2) for line in lines)}
    for kind, root, name in (
        ("", _CGROUPS, "memory.max"),
        ("memory", _CGROUPS / "memory", "memory.limit_in_bytes"),
    ):
        own = groups.get(kind, Path("/"))
        for group in (own, *own.parents):  # a container sees its own group at the root
            yield root / group.relative_to("/") / name


def _share(values: dict[str, Any]) -> ByteSize:
    return half_of_memory(values.get("servers_per_host", 1))


def _half_a_share(values: dict[str, Any]) -> ByteSize:
    return ByteSize(_share(values) // 2)


class MemorySettings(BaseModel):
    """How much memory the server takes, and what for."""

    servers_per_host: int = Field(
        1,
        ge=1,
        le=1000,
        description="Servers that share the memory of this machine: what the defaults of "
        "--memory-limit and --shared-memory-limit take for theirs is divided by it. A control "
        "group's memory is the server's own, and is not divided.",
    )
    memory_limit: ByteSize = Field(
        default_factory=_share,
        gt=0,
        description="Bytes that calls may hold at a time, from admission until their answers have "
        "been read, and the most that one tensor may hold; for example 8GiB. The process takes "
        "less than 1.5 times as much and 256 MiB, whatever callers send. Default: half of the "
        "memory that the control group has, or the machine for each of its servers.",
    )
    keep_memory: ByteSize = Field(
        ByteSize(2**30),
        ge=0,
        description="Bytes of freed host memory kept for the next calls, at most 2GiB, which makes "
        "large calls several times as fast; 0 keeps none. Given back when no call has come for ten "
        "seconds. Needs Linux with glibc, and does nothing elsewhere.",
    )
    poison: bool = Field(
        default=False,
        description="For tests: fill new memory with a pattern, so that bytes which nobody wrote "
        "show in answers.",
    )
    shared_memory: Path | None = Field(
        None,
        description="Path of a Unix socket to make, that hands out memory to processes of the same "
        "user on this host, so that tensors need not travel. Linux alone.",
    )
    shared_memory_limit: ByteSize = Field(
        default_factory=_half_a_share,
        gt=0,
        description="Bytes of shared memory that may be in use at a time, for example 8GiB. They "
        "count towards --memory-limit. Default: half of what is the default there. One process has "
        "at most half of it.",
    )
    shared_memory_users: tuple[_UserId, ...] = Field(
        (),
        description="Numbers of the users who get shared memory besides the server's own, for "
        "example 1000,1001.",
    )
