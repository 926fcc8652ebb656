"""What callers have the server keep, and what guards it: all that uploads and downloads use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from npucall_server.executor import Executor
    from npucall_server.gate import Gate
    from npucall_server.ledger import Ledger
    from npucall_server.sessions.digests import Digests
    from npucall_server.sessions.sessions import Sessions


class Kept(NamedTuple):
    """Sessions and digests of a server."""

    sessions: Sessions
    digests: Digests
    executor: Executor
    gate: Gate
    streams: Ledger
    """Places of streams, which uploads and downloads take too."""
    chunk_bytes: int
    """Of what is downloaded."""
