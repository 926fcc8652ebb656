"""The first question to a server: what it is, or why nothing of npucall answers there."""

from __future__ import annotations

import time
from os import fspath
from typing import TYPE_CHECKING, Any

import grpc

from npucall.errors import (
    ConnectionLostError,
    DeadlineError,
    NpucallError,
    Repeat,
    ServerUnreachableError,
)
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.failures import unreachable
from npucall_client.sending.link import Link, is_nobody
from npucall_client.sending.request import Request
from npucall_client.sending.strangers import misfit, other_service, refusal, untrusted

if TYPE_CHECKING:
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings

_LAST_TRY_SECONDS = 1.0
"""Seconds of a last attempt, to find out why there is no connection."""


async def connected(
    settings: ClientSettings, sender: Sender, *, waits: bool = True, trusted: bool = True
) -> Link:
    """A link to a server that has said what it is; ``waits``, ``trusted``: see Link.

    Raises ServerUnreachableError if nothing answers within ``connect_timeout``, ValueError for
    credentials that cannot be.
    """
    link = Link(settings, sender, waits=waits, trusted=trusted)
    seconds = settings.connect_timeout
    try:
        found = await (_asked(link, settings, seconds) if waits else _asked_once(link, seconds))
    except (DeadlineError, ServerUnreachableError) as error:
        why = await why_unreachable(link, settings) if waits else ""
        await link.close()
        if isinstance(error, ConnectionLostError):
            raise
        way = link.connections.way.told
        raise unreachable(link.target, seconds, why, way) from None
    except BaseException:
        await link.close()
        raise
    if found:
        await link.close()
        raise ServerUnreachableError(found)
    return link


async def _asked_once(link: Link, seconds: float) -> str:
    await Attempts(Request(seconds, once=True)).run(link, Link.ask)
    return ""


async def _asked(link: Link, settings: ClientSettings, seconds: float) -> str:
    """Asks what the server is; waits for one that is starting.

    Returns a sentence if something else answers there.
    """
    ends = time.monotonic() + seconds
    is_known, found = await first_look(link, settings, seconds)
    if not (is_known or found):
        left = max(0.0, ends - time.monotonic())
        await Attempts(Request(left)).run(link, Link.ask)
    return found


async def first_look(link: Link, settings: ClientSettings, seconds: float) -> tuple[bool, str]:
    """Whether the server answers at once; if not, it may answer later.

    The second value is a sentence if the client can never speak with what answers there; otherwise
    it is empty.
    """
    try:
        link.learn(await Attempts(Request(seconds, once=True)).run(link, Link.look))
    except ServerUnreachableError as error:
        if found := untrusted(link.target, str(error)):
            return False, found
        way = link.connections.way
        if is_nobody(error) or not way.is_straight or way.target.startswith("unix"):
            return False, ""
    except NpucallError as error:
        if error.code is grpc.StatusCode.UNIMPLEMENTED:
            return False, other_service(link.target)
        if error.repeat is Repeat.NEVER:
            raise
        return False, ""
    else:
        return True, ""
    return False, await link.sender.beside(lambda: misfit(way.target, encrypts=settings.encrypts))


async def why_unreachable(link: Link, settings: ClientSettings) -> str:
    """Why a connection failed; empty if nobody listens, and if it cannot be found out."""
    way = link.connections.way
    said = await _said(link)
    if "Connection refused" in said and way.is_straight:
        return ""
    if not (settings.encrypts and way.is_straight and "Socket closed" in said):
        return said
    pair = fspath(settings.certificate), fspath(settings.key)
    return await link.sender.beside(lambda: refusal(way.target, *pair)) or said


async def _said(link: Link) -> str:
    """The text of gRPC for a connection that failed."""
    channels = link.connections.take()
    try:
        await channels.methods["GetServerInfo"](b"", _LAST_TRY_SECONDS)
    except grpc.RpcError as error:
        refused: Any = error
        if refused.code() is grpc.StatusCode.UNAVAILABLE:
            return str(refused.details())
    finally:
        link.connections.give_back(channels)
    return ""
