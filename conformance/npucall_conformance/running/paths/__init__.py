"""Whether a call has the same answer by every path, and Plan says what Execute does.

The answer by each path is compared, bit by bit, with the answer that the case had before. Each path
sends the call, and the same call with other data. So an answer to the wrong call is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from time import perf_counter_ns

from grpc import StatusCode

from npucall.errors import HandleMemoryError, NpucallError
from npucall.tensors import TensorSpec
from npucall.wire.replies import decode_timings
from npucall_client.calls.answers import decode_reply
from npucall_client.sending.senders import finished
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.judging.check import described
from npucall_conformance.judging.differences import differences, of_errors, of_replies
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.not_judged import BUSY, NotJudgedError
from npucall_conformance.running.paths.path import (
    OF_HERE,
    OutOfReachError,
    Path,
    PathCall,
    Resources,
    lacking,
    of_timings,
    request_of,
)
from npucall_conformance.running.paths.ways import (
    by_digest,
    by_execute,
    by_handle,
    by_kept_outputs,
    by_pipeline,
    by_program,
    by_shared_memory,
    on_streams,
    step_of,
)
from npucall_conformance.running.subject import Subject
from npucall_conformance.wire import ON_CPU, AnswerOrError, unreadable

PATHS = (
    Path("execute", by_execute, "messages"),
    Path("stream", partial(on_streams, whole=True), "messages streams", alone=True),
    Path("chunks", on_streams, "messages streams", alone=True),
    Path("early-outputs", partial(on_streams, early=True), "messages streams early", alone=True),
    Path("pipeline", by_pipeline, "keeping streams"),
    Path("shared-memory", by_shared_memory, "messages linux memory socket", required=False,
         long=False),
    Path("handle", by_handle, "keeping streams handles", long=False),
    Path("kept-output", by_kept_outputs, "keeping streams handles", alone=True),
    Path("digest", by_digest, "keeping streams handles digests", required=False, alone=True,
         long=False),
    Path("program", by_program, "keeping handles programs", timed=False, links=True, long=False),
)  # fmt: skip
"""The paths. The three below come in addition."""
PLAN, PROGRAM_PLAN, UNREAD = "plan", "program-plan", "unread"
_FEW_ELEMENTS = 1 << 17
"""If a call has more elements, the same call with other data is not sent."""
_GONE = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_GIVE_UP = 2
"""After so many calls in a row without an answer, a path is no longer taken."""


def due(subject: Subject, cases: Sequence[Case]) -> tuple[str, ...]:
    """The paths that a run of these cases has to take, or to say why not."""
    sent = [case for case in cases if case.block == "paths"]
    if not sent or subject.listing is None:
        return ()
    long = all(map(_is_long, sent))
    return (*(path.name for path in PATHS if path.long or not long), PLAN)


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
    look.problems += [f"timings: {each}" for each in look.timing_problems(samples[0].answer)]
    paths = [path for path in PATHS if path.long or not _is_long(seen.case)]
    for path in paths:
        look.take(path, samples)
    look.plan(samples)
    unread = tuple(name for name in seen.case.statement.unread if name in seen.call.storages)
    if unread:
        seen.paths.append(UNREAD)
        unsent = [replace(sample, unsent=unread) for sample in samples[:1]]
        for path in paths:
            look.take(path, unsent, ", unread inputs not sent")
    if look.busy and not look.problems:
        raise NotJudgedError(look.busy)
    return look.problems


class _Look:
    """The paths of one call, and the problems found on them."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        if seen.subject.resources is None:
            seen.subject.resources = Resources(seen.subject)
        self._resources: Resources = seen.subject.resources
        self.problems: list[str] = []
        self.busy = ""
        """Why a path could not be judged; empty if all could."""

    def take(self, path: Path, samples: Sequence[PathCall], what: str = "") -> None:
        """Sends calls by a path, as far as it goes from here to there."""
        try:
            need, reason = lacking(self._resources, path.needs)
        except NpucallError as error:
            need, reason = "answer", described(error)
        is_lawful = need in OF_HERE or not path.required or self._seen.runner.allow_missing
        if need and is_lawful:
            self._seen.paths_skipped[path.name] = reason
        elif need:
            self.problems.append(f"{path.name}: expected a server that has it, found that {reason}")
        elif self._resources.silent.get(path.name, 0) >= _GIVE_UP:
            self.problems.append(f"{path.name}: not sent, since nothing answered it before")
        else:
            self._send(path, samples, what)

    def _send(self, path: Path, samples: Sequence[PathCall], what: str) -> None:
        sent = [sample for sample in samples if path.links or sample.takes is None]
        sent = sent[:1] if path.alone else sent
        try:
            outcomes = path.send(self._resources, sent)
        except OutOfReachError as reason:
            self._seen.paths_skipped[path.name] = str(reason)
            return
        except NpucallError as error:
            sent, outcomes = sent[:1], [error]
        except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
            sent, outcomes = sent[:1], [unreadable(error)]
        errors = [each for each in outcomes if isinstance(each, NpucallError)]
        gone, silent = any(error.code in _GONE for error in errors), self._resources.silent
        silent[path.name] = silent.get(path.name, 0) + 1 if gone else 0
        busy = [each for each in errors if each.reason in (*BUSY, HandleMemoryError.reason)]
        if busy:
            self._is_busy(path.name, busy[0])
            return
        if path.name not in self._seen.paths:
            self._seen.paths.append(path.name)
        for sample, outcome in zip(sent, outcomes, strict=True):
            found = differences(sample.answer, outcome)
            found += self.timing_problems(outcome) if path.timed else []
            self.problems += [f"{path.name}{what}: {problem}" for problem in found]

    def _is_busy(self, name: str, error: NpucallError) -> None:
        self._seen.paths_skipped[name] = self.busy = f"{name}: {described(error)}"

    def timing_problems(self, outcome: AnswerOrError) -> list[str]:
        """What is wrong with the times of an answer."""
        if isinstance(outcome, NpucallError):
            return []
        computed = all(prod(shape) for shape in self._seen.case.shapes.values())
        computed = computed and self._seen.case.setup.filled is None
        return of_timings(outcome.timings, outcome.total_ns, computed=computed)

    def plan(self, samples: Sequence[PathCall]) -> None:
        """Has the call planned too, alone and as a step of a program."""
        steps = sorted(samples, key=lambda sample: sample.is_refused)
        plans = {PLAN: partial(_plan_problems, self._resources, self._seen)}
        if not lacking(self._resources, "keeping handles programs")[0]:
            plans[PROGRAM_PLAN] = partial(_program_problems, self._resources, self._seen, steps)
        for name, find in plans.items():
            try:
                found = find()
            except NpucallError as error:
                if error.reason in BUSY:
                    self._is_busy(name, error)
                    continue
                found = _refused(self._seen, error)
                step = error.details.get("step", "0")
                if name == PROGRAM_PLAN and step != str(len(steps) - 1):
                    found.append(f"expected step {len(steps) - 1} refused, found {step}")
            self._seen.paths.append(name)
            self.problems += [f"{name}: {problem}" for problem in found]


