"""``Path``, and a call that takes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

from npucall.errors import NpucallError
from npucall.places import Place
from npucall.wire.messages import Response
from npucall.wire.replies import Timings
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.senders import finished
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.wire import AnswerOrError, in_message, received, unreadable

if TYPE_CHECKING:
    from npucall_conformance.running.paths.resources import Resources

    Fetch: TypeAlias = Callable[[str, Place], bytes]


class OutOfReachError(Exception):
    """This call cannot take a path; the text says why."""


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
    def is_refused(self) -> bool:
        """Whether its answer is an error."""
        return isinstance(self.answer, NpucallError)

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
    needs: str
    """Words of ``resources.NEEDS``."""
    required: bool = True
    """Whether a server without it is wrong."""
    timed: bool = True
    """Whether its answers say where the server's time went."""
    links: bool = False
    """Whether a call may take the output of another call as an input."""
    long: bool = True
    """Whether long calls take the path too."""
    alone: bool = False
    """Whether calls on the path cannot affect each other, so that one call is enough."""


def ended(work: Awaitable[Response], fetch: Fetch = in_message) -> AnswerOrError:
    """How a call ends: its answer, or the error that came instead. Raises OutOfReachError."""
    start = perf_counter_ns()

    async def awaited() -> Response:
        return await work

    try:
        response: Response | Exception = finished(awaited())
    except OutOfReachError:
        raise
    except Exception as error:  # noqa: BLE001  # the call's own
        response = error
    return outcome_of(response, perf_counter_ns() - start, fetch)


def outcome_of(
    ended: Response | Exception, total_ns: int, fetch: Fetch = in_message
) -> AnswerOrError:
    """How a call ended; ``fetch`` as for ``received``."""
    if isinstance(ended, Exception):
        return ended if isinstance(ended, NpucallError) else unreadable(ended)
    try:
        return received(ended, total_ns, fetch)
    except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
        return unreadable(error)


_CLOCKS = 0.01
"""By how much two clocks may differ in speed."""


def of_timings(timings: Timings, total_ns: int, *, computed: bool) -> list[str]:
    """What is wrong with the times that a server tells.

    ``total_ns``: the time of the whole call as the client measured it; ``computed``: whether there
    was anything to compute.
    """
    told = sum(timings) - min(timings.copy_in_ns, timings.plan_ns)  # an NPU does both at once
    problems = []
    if told > total_ns * (1 + _CLOCKS):
        parts = ", ".join(f"{n} {ns}" for n, ns in timings._asdict().items() if ns)
        problems.append(f"expected times within {total_ns} ns, found {parts}, {told} together")
    if min(timings) < 0 or (computed and timings.run_ns <= 0):
        problems.append(f"expected times of 0 or more and run_ns above 0, found {timings}")
    return problems
