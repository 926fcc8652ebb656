"""The thread that asks members which failed whether they serve again, and closes idle links."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall_client.pool.links import Links
    from npucall_client.pool.table import Table
    from npucall_client.remote.channel import ChannelTransport


class Looker:
    """Runs until it is closed, or nobody has the links any more."""

    def __init__(self, table: Table[ChannelTransport], links: Links) -> None:
        self._stop = threading.Event()
        arguments = table, weakref.ref(links), self._stop
        threading.Thread(target=_look, args=arguments, name="npucall-pool", daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._stop.set()


def _look(
    table: Table[ChannelTransport], links_of: weakref.ref[Links], stop: threading.Event
) -> None:
    while not stop.wait(table.next_look()):
        links = links_of()
        if links is None:
            return
        links.close_idle()
        for candidate in table.to_ask():
            # Each in a thread of its own: one that does not answer keeps no other from being asked.
            threading.Thread(
                target=links.ask, args=(candidate,), name="npucall-pool-health", daemon=True
            ).start()
        del links