def _plan_problems(resources: Resources, seen: Observation) -> list[str]:
    """Where Plan differs from Execute. Raises NpucallError if it is refused."""
    call, start = seen.call.request(), perf_counter_ns()
    plan = finished(resources.transport.plan(request_of(call)))
    total = perf_counter_ns() - start
    timings = decode_timings(plan.timings.SerializeToString())
    problems = of_timings(timings, total, computed=False)
    if isinstance(seen.answer, NpucallError):
        if _is_of_values(seen):
            return problems
        return [*problems, f"expected {described(seen.answer)}, found a plan"]
    problems += of_replies(seen.answer.reply, decode_reply(plan.reply.SerializeToString()))
    # How much a device should have is not known.
    if seen.subject.server.device in ON_CPU and plan.workspace_bytes:
        problems.append(f"expected workspace_bytes 0 on the CPU, found {plan.workspace_bytes}")
    return problems


def _program_problems(
    resources: Resources, seen: Observation, steps: Sequence[PathCall]
) -> list[str]:
    """Where PlanProgram differs from Execute. Raises NpucallError if it is refused."""
    calls = [step_of(sample) for sample in steps]
    plan = finished(resources.transport.sessions.plan_program(resources.request(), calls))
    if isinstance(seen.answer, NpucallError) and not _is_of_values(seen):
        return [f"expected an error, found a plan of {len(plan.steps)} steps"]
    problems = [] if len(plan.steps) == len(steps) else [f"expected {len(steps)} steps"]
    for sample, step in zip(steps, plan.steps, strict=False):
        if not isinstance(sample.answer, NpucallError):
            reply = decode_reply(step.reply.SerializeToString())
            problems += of_replies(sample.answer.reply, reply)
    least, found = max(sum(s.output_bytes.values()) for s in steps), plan.peak_device_bytes
    if found < least:
        problems.append(f"expected peak_device_bytes {least} or more, found {found}")
    return problems


def _refused(seen: Observation, error: NpucallError) -> list[str]:
    """What is wrong with a plan that is refused."""
    if isinstance(seen.answer, NpucallError) and not _is_of_values(seen):
        return of_errors(seen.answer, error)
    return [f"expected a plan, found {described(error)}"]


def _is_of_values(seen: Observation) -> bool:
    """Whether the call is refused because of values in its arrays, which a plan does not see."""
    changes = [each for row in seen.case.defects for each in row.changes.values()]
    return all(isinstance(each, dict) and "values" in each for each in changes)


def _samples(seen: Observation) -> Iterator[PathCall]:
    """The call, the same with other data, and one that takes an output of the first.

    A call that is refused comes together with one that is not.
    """
    yield PathCall(seen.call, seen.answer)
    if _is_long(seen.case):
        return
    case, seed = seen.case, seen.runner.seed + 1
    if case.defects:
        case, seed = replace(case, defects=()), seen.runner.seed
    other = call_of(case, seed, seen.subject.server.product)
    yield from _answered(seen, PathCall(other, seen.answer))
    takes = _link(seen)
    if takes is not None and not isinstance(seen.answer, NpucallError):
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
    outputs = {} if isinstance(seen.answer, NpucallError) else seen.answer.outputs
    for each in seen.case.statement.inputs:
        spec = seen.call.arguments.get(each.name)
        if not isinstance(spec, TensorSpec) or spec.dtype.kind != "float" or not each.read:
            continue
        for output, other in outputs.items():
            if (other.dtype, other.storage_bytes) == (spec.dtype, spec.storage_bytes or -1):
                return each.name, output
    return None
