"""What the server keeps for callers, and what guards it: all that uploads and downloads use."""

from __future__ import annotations

from typing import NamedTuple

from npucall_server.access.guard import Guard
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.peers import Peers
from npucall_server.scheduling.executor import Executor
from npucall_server.scheduling.gate import Gate
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.open_sessions import Sessions


class Kept(NamedTuple):
    """Sessions and digests of a server."""

    sessions: Sessions
    digests: Digests
    executor: Executor
    gate: Gate
    streams: Ledger
    """The places of streams. Uploads and downloads take such a place too."""
    chunk_bytes: int
    """The size of the chunks of downloads."""
    guard: Guard
    peers: Peers
