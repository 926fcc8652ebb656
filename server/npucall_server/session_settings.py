"""Settings of sessions, their handles, and what is kept by digests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ByteSize, Field

_LONGEST_SECONDS = 3600.0
_DIGEST_SHARE = 8


def _digest_share(values: dict[str, Any]) -> ByteSize:
    return ByteSize(values.get("memory_limit", 0) // _DIGEST_SHARE)


class SessionSettings(BaseModel):
    """What callers may leave on the server. A limit of 0 turns that off."""

    handle_memory: ByteSize | None = Field(
        None,
        ge=0,
        description="Bytes that the handles of all sessions may hold, for example 32GiB: of the "
        "device's own memory, or, on a device without, of --memory-limit, which bounds them too. "
        "0: no sessions. Default: what the device says, or half of --memory-limit.",
    )
    session_memory: ByteSize | None = Field(
        None,
        ge=0,
        description="Bytes that the handles of one session may hold. 0: no sessions. Default: all "
        "of --handle-memory.",
    )
    max_sessions: int = Field(
        256, ge=0, le=10_000, description="Sessions that may be open; more are refused. 0: none."
    )
    session_lease: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Longest lease of a session, in seconds: what a caller that has gone leaves "
        "behind is freed after it. 0: no sessions.",
    )
    digest_cache_bytes: ByteSize = Field(
        default_factory=_digest_share,
        ge=0,
        description="Bytes that are kept by their digests, for all tenants together, so that "
        "constants are sent once. They count towards --memory-limit, and make room for calls that "
        "need it. 0 keeps none. Default: an eighth of --memory-limit.",
    )
