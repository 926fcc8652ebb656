"""``Path``, and how an answer that came by a path is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.errors import InternalError, NpucallError
from npucall.wire.replies import decode_timings
from npucall_client.calls.answers import decode_reply
from npucall_client.sending.senders import finished
from npucall_conformance.wire import WireAnswer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from npucall.places import Place
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.running.looks.paths.resources import Resources

    Fetch: TypeAlias = Callable[[str, Place], bytes]

AnswerOrError: TypeAlias = "WireAnswer | NpucallError"


class OutOfReachError(Exception):
    """This call cannot take a path; the text says why."""


def no_reason(_: object) -> str:
    """No reason: the path can be taken."""
    return ""


@dataclass(frozen=True, eq=False)
class PathCall:
    """A call, and its answer by the usual path, with which all other paths are compared."""

    made: MadeCall
    answer: AnswerOrError
    unsent: tuple[str, ...] = ()
    """Inputs whose storage is not sent."""
    takes: tuple[str, str] | None = None
    """An input, and the output of the first sample from which it is taken. Only programs have such
    calls."""

    def request(self) -> BoundCall:
        """A new copy of the call, since sending a call may change it."""
        return self.made.request(self.unsent)

    @property
    def output_bytes(self) -> Mapping[str, int]:
        """Sizes of the storages of its outputs, in bytes; empty if the call was refused."""
        if isinstance(self.answer, NpucallError):
            return {}
        return {name: len(data) for name, data in self.answer.storages.items()}


@dataclass(frozen=True)
class Path:
    """A way by which calls travel."""

    name: str
    send: Callable[[Resources, Sequence[PathCall]], Sequence[AnswerOrError]]
    """Sends the calls and returns their outcomes. Raises an error if none can be sent."""
    out_of_reach: Callable[[Resources], str]
    """Why the path cannot be taken from here, whatever the server is; empty if it can."""
    lacking: Callable[[Resources], str] = no_reason
    """Why this server, as it says, does not have the path; empty if it does."""
    required: bool = True
    """Whether a server without it is wrong."""
    timed: bool = True
    """Whether its answers say where the server's time went."""
    links: bool = False
    """Whether a call may take the output of another call as an input."""
    ours: bool = False
    """Whether the path differs from others only in the client, so that one or two cases of an
    operator are enough."""
    long: bool = True
    """Whether long calls take the path too."""
    alone: bool = False
    """Whether calls on the path cannot affect each other, so that one call is enough."""


def in_message(_: str, place: Place) -> bytes:
    """The bytes of an output that came with its answer."""
    if isinstance(place, tuple) or place is None:
        raise InternalError(f"response: expected the bytes of an output, found {place}")
    return bytes(place)


def received(response: Response, start_ns: int, fetch: Fetch = in_message) -> WireAnswer:
    """A response with the bytes of every output; ``fetch`` gets the bytes of one output."""
    total_ns = perf_counter_ns() - start_ns
    reply = decode_reply(response.reply)
    places: list[Any] = list(response.storage)
    storages = {n: fetch(n, place) for n, place in zip(reply.stored, places, strict=True)}
    return WireAnswer(reply, storages, decode_timings(response.timings), total_ns)


def attempt(
    send: Callable[[], Coroutine[Any, Any, Response]], fetch: Fetch = in_message
) -> AnswerOrError:
    """The answer to a call through a blocking sender, or the error that came instead."""
    start = perf_counter_ns()
    try:
        ended: Response | Exception = finished(send())
    except OutOfReachError:
        raise
    except Exception as error:  # noqa: BLE001  # the call's own
        ended = error
    return outcome_of(ended, start, fetch)


def unreadable(error: Exception) -> NpucallError:
    """The error in place of an answer that breaks the contract."""
    return InternalError(f"unreadable answer: {type(error).__name__}: {error}")


def outcome_of(
    ended: Response | Exception, start_ns: int, fetch: Fetch = in_message
) -> AnswerOrError:
    """How a call ended; ``fetch`` as for ``received``."""
    if isinstance(ended, NpucallError):
        return ended
    if isinstance(ended, Exception):
        return unreadable(ended)
    try:
        return received(ended, start_ns, fetch)
    except Exception as error:  # noqa: BLE001  # as above
        return unreadable(error)
