"""Tries what CANN is assumed to promise beyond single calls: order, copies, zeros, full memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from npucall_server.commands.doctor.bench import check, difference
from npucall_server.commands.doctor.finding import (
    WRONG,
    Finding,
    Section,
    failed,
    fault,
    judged,
    ok,
    warning,
)  # fmt: skip
from npucall_server.commands.doctor.kinds import call_of_shape
from npucall_server.devices.base import Step
from npucall_server.devices.cann.clearing import SLOWER
from npucall_server.devices.cann.memory import device_buffer
from npucall_server.devices.cann.program import Program

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.commands.doctor.bench import Bench
    from npucall_server.devices.cann.lane import Lane

ELEMENTS = 1 << 20
"""Elements of each tensor of a call to copy. It is larger than one of the staging limits below."""
_WAYS = {
    "all at once through pinned memory": 1 << 26,
    "in pieces through pinned memory": 1 << 20,
    "from and to ordinary memory": 0,
}
"""Each way of copying, with the staging limit that leads to it."""
_STEPS, _CALLS = 12, 20
_OVERFLOWS = "aclnnKlDivBackward"
_ZEROS, _MEMORY = "zero-kernel", "out-of-memory"
_HANDLE, _BEFORE, _CLEARED = 4 << 20, 64, (3 << 20) + 96
"""Bytes of a handle, and the start and length of the bytes to fill: no power of two."""
_LEAKS = "do not let callers share this device who do not trust each other; send the report"


def programs(bench: Bench) -> Iterator[Section | Finding]:
    """Runs one call in many steps, each on the result of the one before, without waiting."""
    call = call_of_shape(bench.catalogue, bench.product, (64,))
    if call is None:
        return
    yield Section("trial", f"a program of {_STEPS} steps of {call.operator.title}")
    steps, expected = _chain(call)
    program = Program(steps, owner="")
    while not bench.lane.go_on(program, lambda: None):
        pass
    (found,) = program.outputs()[-1]
    last = {**steps[-1].storages, next(iter(call.stored)): expected}
    wrong = difference(call, last, [found], _STEPS)  # type: ignore[arg-type]  # no step output is left
    said = f"a program of {_STEPS} steps{'' if wrong else ', each on what the one before gave'}"
    yield judged(said, wrong, "moved-descriptors", "stream-order")


def _chain(call: Prepared) -> tuple[list[Step], Buffer]:
    """The steps, and the input of the last one."""
    output, first = next(iter(call.outputs)), next(iter(call.stored))
    steps = [Step(call, dict(sample_storages(call, 0)))]
    expected: Buffer = b""
    for number in range(1, _STEPS):
        before = {**steps[-1].storages, **({first: expected} if number > 1 else {})}
        (expected,) = evaluate.run(call, before)  # type: ignore[arg-type]
        taken = {first: StepOutput(number - 1, output)}
        steps.append(Step(call, {**sample_storages(call, number), **taken}))
    discarded = frozenset([output])
    return [*(step._replace(discarded=discarded) for step in steps[:-1]), steps[-1]], expected


def overflow(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that FLOAT16 overflows to infinity, and not to its largest number."""
    try:
        operator = bench.catalogue.runnable(_OVERFLOWS)
        specs = dict.fromkeys((p.name for p in operator.inputs), TensorSpec(FLOAT16, (1,)))
        read = tuple(p.name for p in operator.inputs if p.read)
        call = prepare(
            Call(operator, {**specs, "reduction": 0}, read), bench.product, bench.catalogue
        )
    except NpucallError:  # not on this host
        return
    yield Section("trial", f"an overflow of {_OVERFLOWS} in FLOAT16")
    numbers = {"grad_output": 2, "self": 0, "target": 60000}
    storages = {name: np.float16(numbers[name]).tobytes() for name in call.stored}
    ran = bench.lane.run(call, storages, lambda: None)
    (found,) = np.frombuffer(ran.outputs[0][0], np.float16)  # type: ignore[arg-type]  # no handle
    if found == -np.inf:
        yield ok("what FLOAT16 cannot hold is infinite", "infnan")
    else:
        said = f"-120000 in FLOAT16: expected -infinity, found {found}"
        todo = "results that overflow differ from the reference's; everything else is right"
        yield warning(said, todo, "infnan")


