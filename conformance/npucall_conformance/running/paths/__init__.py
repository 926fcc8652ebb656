"""Whether a call has the same answer by every path, and Plan says what Execute does.

The answer by each path is compared, bit by bit, with the answer that the case had before. Each path
sends the call, and the same call with other data. So an answer to the wrong call is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from grpc import StatusCode

from npucall.errors import HandleMemoryError, NpucallError
from npucall.tensors import TensorSpec
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.judging.check import described
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.not_judged import BUSY, NotJudgedError
from npucall_conformance.running.paths.memory_way import by_shared_memory
from npucall_conformance.running.paths.message_ways import (
    by_calls,
    by_chunks,
    by_early_outputs,
    by_execute,
    by_pipeline,
    by_stream,
)
from npucall_conformance.running.paths.path import (
    AnswerOrError,
    OutOfReachError,
    Path,
    PathCall,
    differences,
    of_timings,
)
from npucall_conformance.running.paths.plans import plan_problems, program_plan_problems
from npucall_conformance.running.paths.resources import Resources, lacking
from npucall_conformance.running.paths.session_ways import (
    by_digest,
    by_handle,
    by_kept_outputs,
    by_program,
)
from npucall_conformance.running.subject import Subject
from npucall_conformance.wire import unreadable

PATHS = (
    Path("execute", by_execute, "messages"),
    Path("stream", by_stream, "messages", "streams", alone=True),
    Path("chunks", by_chunks, "messages", "streams", alone=True),
    Path("early-outputs", by_early_outputs, "messages", "streams early", alone=True),
    Path("pipeline", by_pipeline("server"), "keeping", "streams"),
    Path("shared-memory", by_shared_memory, "messages linux", "memory socket", required=False,
         long=False),
    Path("handle", by_handle, "keeping", "streams handles", long=False),
    Path("kept-output", by_kept_outputs, "keeping", "streams handles", alone=True),
    Path("digest", by_digest, "keeping", "streams handles digests", required=False, alone=True,
         long=False),
    Path("program", by_program, "keeping", "handles programs", timed=False, links=True, long=False),
    Path("asyncio", by_calls("loop"), "asyncio", ours=True),
    Path("asyncio-pipeline", by_pipeline("loop"), "asyncio", "streams", ours=True),
    Path("pool", by_calls("pool"), "messages ports", ours=True),
    Path("pool-pipeline", by_pipeline("pool"), "messages ports", "streams", ours=True),
)  # fmt: skip
"""The paths. The three below come in addition."""
PLAN, PROGRAM_PLAN, UNREAD = "plan", "program-plan", "unread"
_FEW_ELEMENTS = 1 << 17
"""If a call has more elements, the same call with other data is not sent."""
_GONE = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_FIRST = "1"
"""Ids end with the number of the case. Cases whose ids end like this also take the paths that only
the client makes different."""
_GIVE_UP = 2
"""After so many calls in a row without an answer, a path is no longer taken."""


def due(subject: Subject, cases: Sequence[Case]) -> tuple[str, ...]:
    """The paths that a run of these cases has to take, or to say why not."""
    sent = [case for case in cases if case.block == "paths"]
    try:
        _ = subject.client
    except NotJudgedError:
        return ()
    taken = [path.name for path in PATHS if any(_is_worth(path, case) for case in sent)]
    return (*taken, PLAN) if sent else ()


def _is_worth(path: Path, case: Case) -> bool:
    """Whether the case has to take the path, if it can."""
    return (path.long or not _is_long(case)) and (not path.ours or case.id.endswith(_FIRST))


def _is_long(case: Case) -> bool:
    return sum(map(prod, case.shapes.values())) > _FEW_ELEMENTS


def by_every_path(seen: Observation) -> list[str]:
    """What is different if the call is sent by another path.

    Raises NotJudgedError if nothing is different, but a path was too busy.
    """
    is_refused = isinstance(seen.answer, NpucallError)
    if is_refused != (seen.expectation.refused is not None):
        return []  # that is wrong enough, and is said already
    look = _Look(seen)
    samples = list(_samples(seen))
    look.problems += [f"timings: {each}" for each in _timing_problems(seen, samples[0].answer)]
    paths = [path for path in PATHS if _is_worth(path, seen.case)]
    for path in paths:
        look.take(path, samples)
    look.plan(samples)
    unread = tuple(name for name in seen.case.statement.unread if name in seen.call.storages)
    if unread:
        seen.taken.paths.append(UNREAD)
        unsent = [replace(sample, unsent=unread) for sample in samples[:1]]
        for path in paths:
            if not path.ours:
                look.take(path, unsent, ", unread inputs not sent")
    if look.busy and not look.problems:
        raise NotJudgedError(look.busy)
    return look.problems


class _Look:
    """The paths of one call, and the problems found on them."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        self._resources = seen.subject.once(Resources)
        self.problems: list[str] = []
        self.busy = ""
        """Why a path could not be judged; empty if all could."""

    def take(self, path: Path, samples: Sequence[PathCall], what: str = "") -> None:
        """Sends calls by a path, as far as it goes from here to there."""
        taken, name = self._seen.taken, path.name
        try:
            reason = lacking(self._resources, path.reach)
            missing = "" if reason else lacking(self._resources, path.offers)
        except NpucallError as error:
            reason, missing = "", described(error)
        if missing and path.required and not self._seen.allow_missing:
            self.problems.append(f"{name}: expected a server that has it, found that {missing}")
        elif reason or missing:
            taken.skipped[name] = reason or missing
        elif self._resources.silent.get(name, 0) >= _GIVE_UP:
            self.problems.append(f"{name}: not sent, since nothing answered it before")
        else:
            self._send(path, samples, what)

    def _send(self, path: Path, samples: Sequence[PathCall], what: str) -> None:
        sent = [sample for sample in samples if path.links or sample.takes is None]
        sent = sent[:1] if path.alone else sent
        try:
            outcomes = path.send(self._resources, sent)
        except OutOfReachError as reason:
            self._seen.taken.skipped[path.name] = str(reason)
            return
        except NpucallError as error:
            sent, outcomes = sent[:1], [error]
        except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
            sent, outcomes = sent[:1], [unreadable(error)]
        errors = [each for each in outcomes if isinstance(each, NpucallError)]
        gone = any(error.code in _GONE for error in errors)
        silent = self._resources.silent
        silent[path.name] = silent.get(path.name, 0) + 1 if gone else 0
        busy = [each for each in errors if each.reason in (*BUSY, HandleMemoryError.reason)]
        if busy:
            self._is_busy(path.name, busy[0])
            return
        if path.name not in self._seen.taken.paths:
            self._seen.taken.paths.append(path.name)
        for sample, outcome in zip(sent, outcomes, strict=True):
            found = differences(sample.answer, outcome)
            found += _timing_problems(self._seen, outcome) if path.timed else []
            self.problems += [f"{path.name}{what}: {problem}" for problem in found]

    def plan(self, samples: Sequence[PathCall]) -> None:
        """Has the call planned too, alone and as a step of a program."""
        self._found(PLAN, lambda: plan_problems(self._resources, self._seen))
        if lacking(self._resources, "keeping handles programs"):
            return  # that is said where a program is sent
        self._found(
            PROGRAM_PLAN, lambda: program_plan_problems(self._resources, self._seen, samples)
        )

    def _found(self, name: str, find: Callable[[], list[str]]) -> None:
        try:
            found = find()
        except NpucallError as error:
            self._is_busy(name, error)
            return
        self._seen.taken.paths.append(name)
        self.problems += [f"{name}: {problem}" for problem in found]

    def _is_busy(self, name: str, error: NpucallError) -> None:
        self._seen.taken.skipped[name] = self.busy = f"{name}: {described(error)}"


