"""What gRPC's end of a call means for the caller. No I/O: every sender asks here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.errors import CancelledError, DeadlineError, NpucallError, ServerUnreachableError
from npucall.wire.status import TRAILER, from_status

if TYPE_CHECKING:
    from grpc import StatusCode


class Sender(NamedTuple):
    """What has to be known of who sent the call."""

    target: str
    is_connected: bool
    """Whether the server has answered, and the connection is there."""
    is_closed: bool
    """Whether the client was closed, so that it cancelled its calls itself."""


def failure(
    sender: Sender, code: StatusCode, message: str | None, trailers: Any, timeout: float
) -> NpucallError:
    """The error that the server raised, or what gRPC's own means.

    ``trailers`` are pairs of key and value; ``timeout`` is the call's, in seconds.
    """
    # Not dict(trailers): asyncio's have keys() that are pairs.
    details = next((value for key, value in trailers or () if key == TRAILER), None)
    known = from_status(code, message or "", details)
    if details is not None:
        return known
    if isinstance(known, DeadlineError):
        return lateness(sender, timeout)
    if isinstance(known, CancelledError) and not sender.is_closed:
        # So gRPC answers what a server that goes down had not begun; nobody here asked for it.
        return ServerUnreachableError(
            f"call: expected an answer of the server at {sender.target}, found that it ended the "
            "call without one, as a server that goes down does"
        )
    return known


def lateness(sender: Sender, timeout: float) -> NpucallError:
    """What a call that got no answer in time raises."""
    if not sender.is_connected:
        return unreachable(sender.target, timeout)
    return DeadlineError(f"call: its timeout of {timeout:g} s ended")


def unreachable(target: str, seconds: float) -> ServerUnreachableError:
    """What is raised where nothing answers."""
    return ServerUnreachableError(
        f"target: expected a server at {target}, found none in {seconds:g} s; "
        "start one with npucall-server, or mend the target (NPUCALL_TARGET)"
    )