def copies(bench: Bench) -> Iterator[Section | Finding]:
    """Runs one large call twice on a lane with each staging limit."""
    call = call_of_shape(bench.catalogue, bench.product, (ELEMENTS,))
    if call is None:
        return
    for way, limit in _WAYS.items():
        said = f"{call.bytes_in_flight >> 20} MiB {way} (staging_limit {limit >> 20} MiB)"
        yield Section("copies", f"copying {said}")
        lane = bench.open_lane(staging_limit=limit)
        try:
            first, second = (check(lane, call, seed) for seed in (1, 2))
        finally:
            if lane.broken is None:
                lane.close()
            else:
                bench.broken.append(lane.broken)
        found = judged(said, first.wrong or second.wrong, *(["pinned-memory"] if limit else []))
        if second.phases is not None and found.todo == "":
            there, back = second.phases.copy_in_ns / 1e6, second.phases.copy_out_ns / 1e6
            said = f"{found.found}; to the device in {there:.3g} ms, back in {back:.3g} ms"
            found = found._replace(found=said, times=(("copy in", there), ("copy out", back)))
        yield found


def handles(bench: Bench) -> Iterator[Section | Finding]:
    """Writes a handle's memory and reads it back, while another thread runs calls."""
    yield Section("copies", "copying for a handle while a lane of another thread works")
    data = np.random.default_rng(7).integers(0, 256, _HANDLE, np.uint8).tobytes()
    call = bench.trials[0].call

    def work(lane: Lane) -> str:
        return next(filter(None, (check(lane, call, seed).wrong for seed in range(_CALLS))), "")

    with ThreadPoolExecutor(1) as other, bench.in_thread(bench.open_lane) as thread:
        beside = other.submit(thread.do, work)
        handle = bench.handles().allocate(_HANDLE)
        handle.write(0, data[: _HANDLE // 2])
        handle.write(_HANDLE // 2, data[_HANDLE // 2 :])
        found = bytes(handle.read(0, _HANDLE))
        handle.free()
        wrong = beside.result()
    if found != data:
        yield fault("a handle does not hold what was written into it", WRONG, "handle-copies")
    elif wrong:
        yield judged("a call beside the copies of a handle", wrong, "handle-copies")
    else:
        said = f"{_HANDLE >> 20} MiB of a handle, and {_CALLS} calls in another thread at the same"
        yield judged(f"{said} time", "", "handle-copies", "main-thread")


def clearing(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that clearing memory for another caller fills it with zeros, and only it."""
    yield Section("memory", "filling device memory with zeros")
    handle = bench.handles().allocate(_HANDLE)
    handle.write(0, b"\xa5" * _HANDLE)
    bench.lane.clear(handle.address + _BEFORE, _CLEARED)
    found = bytes(handle.read(0, _HANDLE))
    handle.free()
    cleared, rest = found[_BEFORE:][:_CLEARED], found[:_BEFORE] + found[_BEFORE + _CLEARED :]
    said = f"{_CLEARED} bytes are zeros, by"
    if any(cleared):
        yield fault("memory is not zeros though it was filled so", _LEAKS, _ZEROS)
    elif rest.strip(b"\xa5"):
        yield fault("memory beside what is filled with zeros has changed", WRONG, _ZEROS)
    elif any(SLOWER in note for note in bench.notes):
        yield warning(f"{said} copies", "calls wait as long", _ZEROS)
    else:
        yield ok(f"{said} a kernel; the bytes next to them are as before", _ZEROS)


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
        trial = bench.trials[0]
        wrong = check(bench.lane, trial.call, 6).wrong
        said = f"twice its memory is refused with {error.details['device_status']}, and calls go on"
        if wrong:
            yield judged(f"{trial.title} behind memory that ran out", wrong, _MEMORY)
        else:
            yield ok(said, _MEMORY)
    except NpucallError as error:
        yield failed(error, "more memory than the device has", _MEMORY)
    else:
        memory.release()
        yield warning(
            f"the device allocated {2 * total} bytes, but reports {total}",
            "calls that are too large may end the process: set memory_limit",
            _MEMORY,
        )
