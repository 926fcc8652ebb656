"""What a request asks for: from its bytes to the steps that a device runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from npucall.compute.evaluate import NO_TARGETS
from npucall.declare.prepare import Prepared
from npucall.errors import MessageError
from npucall.places import Place, StepOutput
from npucall.programs import Program, ProgramStep, check_output_places, prepare_program, sizes
from npucall.wire.messages import RequestParts, split_request
from npucall.wire.program_messages import split_program
from npucall_server.devices.base import Step
from npucall_server.telemetry.log import Record

PROGRAM = "program"
"""The log and the account have this in place of the operator."""
_NOTHING: frozenset[str] = frozenset()


def read_program(
    message: bytes,
    record: Record,
    prepared: Callable[[bytes], Prepared],
    *,
    planned: bool = False,
) -> tuple[Program, Sequence[Step]]:
    """The program of an ``ExecuteProgramRequest``, checked.

    And what runs, if all of it is in the message; for a plan, without the bytes.
    """
    record.operator = PROGRAM
    start = perf_counter_ns()
    requests = split_program(message)
    decoded = perf_counter_ns()
    program = prepare_program(requests, prepared, planned=planned)
    record.decode_ns, record.check_ns = decoded - start, perf_counter_ns() - decoded
    is_whole = planned or program.stays_in_program
    return program, _own_steps(program) if is_whole else ()


def read_call(
    message: bytes,
    record: Record,
    prepared: Callable[[bytes], Prepared],
    *,
    planned: bool = False,
    chunked: bool = False,
) -> tuple[Prepared | Program, Sequence[Step]]:
    """The call of an ``ExecuteRequest``, checked: a program if some of its bytes have places.

    And what runs, if all of it is in the message. ``chunked``: storages follow, except those that
    have a place. The record names the call from when its operator is known.
    """
    start = perf_counter_ns()
    request = split_request(message)
    decoded = perf_counter_ns()
    record.decode_ns = decoded - start
    call = prepared(request.call)
    record.operator, record.variant = call.operator.name, call.operator.variant
    asked: Prepared | Program = call
    steps: Sequence[Step] = ()
    if planned and request.is_placed:
        raise MessageError("plan: expected a call without bytes, found places for them")
    if not planned:
        storage = _storage_of(request, call, chunked=chunked)
        if request.is_placed:
            asked = _placed(call, storage, request)
        elif not chunked:
            steps = [Step(call, call.storages(storage))]  # type: ignore[arg-type]  # no places
    record.check_ns = perf_counter_ns() - decoded
    return asked, steps


def _own_steps(program: Program) -> list[Step]:
    """The steps of a program with all bytes in its message; for a plan, without the bytes."""
    return [
        Step(
            step.call,
            dict(zip(step.call.stored, step.storage, strict=True)),  # type: ignore[arg-type]
            NO_TARGETS,
            step.discarded if step.output_places else _NOTHING,
        )
        for step in program.steps
    ]


def _storage_of(request: RequestParts, call: Prepared, *, chunked: bool) -> Sequence[Place]:
    """Where each storage is; None where it follows."""
    storage: Sequence[Any] = request.storage
    if not chunked:
        if None in storage:
            raise MessageError("storage: expected a place for its bytes, found none")
        return storage
    storage = storage or [None] * len(call.stored)
    if found := sum(isinstance(place, memoryview) for place in storage):
        raise MessageError(
            "begin: expected storages without data, since `chunked` is set, found "
            f"{found} with data"
        )
    return storage


def _placed(call: Prepared, storage: Sequence[Place], request: RequestParts) -> Program:
    """The program of a call with places."""
    if any(isinstance(place, StepOutput) for place in storage):
        raise MessageError("result: expected it only in a step of a program, found it in a call")
    call.check_sizes(sizes(call, storage))
    check_output_places(call, request.output_places)
    return Program([ProgramStep(call, storage, request.output_places)])
