"""A look at a server: whether one answers, which process it is, and why none does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc

from npucall.errors import NpucallError, Repeat, ServerUnreachableError
from npucall_client.sending.strangers import misfit, other_service, refusal, untrusted

if TYPE_CHECKING:
    from npucall_client.sending.link import Link
    from npucall_client.settings import ClientSettings

_LAST_TRY_SECONDS = 1.0
"""Seconds of a last attempt, to find out why there is no connection."""
_NOBODY = "Connection refused"
_NO_SOCKET = "No such file"
_ENDED = "Socket closed"
_END_SECONDS = 2.0
"""Time in which a process answers that has not ended."""
_BETWEEN_LOOKS = 0.05


async def has_ended(link: Link, instance: str) -> bool:
    """Whether that process is gone: the address refuses, or another process answers there.

    A process that does not answer within two seconds counts as not ended.
    """
    ends = time.monotonic() + _END_SECONDS
    while (left := ends - time.monotonic()) > 0:
        try:
            await link.look(left, await link.authorization())
        except ServerUnreachableError as error:
            if _is_nobody(error):
                return True
        except NpucallError:
            return False
        else:
            return link.instance != instance
        await link.rest(_BETWEEN_LOOKS)
    return False


async def first_look(
    link: Link, settings: ClientSettings, seconds: float
) -> tuple[bytes | None, str]:
    """What the server is, if it answers at once; None if it may answer later.

    The second value is a sentence if the client can never speak with what answers there; otherwise
    it is empty.
    """
    look = link.authorized(lambda link, left, who: link.look(left, who))
    try:
        return await look(link, seconds), ""
    except ServerUnreachableError as error:
        if found := untrusted(link.target, str(error)):
            return None, found
        way = link.connections.way
        if _is_nobody(error) or not way.is_straight or way.target.startswith("unix"):
            return None, ""
    except NpucallError as error:
        if error.code is grpc.StatusCode.UNIMPLEMENTED:
            return None, other_service(link.target)
        if error.repeat is Repeat.NEVER:
            raise
        return None, ""
    return None, await link.sender.beside(lambda: misfit(way.target, encrypts=settings.encrypts))


async def why_unreachable(link: Link, settings: ClientSettings) -> str:
    """Why a connection failed; empty if nobody listens, and if it cannot be found out."""
    way = link.connections.way
    said = await _said(link)
    if _NOBODY in said and way.is_straight:
        return ""
    if not (settings.encrypts and way.is_straight and _ENDED in said):
        return said
    pair = settings.certificate, settings.key
    return await link.sender.beside(lambda: refusal(way.target, *pair)) or said


async def _said(link: Link) -> str:
    """The text of gRPC for a connection that failed."""
    channels = link.connections.take()
    try:
        await channels.method("GetServerInfo")(b"", _LAST_TRY_SECONDS)
    except grpc.RpcError as error:
        refused: Any = error
        if refused.code() is grpc.StatusCode.UNAVAILABLE:
            return str(refused.details())
    finally:
        link.connections.give_back(channels)
    return ""


def _is_nobody(error: ServerUnreachableError) -> bool:
    """Whether no process listens there."""
    said = str(error)
    return _NOBODY in said or _NO_SOCKET in said
