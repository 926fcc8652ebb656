"""``Path``, a call that takes it, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall.errors import NpucallError
from npucall.places import Place
from npucall.tensors import TensorSpec, view
from npucall.wire.messages import Response
from npucall.wire.replies import Reply, Timings
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.senders import finished
from npucall_conformance.cases.arrangements import gaps
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.judging.check import described
from npucall_conformance.wire import WireAnswer, in_message, received, unreadable

if TYPE_CHECKING:
    from npucall_conformance.running.paths.resources import Resources

    Fetch: TypeAlias = Callable[[str, Place], bytes]

AnswerOrError: TypeAlias = "WireAnswer | NpucallError"


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


_OF_THE_WAY = ("request_id", "step", "method")
"""Details of errors that name the path."""
_CLOCKS = 0.01
"""By how much two clocks may differ in speed."""
_LONG = 200
"""Characters that fit two lines."""


def differences(expected: AnswerOrError, found: AnswerOrError) -> list[str]:
    """Where an outcome differs from that of the usual path."""
    if isinstance(expected, NpucallError):
        if isinstance(found, NpucallError):
            return of_errors(expected, found)
        return [f"expected {described(expected)}, found an answer"]
    if isinstance(found, NpucallError):
        return [f"expected an answer, found {described(found)}"]
    storages = (
        _of_storages(name, spec, expected.storages[name], found.storages[name])
        for name, spec in expected.outputs.items()
    )
    return of_replies(expected.reply, found.reply) or list(filter(None, storages))


def of_errors(expected: NpucallError, found: NpucallError) -> list[str]:
    """Where an error differs from that of the usual path; its text and details if nothing else."""
    names = ("code", "reason", "aclnn_status", "parameters")
    first, second = (
        {
            "message": str(each),
            "details": {n: text for n, text in each.details.items() if n not in _OF_THE_WAY},
        }
        for each in (expected, found)
    )
    return _unequal(
        {name: getattr(expected, name) for name in names},
        {name: getattr(found, name) for name in names},
    ) or _unequal(first, second)


def of_replies(expected: Reply, found: Reply) -> list[str]:
    """Where a reply differs from that of the usual path."""
    if expected.server.device == "local":  # each client is one
        server = replace(expected.server, instance=found.server.instance)
        expected = replace(expected, server=server)
    names = ("variant", "kernel_dtype", "stored", "warnings", "server")
    first, second = (
        {**{n: getattr(each, n) for n in names}, "outputs": list(each.outputs.items())}
        for each in (expected, found)
    )
    return _unequal(first, second)


def _unequal(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return [
        f"expected {name} {wanted!s:.{_LONG}}, found {found[name]!s:.{_LONG}}"
        for name, wanted in expected.items()
        if wanted != found[name]
    ]


def of_timings(timings: Timings, total_ns: int, *, computed: bool) -> list[str]:
    """What is wrong with the times that a server tells.

    ``total_ns``: the time of the whole call as the client measured it; ``computed``: whether there
    was anything to compute.
    """
    told = sum(timings)
    problems = []
    if told > total_ns * (1 + _CLOCKS):
        parts = ", ".join(f"{n} {ns}" for n, ns in timings._asdict().items() if ns)
        problems.append(f"expected times within {total_ns} ns, found {parts}, {told} together")
    if min(timings) < 0 or (computed and timings.run_ns <= 0):
        problems.append(f"expected times of 0 or more and run_ns above 0, found {timings}")
    return problems


def _of_storages(name: str, spec: TensorSpec, expected: bytes, found: bytes) -> str:
    """The difference in words; empty if all bits are the same. Any NaN is the same as another."""
    if expected == found:
        return ""
    if len(expected) != len(found):
        return f"{name}: expected {len(expected)} bytes, found {len(found)}"
    if (gaps(spec, expected) != gaps(spec, found)).any():
        return f"{name}: expected the same bytes between the elements, found others"
    one, other = (np.array(view(spec, each)) for each in (expected, found))
    bits = [
        each.view(np.uint8).reshape(*spec.shape, -1)
        for each in (np.atleast_1d(one), np.atleast_1d(other))
    ]
    differs = (bits[0] != bits[1]).any(axis=-1) & ~((one != one) & (other != other))  # noqa: PLR0124  # NaN alone
    if not differs.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    return (
        f"{name}: expected the same bits, found {np.count_nonzero(differs)} of {spec.elements} "
        f"elements with others, first {list(first)}: {one[first]!r} and {other[first]!r}"
    )
