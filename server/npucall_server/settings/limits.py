"""Settings of memory, connections, streams and messages, and what the host has of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, Field

from npucall.limits import CHUNK_BYTES
from npucall_server.settings.expert import expert

_BESIDE = 256 * 2**20
"""What a process takes at most beside 1.5 times its memory_limit."""
_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UserId = Annotated[int, Field(ge=0, lt=2**32 - 1)]
_FramesSocket = Annotated[
    Path | Literal["auto", "off"], BeforeValidator(lambda given: given or "off")
]


def memory_for(servers: int = 1) -> int:
    """What one of so many servers can have, in bytes.

    That is its share of the machine, or what its control group allows, whatever is less.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // servers
    for file in _limits():
        if file.exists() and (limit := file.read_text().strip()).isdecimal():
            total = min(total, int(limit))
    return total


def largest_limit(memory: int) -> int:
    """The largest memory_limit with which a process keeps within so much memory."""
    return max(0, memory - _BESIDE) * 2 // 3


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
    return ByteSize(memory_for(values.get("servers_per_host", 1)) // 2)


def _half_of_the_limit(values: dict[str, Any]) -> ByteSize:
    return ByteSize(max(values.get("memory_limit", 0) // 2, 1))


class MemorySettings(BaseModel):
    """How much memory the server takes, and what for."""

    servers_per_host: int = Field(
        1,
        ge=1,
        le=1000,
        description="Servers that share the memory of this machine: the default of "
        "--memory-limit divides the machine's memory by this number. It does not divide the "
        "memory of a control group, which belongs to this server alone.",
    )
    memory_limit: ByteSize = Field(
        default_factory=_share,
        gt=0,
        description="Bytes that all calls together may hold, each from its admission until its "
        "answer has been read; also the most that one tensor may have. For example 8GiB. The "
        "process takes less than 1.5 times as much and 256 MiB. Default: half of the memory of "
        "the control group, or of this server's part of the machine.",
    )
    overcommit: bool = expert(
        default=False,
        description="Also take a --memory-limit with which the process may need more memory than "
        "the control group and the machine have, so that the system may kill it.",
    )
    keep_memory: ByteSize = expert(
        ByteSize(2**30),
        ge=0,
        description="Bytes of freed host memory that the server keeps for the next calls, at "
        "most 2GiB: that makes large calls several times as fast. 0 keeps none. The server gives "
        "it back when no call has come for ten seconds, or when calls need the room within "
        "--memory-limit. Needs Linux with glibc; has no effect elsewhere.",
    )
    poison: bool = expert(
        default=False,
        description="For tests: fill new memory with a pattern, so that answers show bytes that "
        "nobody wrote.",
    )
    shared_memory: Path | None = Field(
        None,
        description="Path of a Unix socket that the server makes. It gives shared memory to "
        "processes of the same user on this host, so that tensors need not be sent. Linux only.",
    )
    shared_memory_limit: ByteSize = expert(
        default_factory=_half_of_the_limit,
        gt=0,
        description="Bytes of shared memory that may be in use at a time, for example 8GiB. "
        "They count towards --memory-limit. One process gets at most half of them. Default: half "
        "of --memory-limit.",
    )
    shared_memory_users: tuple[_UserId, ...] = expert(
        (),
        description="Numbers of users who also get shared memory, for example 1000,1001. The "
        "server's own user always does.",
    )


class PeerSettings(BaseModel):
    """How many connections there may be, and how long a peer may do nothing."""

    max_connections: int | None = expert(
        None,
        ge=1,
        description="Connections that may be open; the server closes any more at once. When "
        "most of them are in use, it closes some without calls to make room, first those that "
        "never had one. Never more than the process may have open files, less a few. Default: "
        "one for each 256KiB of --memory-limit, at least 256 and at most 4096; in frames 256.",
    )
    peer_timeout: float = expert(
        30.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        description="Seconds in which a caller that sends a request in parts has to send some "
        "bytes, or has to read some of its answer; for the first bytes of a call a third of that. "
        "Otherwise the server ends the call. It also ends a stream that has had no open call for "
        "so long.",
    )
    reflection: bool | None = expert(
        None,
        description="Tell clients such as grpcurl about the services (gRPC reflection). "
        "Default: only on a loopback address.",
    )


class ConnectionSettings(PeerSettings):
    """What callers may have open, and what travels at a time."""

    frames_socket: _FramesSocket = expert(
        "auto",
        description="Path of a Unix socket that the server makes, where clients on this host call "
        "it in frames, which cost much less than gRPC. Processes of the same user may connect, of "
        "users in --shared-memory-users, and callers of tenants. auto: on Linux a path of this "
        "server alone, in the folder npucall-USER of the system's temporary folder. off: none.",
    )
    frames_listen: str = expert(
        "",
        description="Address at which clients of other hosts call in frames: HOST:PORT, secured "
        "as --listen says, with the same prefixes; or +NUMBER, for the first HOST:PORT of --listen "
        "at a port that is so much higher, for example +1000. Default: none.",
    )
    frames_advertise: int | None = expert(
        None,
        ge=1,
        le=65535,
        description="The port of --frames-listen as clients see it, if something maps it. "
        "Default: the one that it has.",
    )
    max_message_bytes: ByteSize | None = expert(
        None,
        gt=0,
        le=2**31 - 1,
        description="Largest message in bytes, for example 64MiB; larger calls go over streams, "
        "in chunks. gRPC's own limit is 2 GiB. Default: 16MiB, or a 32nd of --memory-limit if "
        "that is less.",
    )
    max_streams: int | None = expert(
        None,
        ge=0,
        le=1000,
        description="Streams that may be open; the server refuses any more. Default: as many as "
        "fit into an eighth of --memory-limit and 32MiB, at --max-message-bytes each, and at most "
        "64.",
    )
    chunk_bytes: ByteSize = expert(
        ByteSize(CHUNK_BYTES),
        ge=64 * 2**10,
        le=3 * 2**20,  # and the rest of its frame: gRPC's clients receive 4 MiB unless told more
        description="Most bytes in one chunk of a large call, for example 256KiB. The server "
        "sends such chunks, and asks clients for no longer ones. Long chunks make large calls "
        "faster and use less CPU time; short ones keep small calls quick that run at the same "
        "time.",
    )
