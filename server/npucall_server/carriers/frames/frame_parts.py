"""What all connections of frames use."""

from __future__ import annotations

from typing import Any, NamedTuple

from npucall_server.accounts.budget import Budget
from npucall_server.accounts.ledger import Ledger
from npucall_server.calls.beginning import Executions
from npucall_server.carriers.door import Door, Exchange
from npucall_server.carriers.peers import Peers
from npucall_server.carriers.threads import Threads
from npucall_server.shared.regions import Regions


class FrameParts(NamedTuple):
    """What all connections use."""

    executions: Executions
    door: Door
    peers: Peers
    threads: Threads
    """For calls that are not quick."""
    places: Ledger
    """Of connections whose callers are known."""
    room: Ledger
    """For messages on their way in."""
    budget: Budget
    streams: Exchange
    regions: Regions
    hello: bytes
    open: dict[Any, None]
    """Connections, the oldest first."""
