"""``Path``, a call that takes it, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import NpucallError
from npucall.places import Place
from npucall.tensors import TensorSpec, view
from npucall.wire.messages import Response
from npucall.wire.replies import Reply, Timings
from npucall_client.calls.arguments import BoundCall
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
    reach: str
    """Words of ``resources.NEEDS``: what must hold here, whatever the server is."""
    offers: str = ""
    """Words of ``resources.NEEDS``: what the server says that it has."""
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


async def ended(work: Awaitable[Response], fetch: Fetch = in_message) -> AnswerOrError:
    """How a call ends: its answer, or the error that came instead. Raises OutOfReachError."""
    start = perf_counter_ns()
    try:
        response = await work
    except OutOfReachError:
        raise
    except Exception as error:  # noqa: BLE001  # the call's own
        return outcome_of(error, 0)
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
    pairs = [(name, getattr(expected, name), getattr(found, name)) for name in names]
    problems = [
        f"expected {name} {wanted}, found {other}: {found}"
        for name, wanted, other in pairs
        if wanted != other
    ]
    if not problems and str(expected) != str(found):
        problems.append(f"expected the message {str(expected)!r}, found {str(found)!r}")
    details = [
        {name: text for name, text in each.details.items() if name not in _OF_THE_WAY}
        for each in (expected, found)
    ]
    if not problems and details[0] != details[1]:
        problems.append(f"expected the details {details[0]}, found {details[1]}")
    return problems


def of_replies(expected: Reply, found: Reply) -> list[str]:
    """Where a reply differs from that of the usual path."""
    problems = []
    for what in ("variant", "kernel_dtype", "outputs", "stored", "warnings", "server"):
        wanted, other = getattr(expected, what), getattr(found, what)
        if what == "server" and wanted.device == "local":  # each client is one
            wanted = replace(wanted, instance=other.instance)
        if wanted != other or (what == "outputs" and list(wanted) != list(other)):
            shown = [
                text if len(text) < _LONG else f"{text[:_LONG]} ..."
                for text in (str(wanted), str(other))
            ]
            problems.append(f"expected {what} {shown[0]}, found {shown[1]}")
    return problems


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
    if min(timings) < 0:
        problems.append(f"expected times of 0 or more, found {timings}")
    if computed and timings.run_ns <= 0:
        problems.append(f"expected run_ns above 0, found {timings.run_ns}")
    return problems


def _of_storages(name: str, spec: TensorSpec, expected: bytes, found: bytes) -> str:
    """The difference in words; empty if all bits are the same. Any NaN is the same as another."""
    if expected == found:
        return ""
    if len(expected) != len(found):
        return f"{name}: expected {len(expected)} bytes, found {len(found)}"
    if (gaps(spec, expected) != gaps(spec, found)).any():
        return f"{name}: expected the same bytes between the elements, found others"
    one, other = view(spec, expected), view(spec, found)
    differs = _other_bits(one, other)
    if not differs.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    return (
        f"{name}: expected the same bits, found {np.count_nonzero(differs)} of {spec.elements} "
        f"elements with others, first {list(first)}: {one[first]!r} and {other[first]!r}"
    )


def _other_bits(one: AnyArray, other: AnyArray) -> AnyArray:
    """Which elements have other bits, NaN apart."""
    bits = [
        np.frombuffer(each.tobytes(), np.uint8).reshape(*each.shape, each.itemsize)
        for each in (one, other)
    ]
    differs: AnyArray = (bits[0] != bits[1]).any(axis=-1)
    return differs & ~((one != one) & (other != other))  # noqa: PLR0124  # NaN alone
