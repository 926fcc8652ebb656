"""Settings of connections, streams and messages."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ByteSize, Field

from npucall.limits import CHUNK_BYTES
from npucall_server.settings.expert import EXPERT


class PeerSettings(BaseModel):
    """How many connections there may be, and how long a peer may do nothing."""

    max_connections: int = Field(
        256,
        ge=1,
        json_schema_extra=EXPERT,
        description="Connections that may be open; the server closes any more at once. When "
        "most of them are in use, it closes some without calls to make room. Never more than the "
        "process may have open files, less a few.",
    )
    peer_timeout: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        json_schema_extra=EXPERT,
        description="Seconds in which a caller that sends a request in parts has to send some "
        "bytes, or has to read some of its answer; for the first bytes of a call a third of that. "
        "Otherwise the server ends the call. It also ends a stream that has had no open call for "
        "so long.",
    )
    reflection: bool | None = Field(
        None,
        json_schema_extra=EXPERT,
        description="Tell clients such as grpcurl about the services (gRPC reflection). "
        "Default: only on a loopback address.",
    )


class ConnectionSettings(PeerSettings):
    """What callers may have open, and what travels at a time."""

    frames_socket: Path | None = Field(
        None,
        json_schema_extra=EXPERT,
        description="Path of a Unix socket that the server makes, where clients on this host call "
        "it in frames, which cost much less than gRPC. Processes of the same user may connect, of "
        "users in --shared-memory-users, and callers of tenants. Linux only.",
    )
    max_message_bytes: ByteSize | None = Field(
        None,
        gt=0,
        le=2**31 - 1,
        json_schema_extra=EXPERT,
        description="Largest message in bytes, for example 64MiB; larger calls go over streams, "
        "in chunks. gRPC's own limit is 2 GiB. Default: 16MiB, or a 32nd of --memory-limit if "
        "that is less.",
    )
    max_streams: int | None = Field(
        None,
        ge=0,
        le=1000,
        json_schema_extra=EXPERT,
        description="Streams that may be open; the server refuses any more. Default: as many as "
        "fit into an eighth of --memory-limit and 32MiB, at --max-message-bytes each, and at most "
        "64.",
    )
    chunk_bytes: ByteSize = Field(
        ByteSize(CHUNK_BYTES),
        ge=64 * 2**10,
        le=3 * 2**20,  # and the rest of its frame: gRPC's clients receive 4 MiB unless told more
        json_schema_extra=EXPERT,
        description="Most bytes in one chunk of a large call, for example 256KiB. The server "
        "sends such chunks, and asks clients for no longer ones. Long chunks make large calls "
        "faster and use less CPU time; short ones keep small calls quick that run at the same "
        "time.",
    )
