"""Asks members what they are and whether they serve, in the background; closes idle links."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall_client.pool.links import Links
    from npucall_client.pool.table import Table
    from npucall_client.sending.link import Link
    from npucall_client.sending.senders import Sender, Signal


class Looker:
    """Runs until it is closed, or until nothing uses the links any longer."""

    def __init__(self, table: Table[Link], links: Links, sender: Sender) -> None:
        self._table, self._stop = table, sender.event()
        stop = self._stop
        links_of = weakref.ref(links)
        sender.start(lambda: _look(table, links_of, stop, sender), "npucall-pool")

    def close(self) -> None:
        """Ends it."""
        self._stop.set()
        self._table.wake()


async def _look(
    table: Table[Link], links_of: weakref.ref[Links], stop: Signal, sender: Sender
) -> None:
    while not stop.is_set():
        links = links_of()
        if links is None:
            return
        await links.close_idle()
        for candidate in table.to_ask():
            # Each in a task of its own: one that does not answer must not delay the others.
            sender.start(partial(links.ask, candidate), "npucall-pool-health")
        del links
        await table.pause()
