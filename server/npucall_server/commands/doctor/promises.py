"""Tries what CANN is assumed to promise beyond single calls: order, infinities, full memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from npucall.compute import evaluate
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.declare.samples import sample_storages
from npucall.dtypes import FLOAT16
from npucall.errors import NpucallError, OutOfMemoryError
from npucall.places import StepOutput
from npucall.tensors import TensorSpec
from npucall_server.commands.doctor.bench import check
from npucall_server.commands.doctor.compare import difference
from npucall_server.commands.doctor.failure import WRONG, failed
from npucall_server.commands.doctor.finding import Finding, Section, fault, ok, warning
from npucall_server.commands.doctor.kinds import call_of_shape
from npucall_server.devices.base import Step
from npucall_server.devices.cann.clearing import SLOWER
from npucall_server.devices.cann.memory import device_buffer
from npucall_server.devices.cann.program import Program

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.commands.doctor.bench import Bench

_STEPS = 12
_SHAPE = (64,)
_ORDER = ("moved-descriptors", "stream-order")
_OVERFLOWS = "aclnnKlDivBackward"
_ZEROS = "zero-kernel"
_HANDLE, _BEFORE, _CLEARED = 4 << 20, 64, (3 << 20) + 96
"""Bytes of a handle, and the start and length of the bytes to fill: no power of two."""
_LEAKS = "do not let callers share this device who do not trust each other; send the report"


def programs(bench: Bench) -> Iterator[Section | Finding]:
    """Runs one call in many steps, each on the result of the one before, without waiting."""
    call = call_of_shape(bench.catalogue, bench.product, _SHAPE)
    if call is None:
        return
    yield Section("trial", f"a program of {_STEPS} steps of {call.operator.title}")
    steps, expected = _chain(call)
    program = Program(steps, owner="")
    while not bench.lane.go_on(program, lambda: None):
        pass
    (found,) = program.outputs()[-1]
    last = {**steps[-1].storages, next(iter(call.stored)): expected}
    if wrong := difference(call, last, [found], _STEPS):  # type: ignore[arg-type]  # no step output is left
        yield fault(f"a program of {_STEPS} steps: {wrong}", WRONG, *_ORDER)
    else:
        yield ok(f"a program of {_STEPS} steps, each on what the one before gave: right", *_ORDER)


def overflow(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that FLOAT16 overflows to infinity, and not to its largest number."""
    call = _overflowing(bench)
    if call is None:
        return
    yield Section("trial", f"an overflow of {_OVERFLOWS} in FLOAT16")
    numbers = {"grad_output": 2, "self": 0, "target": 60000}
    storages = {n: np.float16(numbers[n]).tobytes() for n in call.stored}
    ran = bench.lane.run(call, storages, lambda: None)
    (found,) = np.frombuffer(ran.outputs[0], np.float16)  # type: ignore[arg-type]  # no handle
    if found == -np.inf:
        yield ok("what FLOAT16 cannot hold is infinite", "infnan")
    else:
        yield warning(
            f"-120000 in FLOAT16: expected -infinity, found {found}",
            "results that overflow differ from the reference's; everything else is right",
            "infnan",
        )


def clearing(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that clearing memory for another caller fills it with zeros, and only it."""
    yield Section("memory", "filling device memory with zeros")
    handle = bench.handles().allocate(_HANDLE)
    handle.write(0, b"\xa5" * _HANDLE)
    bench.lane.clear(handle.address + _BEFORE, _CLEARED)
    found = bytes(handle.read(0, _HANDLE))
    handle.free()
    cleared, rest = found[_BEFORE:][:_CLEARED], found[:_BEFORE] + found[_BEFORE + _CLEARED :]
    if any(cleared):
        yield fault("memory is not zeros though it was filled so", _LEAKS, _ZEROS)
    elif rest.strip(b"\xa5"):
        yield fault("memory beside what is filled with zeros has changed", WRONG, _ZEROS)
    elif any(SLOWER in note for note in bench.notes):
        yield warning(f"{_CLEARED} bytes are zeros, by copies", "calls wait as long", _ZEROS)
    else:
        yield ok(
            f"{_CLEARED} bytes are zeros, by a kernel; the bytes next to them are as before", _ZEROS
        )


def too_much(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that CANN refuses more memory than the device has, and that calls still run."""
    total = bench.context.facts().memory_total_bytes
    if not total:
        return
    yield Section("memory", "asking for more memory than the device has")
    memory = device_buffer(bench.context.libraries.acl)
    try:
        memory.reserve(2 * total)
    except OutOfMemoryError as error:
        status = error.details["device_status"]
    except NpucallError as error:
        yield failed(error, "more memory than the device has", "out-of-memory")
        return
    else:
        memory.release()
        yield warning(
            f"the device allocated {2 * total} bytes, but reports {total}",
            "calls that are too large may end the process: set memory_limit",
            "out-of-memory",
        )
        return
    trial = bench.trials[0]
    wrong = check(bench.lane, trial.call, 6).wrong
    if wrong:
        yield fault(f"{trial.title} behind memory that ran out: {wrong}", WRONG, "out-of-memory")
    else:
        yield ok(f"twice its memory is refused with {status}, and calls go on", "out-of-memory")


def _chain(call: Prepared) -> tuple[list[Step], Buffer]:
    """The steps, and the input of the last one."""
    output, first = next(iter(call.outputs)), next(iter(call.stored))
    steps: list[Step] = []
    expected: Buffer = b""
    for number in range(_STEPS):
        storages = dict(sample_storages(call, number))
        if number == 0:
            steps.append(Step(call, storages))
        else:
            before = {**steps[-1].storages, **({first: expected} if number > 1 else {})}
            (expected,) = evaluate.run(call, before)  # type: ignore[arg-type]
            steps.append(Step(call, {**storages, first: StepOutput(number - 1, output)}))
    discarded = frozenset([output])
    return [*(step._replace(discarded=discarded) for step in steps[:-1]), steps[-1]], expected


def _overflowing(bench: Bench) -> Prepared | None:
    try:
        operator = bench.catalogue.runnable(_OVERFLOWS)
        spec = TensorSpec(FLOAT16, (1,))
        specs = dict.fromkeys((p.name for p in operator.inputs), spec)
        read = tuple(p.name for p in operator.inputs if p.read)
        call = Call(operator, {**specs, "reduction": 0}, read)
        return prepare(call, bench.product, bench.catalogue)
    except NpucallError:  # not on this host
        return None