def _timing_problems(seen: Observation, outcome: AnswerOrError) -> list[str]:
    if isinstance(outcome, NpucallError):
        return []
    computed = all(prod(shape) for shape in seen.case.shapes.values())
    computed = computed and seen.case.setup.filled is None
    return of_timings(outcome.timings, outcome.total_ns, computed=computed)


def _samples(seen: Observation) -> Iterator[PathCall]:
    """The call, the same with other data, and one that takes an output of the first.

    A call that is refused comes together with one that is not.
    """
    first = PathCall(seen.call, seen.answer)
    yield first
    if _is_long(seen.case):
        return
    is_refused = bool(seen.case.defects)
    case = replace(seen.case, defects=()) if is_refused else seen.case
    seed = seen.seed if is_refused else seen.seed + 1
    other = call_of(case, seed, seen.subject.server.product)
    yield from _answered(seen, PathCall(other, seen.answer))
    if (takes := _link(seen)) is not None and not isinstance(seen.answer, NpucallError):
        name, output = takes
        storages = {**seen.call.storages, name: seen.answer.storages[output]}
        linked = replace(seen.call, storages=storages)
        yield from _answered(seen, PathCall(linked, seen.answer, takes=takes))


def _answered(seen: Observation, sample: PathCall) -> Iterator[PathCall]:
    """The sample with its own answer; nothing if there is no answer."""
    answer = seen.subject.ask(sample.made)
    if not isinstance(answer, NpucallError):
        yield replace(sample, answer=answer)


def _link(seen: Observation) -> tuple[str, str] | None:
    """An input that the operator reads, and an output that could be used as this input."""
    if isinstance(seen.answer, NpucallError):
        return None
    for each in seen.case.statement.inputs:
        spec = seen.call.arguments.get(each.name)
        if not isinstance(spec, TensorSpec) or spec.dtype.kind != "float":
            continue
        if each.name in seen.case.statement.unread or not spec.storage_bytes:
            continue
        for output, other in seen.answer.outputs.items():
            if (other.dtype, other.storage_bytes) == (spec.dtype, spec.storage_bytes):
                return each.name, output
    return None
