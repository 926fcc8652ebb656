"""Settings of what callers may keep: sessions, their handles, digests, reservations."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ByteSize, SecretStr

from npucall_server.settings.expert import expert

_LONGEST_LEASE = 3600.0
_LONGEST_RESERVATION = 7 * 24 * 3600.0
_DIGEST_SHARE = 8


def _digest_share(values: dict[str, Any]) -> ByteSize:
    return ByteSize(values.get("memory_limit", 0) // _DIGEST_SHARE)


def kept_server_id(folder: Path | None) -> str:
    """The id in a server's ``state_folder``, made there at first. Empty without such a folder."""
    if folder is None:
        return ""
    path = folder / "server-id"
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(secrets.token_hex(16))
    return path.read_text(encoding="ascii").strip()


class SessionSettings(BaseModel):
    """What callers may leave on the server. A limit of 0 turns that off."""

    server_id: str = expert(
        "",
        max_length=256,
        description="Name by which sessions tell this server from others, whatever its address "
        "and host are; no two may have the same. Default: what is in the file server-id of "
        "state_folder (the server makes it); without such a folder host and address, and a new one "
        "at each start if the port is 0.",
    )

    handle_memory: ByteSize | None = expert(
        None,
        ge=0,
        description="Bytes that the handles of all sessions may hold, for example 32GiB: of the "
        "device's own memory, or, if the device has none, of --memory-limit. 0: no sessions. "
        "Default: what the device suggests, or half of --memory-limit.",
    )
    max_sessions: int = expert(
        256,
        ge=0,
        le=10_000,
        description="Sessions that may be open; the server refuses any more. 0: no sessions.",
    )
    session_lease: float = expert(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_LEASE,
        description="Longest lease of a session, in seconds. If a caller disappears, the server "
        "frees its session after that time. 0: no sessions.",
    )
    digest_cache_bytes: ByteSize = expert(
        default_factory=_digest_share,
        ge=0,
        description="Bytes that the server remembers by their digests, for all tenants "
        "together, so that clients send constants only once. They count towards --memory-limit, "
        "and the server drops them when calls need the room. 0: none. Default: an eighth of "
        "--memory-limit.",
    )


class ReservationSettings(BaseModel):
    """How long somebody may have the device alone, and what a reservation is known by."""

    max_reservation: float = expert(
        7200.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_RESERVATION,
        description="Longest reservation of the device that the server grants, in seconds.",
    )
    reservation_key: SecretStr | None = expert(
        None,
        min_length=16,
        exclude=True,  # `npucall-server settings` does not tell it
        description="Secret of 16 characters or more from which the server makes the keys of "
        "reservations; give each server another one. With it, reservations survive a restart of "
        "the server, and the server grants no new one in the first 30 s. Put it into a file or "
        "the environment: everybody who can list processes sees a command line. Default: a new "
        "secret at each start, so that a restart ends reservations.",
    )
