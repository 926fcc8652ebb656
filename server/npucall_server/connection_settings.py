"""Settings of connections, streams and messages."""

from __future__ import annotations

from pydantic import BaseModel, ByteSize, Field

from npucall.limits import CHUNK_BYTES


class PeerSettings(BaseModel):
    """How many connections there may be, and how long a peer may do nothing."""

    max_connections: int = Field(
        256,
        ge=1,
        description="Connections that may be open; more are closed at once. Where most of them are "
        "in use, those without calls are closed for others. No more than the process may have "
        "files, less a few.",
    )
    peer_timeout: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        description="Seconds in which some bytes have to come of what a caller sends in parts, and "
        "some of an answer have to be read; a third of them for the first bytes of a call. The "
        "call ends otherwise, and so does a stream in which no call is open for so long.",
    )
    idle_timeout: float = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        le=2_000_000,
        description="Seconds after which a connection without calls is closed.",
    )
    reflection: bool | None = Field(
        None,
        description="Let clients such as grpcurl ask for the services' descriptions. Default: on "
        "a loopback address alone.",
    )


class ConnectionSettings(PeerSettings):
    """What callers may have open, and what travels at a time."""

    max_message_bytes: ByteSize | None = Field(
        None,
        gt=0,
        le=2**31 - 1,
        description="Largest message in bytes, for example 64MiB; larger calls travel on streams, "
        "in chunks. gRPC's own limit is 2 GiB. Default: 16MiB, or a 32nd of --memory-limit where "
        "that is less.",
    )
    max_streams: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="Streams that may be open; more are refused. Default: as many as an eighth of "
        "--memory-limit and 32MiB allow, at --max-message-bytes each, at most 64.",
    )
    stream_window: int = Field(
        32,
        ge=1,
        le=1000,
        description="Calls of one stream that may be without a complete answer; more are not read.",
    )
    chunk_bytes: ByteSize = Field(
        ByteSize(CHUNK_BYTES),
        ge=64 * 2**10,
        le=3 * 2**20,  # and the rest of its frame: gRPC's clients receive 4 MiB unless told more
        description="Most bytes of one chunk of a large call, for example 256KiB; answers come in "
        "such chunks, and clients are asked to send no longer ones. Long chunks make large calls "
        "faster and cost less CPU time; short ones keep small calls beside them quick.",
    )
