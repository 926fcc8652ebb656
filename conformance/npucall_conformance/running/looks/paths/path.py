"""``Path``, how an answer that came by a path is read, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall.errors import NpucallError
from npucall.tensors import view
from npucall_client.sending.senders import finished
from npucall_conformance.cases.arrangements import gaps
from npucall_conformance.judging.check import described
from npucall_conformance.wire import WireAnswer, in_message, received, unreadable

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from npucall.places import Place
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.running.looks.paths.resources import Resources

    Fetch: TypeAlias = Callable[[str, Place], bytes]
    from npucall.dtypes import AnyArray
    from npucall.tensors import TensorSpec
    from npucall.wire.replies import Reply, Timings

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


def outcome_of(
    ended: Response | Exception, start_ns: int, fetch: Fetch = in_message
) -> AnswerOrError:
    """How a call ended; ``fetch`` as for ``received``."""
    if isinstance(ended, NpucallError):
        return ended
    if isinstance(ended, Exception):
        return unreadable(ended)
    try:
        return received(ended, perf_counter_ns() - start_ns, fetch)
    except Exception as error:  # noqa: BLE001  # as above
        return unreadable(error)


_OF_THE_WAY = ("request_id", "step", "method")
"""Details of errors that name the path."""
LOCAL_DEVICE = "local"
_CLOCKS = 0.01
"""By how much two clocks may differ in speed."""


def differences(expected: AnswerOrError, found: AnswerOrError) -> list[str]:
    """Where an outcome differs from that of the usual path."""
    if isinstance(expected, NpucallError):
        if isinstance(found, NpucallError):
            return of_errors(expected, found)
        return [f"expected {described(expected)}, found an answer"]
    if isinstance(found, NpucallError):
        return [f"expected an answer, found {described(found)}"]
    problems = of_replies(expected.reply, found.reply)
    if problems:
        return problems
    for name, spec in expected.outputs.items():
        problem = _of_storages(name, spec, expected.storages[name], found.storages[name])
        problems += [problem] if problem else []
    return problems


def of_errors(expected: NpucallError, found: NpucallError) -> list[str]:
    """Where an error differs from that of the usual path."""
    problems = []
    for what in ("code", "reason", "aclnn_status", "parameters"):
        wanted, other = getattr(expected, what), getattr(found, what)
        if wanted != other:
            problems.append(f"expected {what} {wanted}, found {other}: {found}")
    if not problems and str(expected) != str(found):
        problems.append(f"expected the message {str(expected)!r}, found {str(found)!r}")
    wanted, other = _details(expected), _details(found)
    if not problems and wanted != other:
        problems.append(f"expected the details {wanted}, found {other}")
    return problems


def of_replies(expected: Reply, found: Reply) -> list[str]:
    """Where a reply differs from that of the usual path."""
    problems = []
    for what in ("variant", "kernel_dtype", "outputs", "stored", "warnings", "server"):
        wanted, other = getattr(expected, what), getattr(found, what)
        if what == "server" and wanted.device == LOCAL_DEVICE:  # each client is one
            wanted = replace(wanted, instance=other.instance)
        if wanted != other or (what == "outputs" and list(wanted) != list(other)):
            problems.append(f"expected {what} {_short(wanted)}, found {_short(other)}")
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


def _details(error: NpucallError) -> dict[str, str]:
    return {name: text for name, text in error.details.items() if name not in _OF_THE_WAY}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:200]} ..."  # noqa: PLR2004  # as fits two lines


def _of_storages(name: str, spec: TensorSpec, expected: bytes, found: bytes) -> str:
    """The difference in words; empty if all bits are the same. Any NaN is the same as another."""
    if expected == found:
        return ""
    if len(expected) != len(found):
        return f"{name}: expected {len(expected)} bytes, found {len(found)}"
    if (gaps(spec, expected) != gaps(spec, found)).any():
        return f"{name}: expected the same bytes between the elements, found others"
    differs = _other_bits(view(spec, expected), view(spec, found))
    if not differs.any():
        return ""
    count = np.count_nonzero(differs)
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    wanted, other = view(spec, expected)[first], view(spec, found)[first]
    return (
        f"{name}: expected the same bits, found {count} of {spec.elements} elements with others, "
        f"first {list(first)}: {wanted!r} and {other!r}"
    )


def _other_bits(one: AnyArray, other: AnyArray) -> AnyArray:
    """Which elements have other bits, NaN apart."""
    bits = [
        np.frombuffer(each.tobytes(), np.uint8).reshape(*each.shape, each.itemsize)
        for each in (one, other)
    ]
    differs: AnyArray = (bits[0] != bits[1]).any(axis=-1)
    return differs & ~((one != one) & (other != other))  # noqa: PLR0124  # NaN alone
