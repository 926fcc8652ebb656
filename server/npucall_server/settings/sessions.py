"""Settings of sessions, their handles, and what is kept by digests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ByteSize, Field

from npucall_server.settings.expert import EXPERT

_LONGEST_SECONDS = 3600.0
_DIGEST_SHARE = 8


def _digest_share(values: dict[str, Any]) -> ByteSize:
    return ByteSize(values.get("memory_limit", 0) // _DIGEST_SHARE)


class SessionSettings(BaseModel):
    """What callers may leave on the server. A limit of 0 turns that off."""

    handle_memory: ByteSize | None = Field(
        None,
        ge=0,
        json_schema_extra=EXPERT,
        description="Bytes that the handles of all sessions may hold, for example 32GiB: of the "
        "device's own memory, or, if the device has none, of --memory-limit. 0: no sessions. "
        "Default: what the device suggests, or half of --memory-limit.",
    )
    max_sessions: int = Field(
        256,
        ge=0,
        le=10_000,
        json_schema_extra=EXPERT,
        description="Sessions that may be open; the server refuses any more. 0: no sessions.",
    )
    session_lease: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        json_schema_extra=EXPERT,
        description="Longest lease of a session, in seconds. If a caller disappears, the server "
        "frees its session after that time. 0: no sessions.",
    )
    digest_cache_bytes: ByteSize = Field(
        default_factory=_digest_share,
        ge=0,
        json_schema_extra=EXPERT,
        description="Bytes that the server remembers by their digests, for all tenants "
        "together, so that clients send constants only once. They count towards --memory-limit, "
        "and the server drops them when calls need the room. 0: none. Default: an eighth of "
        "--memory-limit.",
    )
