"""Plan against Execute: Execute must answer what Plan promises, and refuse what Plan refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter_ns

from npucall.errors import NpucallError
from npucall.wire.replies import decode_timings
from npucall_client.calls.answers import decode_reply
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.judging.check import described
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.not_judged import BUSY
from npucall_conformance.running.paths.path import PathCall, of_errors, of_replies, of_timings
from npucall_conformance.running.paths.resources import SECONDS, Resources, request_of
from npucall_conformance.running.paths.session_ways import step_of
from npucall_conformance.wire import ON_CPU


def plan_problems(resources: Resources, seen: Observation) -> list[str]:
    """Where Plan differs from Execute. Raises the errors in ``BUSY``."""
    call = seen.call.request()
    start = perf_counter_ns()
    try:
        plan = finished(resources.transport.plan(request_of(call)))
    except NpucallError as error:
        return _refused(seen, error)
    total = perf_counter_ns() - start
    timings = decode_timings(plan.timings.SerializeToString())
    problems = of_timings(timings, total, computed=False)
    if isinstance(seen.answer, NpucallError):
        if _is_of_values(seen):  # a plan does not see values
            return problems
        return [*problems, f"expected {described(seen.answer)}, found a plan"]
    problems += of_replies(seen.answer.reply, decode_reply(plan.reply.SerializeToString()))
    # How much a device should have is not known.
    if seen.subject.server.device in ON_CPU and plan.workspace_bytes:
        problems.append(f"expected workspace_bytes 0 on the CPU, found {plan.workspace_bytes}")
    return problems


def program_plan_problems(
    resources: Resources, seen: Observation, samples: Sequence[PathCall]
) -> list[str]:
    """Where PlanProgram differs from Execute. Raises the errors in ``BUSY``."""
    steps = sorted(samples, key=lambda sample: isinstance(sample.answer, NpucallError))
    calls = [step_of(sample) for sample in steps]
    refused = isinstance(seen.answer, NpucallError) and not _is_of_values(seen)
    try:
        request = Request(SECONDS, home=resources.home)
        plan = finished(resources.transport.sessions.plan_program(request, calls))
    except NpucallError as error:
        problems, where = _refused(seen, error), error.details.get("step", "0")
        if not refused or where != str(len(steps) - 1):
            problems.append(f"expected step {len(steps) - 1} refused, found {where}")
        return problems
    if refused:
        return [f"expected an error, found a plan of {len(plan.steps)} steps"]
    problems = [] if len(plan.steps) == len(steps) else [f"expected {len(steps)} steps"]
    for sample, step in zip(steps, plan.steps, strict=False):
        if not isinstance(sample.answer, NpucallError):
            reply = decode_reply(step.reply.SerializeToString())
            problems += of_replies(sample.answer.reply, reply)
    least = max(sum(sample.output_bytes.values()) for sample in steps)
    if plan.peak_device_bytes < least:
        problems.append(
            f"expected peak_device_bytes {least} or more, found {plan.peak_device_bytes}"
        )
    return problems


def _refused(seen: Observation, error: NpucallError) -> list[str]:
    if error.reason in BUSY:
        raise error
    if isinstance(seen.answer, NpucallError) and not _is_of_values(seen):
        return of_errors(seen.answer, error)
    return [f"expected a plan, found {described(error)}"]


def _is_of_values(seen: Observation) -> bool:
    """Whether the call is refused because of values in its arrays, which a plan does not see."""
    case = replace(seen.case, defects=())
    valid = call_of(case, seen.seed, seen.subject.server.product)
    return valid.request().call == seen.call.request().call
