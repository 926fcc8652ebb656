"""Selects one member of a pool, since only one server is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall_client.client import Client
from npucall_client.pool.course import Course
from npucall_client.pool.table import NOTHING
from npucall_client.pool.transport import PoolTransport
from npucall_client.sending.senders import finished

if TYPE_CHECKING:
    from npucall_client.sending.channel import ChannelTransport

_SECONDS = 10.0
"""How long to wait for a member."""


def fixed_target(client: Client, target: str) -> tuple[Client, str]:
    """A client of one member, if this one has a pool, and a target that names the member.

    It is the member that would get the next call. The given client still owns the connection.
    Raises NpucallError.
    """
    pool = client._transport  # noqa: SLF001  # what Client hides
    if not isinstance(pool, PoolTransport):
        return client, target
    link = finished(pool.anywhere(Course(NOTHING, _SECONDS), _itself))
    alone = link.repeating(pool.check_open)  # there is no other member to ask
    settings = replace(client._settings, target=alone.target)  # noqa: SLF001  # likewise
    return Client(alone, settings), f"{target}, member {alone.target}"


async def _itself(link: ChannelTransport, _: float) -> ChannelTransport:
    """Returns the link, since nothing else is needed."""
    return link
