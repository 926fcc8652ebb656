"""Makes the caller's error from gRPC's error. No I/O: every sender uses this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.errors import (
    CancelledError,
    ConnectionLostError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
)
from npucall.wire.status import TRAILER, from_status, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc import StatusCode


_RESET = "RST_STREAM"
"""gRPC's text if the peer cut one call, but not its connection. Its code is then that of the HTTP/2
error, such as INTERNAL or RESOURCE_EXHAUSTED."""


_NEVER = ("failed to connect to all addresses", "DNS resolution failed")
"""gRPC's texts if there was no connection: the call has not begun on any server."""


class Origin(NamedTuple):
    """The state of the client that sent the call."""

    target: str
    is_connected: Callable[[], bool]
    """Whether the server has answered, and the connection is there."""
    is_closed: bool
    """Whether the client was closed, so that it cancelled its calls itself."""
    way: str = ""
    """The text of an error about the way to the target; empty if there is no proxy."""


def failure(
    origin: Origin, code: StatusCode, message: str | None, trailers: Any, timeout: float
) -> NpucallError:
    """The error that the server raised, or the one for gRPC's own error.

    ``trailers`` are pairs of key and value; ``timeout`` is the call's, in seconds.
    """
    # Not dict(trailers): asyncio's have keys() that are pairs.
    details = next((value for key, value in trailers or () if key == TRAILER), None)
    known = from_status(code, message or "", details)
    if is_ours(details):
        return known
    if isinstance(known, DeadlineError):
        return lateness(origin, timeout)
    if origin.is_closed:
        return known
    if isinstance(known, CancelledError):
        # gRPC answers so if a server goes down, or has too many calls, before it began this one.
        # This client did not cancel it.
        return ServerUnreachableError(
            f"the server at {origin.target} ended the call without an answer, as a server does "
            "that shuts down"
        )
    if isinstance(known, ServerUnreachableError) or _RESET in (message or ""):
        return _unavailable(origin, message or "")
    return known


def _unavailable(origin: Origin, message: str) -> NpucallError:
    if any(each in message for each in _NEVER):
        return ServerUnreachableError(
            f"no server answers at {origin.target}{origin.way}: {message}"
        )
    return broken(origin.target, message)


def broken(target: str, message: str) -> ConnectionLostError:
    """The error of a call whose connection broke."""
    return ConnectionLostError(
        f"the connection to the server at {target} broke before it answered: {message}"
    )


def lateness(origin: Origin, timeout: float) -> NpucallError:
    """The error of a call that got no answer in time."""
    if not origin.is_connected():
        return unreachable(origin.target, timeout, way=origin.way)
    return DeadlineError(
        f"the server did not answer within {timeout:g} s; give the call a longer timeout "
        "(NPUCALL_TIMEOUT)"
    )


def unreachable(
    target: str, seconds: float, why: str = "", way: str = ""
) -> ServerUnreachableError:
    """The error if nothing answers.

    ``why``: what gRPC says about the connection; ``way``: the text about the way.
    """
    return ServerUnreachableError(
        f"target: expected a server at {target}, found none in {seconds:g} s{way}; start one with "
        "npucall-server, correct the target (NPUCALL_TARGET), or, if the server uses TLS, name "
        "the authority of its certificate (NPUCALL_CA)"
        + (f"; the connection failed: {why}" if why else "")
    )
