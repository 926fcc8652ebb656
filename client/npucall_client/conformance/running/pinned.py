"""Of a pool one member alone, since what is judged is one server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall_client.client import Client
from npucall_client.pool.course import Course
from npucall_client.pool.table import NOTHING
from npucall_client.pool.transport import PoolTransport
from npucall_client.senders import finished

if TYPE_CHECKING:
    from npucall_client.remote.channel import ChannelTransport

_SECONDS = 10.0
"""For which a member is waited."""


def pinned(client: Client, target: str) -> tuple[Client, str]:
    """A client of one member, if this one has a pool, and a target that names the member.

    The member is whoever would get the next call. The client given still owns the connection.
    Raises NpucallError.
    """
    pool = client._transport  # noqa: SLF001  # what Client hides
    if not isinstance(pool, PoolTransport):
        return client, target
    link = finished(pool.anywhere(Course(NOTHING, _SECONDS), _itself))
    alone = link.repeating(pool.check_open)  # there is nobody else to ask
    settings = replace(client._settings, target=alone.target)  # noqa: SLF001  # likewise
    return Client(alone, settings), f"{target}, member {alone.target}"


async def _itself(link: ChannelTransport, _: float) -> ChannelTransport:
    """A link is all that is wanted."""
    return link
