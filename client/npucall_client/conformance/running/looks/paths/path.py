"""What a path is, and how an answer that came by one is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.errors import InternalError, NpucallError
from npucall.wire.replies import decode_timings
from npucall_client.answers import decode_reply
from npucall_client.conformance.wire import Answer
from npucall_client.senders import finished

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from npucall.places import Place
    from npucall.wire.messages import Response
    from npucall_client.arguments import BoundCall
    from npucall_client.conformance.cases.calls import MadeCall
    from npucall_client.conformance.running.looks.paths.ways import Ways

    Fetch: TypeAlias = Callable[[str, Place], bytes]

Outcome: TypeAlias = "Answer | NpucallError"


class OutOfReachError(Exception):
    """A path cannot be taken by this call; the text says why."""


def no_reason(_: object) -> str:
    """Nothing keeps anybody from it."""
    return ""


@dataclass(frozen=True, eq=False)
class Sample:
    """A call, and its answer by the path that all others are held against."""

    made: MadeCall
    answer: Outcome
    unsent: tuple[str, ...] = ()
    """Inputs whose storage is not sent."""
    takes: tuple[str, str] | None = None
    """An input, and the output of the first sample that it is. Programs alone have such calls."""

    def request(self) -> BoundCall:
        """The call anew: what sends one may change it."""
        return self.made.request(self.unsent)

    @property
    def output_bytes(self) -> Mapping[str, int]:
        """Bytes of the storages of its outputs; nothing where it was refused."""
        if isinstance(self.answer, NpucallError):
            return {}
        return {name: len(data) for name, data in self.answer.storages.items()}


@dataclass(frozen=True)
class Path:
    """A way by which calls travel."""

    name: str
    send: Callable[[Ways, Sequence[Sample]], Sequence[Outcome]]
    """Sends the calls, and answers each; raises what keeps all of them from being sent."""
    out_of_reach: Callable[[Ways], str]
    """Why nobody can take it from here, whatever the server; empty where one can."""
    lacking: Callable[[Ways], str] = no_reason
    """Why this server does not have it, as it says; empty where it does."""
    required: bool = True
    """Whether a server without it is wrong."""
    timed: bool = True
    """Whether its answers say where the server's time went."""
    links: bool = False
    """Whether a call may take what another one gives."""
    ours: bool = False
    """Whether only our client makes it another one than the others, so that a case or two of an
    operator are enough."""
    long: bool = True
    """Whether long calls take it too."""
    alone: bool = False
    """Whether calls cannot meet each other there, so that one is enough."""


def in_message(_: str, place: Place) -> bytes:
    """The bytes of an output that came with its answer."""
    if isinstance(place, tuple) or place is None:
        raise InternalError(f"response: expected the bytes of an output, found {place}")
    return bytes(place)


def received(response: Response, start_ns: int, fetch: Fetch = in_message) -> Answer:
    """A response, with the bytes of every output; ``fetch`` gets them from where they are."""
    total_ns = perf_counter_ns() - start_ns
    reply = decode_reply(response.reply)
    places: list[Any] = list(response.storage)
    storages = {n: fetch(n, place) for n, place in zip(reply.stored, places, strict=True)}
    return Answer(reply, storages, decode_timings(response.timings), total_ns)


def attempt(
    send: Callable[[], Coroutine[Any, Any, Response]], fetch: Fetch = in_message
) -> Outcome:
    """The answer to a call over a sender that blocks, or the error that came instead."""
    start = perf_counter_ns()
    try:
        ended: Response | Exception = finished(send())
    except OutOfReachError:
        raise
    except Exception as error:  # noqa: BLE001  # the call's own
        ended = error
    return outcome_of(ended, start, fetch)


def unreadable(error: Exception) -> NpucallError:
    """What stands for an answer that breaks the contract."""
    return InternalError(f"unreadable answer: {type(error).__name__}: {error}")


def outcome_of(ended: Response | Exception, start_ns: int, fetch: Fetch = in_message) -> Outcome:
    """How a call ended; ``fetch`` as for ``received``."""
    if isinstance(ended, NpucallError):
        return ended
    if isinstance(ended, Exception):
        return unreadable(ended)
    try:
        return received(ended, start_ns, fetch)
    except Exception as error:  # noqa: BLE001  # as above
        return unreadable(error)
