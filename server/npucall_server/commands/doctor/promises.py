"""Tries what CANN is assumed to promise beyond single calls: order, copies, plans, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from npucall.compute import evaluate
from npucall.declare.prepare import Prepared
from npucall.declare.samples import Form, sample, sample_storages
from npucall.dtypes import FLOAT16
from npucall.errors import NpucallError, OutOfMemoryError
from npucall.places import StepOutput
from npucall.tensors import Buffer
from npucall_server.commands.doctor.bench import NOTHING, Bench, check, difference, run
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
from npucall_server.commands.doctor.kinds import call_of_shape, of_every_operator
from npucall_server.devices.base import Step
from npucall_server.devices.cann.clearing import SLOWER
from npucall_server.devices.cann.device_memory import device_buffer
from npucall_server.devices.cann.functions import NnOpBase
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.planner import Planner
from npucall_server.devices.lane_thread import LaneThread

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
_UNRUN = "unrun-executor"
_NEEDED = "a server needs npucall's planner thread on this CANN, and has it: no need to do anything"
_LEAKS = "do not let callers share this device who do not trust each other; send the report"


def programs(bench: Bench) -> Iterator[Section | Finding]:
    """Runs one call in many steps, each on the result of the one before, without waiting."""
    call = call_of_shape(bench.catalogue, bench.product, (64,))
    if call is None:
        return
    yield Section("trial", f"a program of {_STEPS} steps of {call.operator.title}")
    output, first = next(iter(call.outputs)), next(iter(call.stored))
    steps: list[Step] = []
    taken: dict[str, StepOutput] = {}
    right: dict[str, Buffer] = {}
    for number in range(_STEPS):
        given: dict[str, Buffer] = {**sample_storages(call, number), **right}
        is_last = number == _STEPS - 1
        discarded = frozenset([] if is_last else [output])
        steps.append(Step(call, {**given, **taken}, discarded=discarded))
        if not is_last:
            right, taken = (
                {first: evaluate.run(call, given)[0]},
                {first: StepOutput(number, output)},
            )
    (found,) = run(bench.lane, steps).outputs()[-1]
    wrong = difference(call, given, [found], _STEPS)
    said = f"a program of {_STEPS} steps{'' if wrong else ', each on what the one before gave'}"
    yield judged(said, wrong, "moved-descriptors", "stream-order")


def overflow(bench: Bench) -> Iterator[Section | Finding]:
    """Checks that FLOAT16 overflows to infinity, and not to its largest number."""
    try:
        operator = bench.catalogue.runnable(_OVERFLOWS)
        call = sample(operator, bench.product, bench.catalogue, FLOAT16, Form.BARE, (1,))
    except NpucallError:  # not on this host
        return
    yield Section("trial", f"an overflow of {_OVERFLOWS} in FLOAT16")
    numbers = {"grad_output": 2, "self": 0, "target": 60000}
    storages = {name: np.float16(numbers[name]).tobytes() for name in call.stored}
    ((output,),) = run(bench.lane, [Step(call, storages)]).outputs()
    (found,) = np.frombuffer(output, np.float16)
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
        opened = partial(bench.open_lane, staging_limit=limit)
        with bench.in_thread(opened) as thread:
            told = [thread.do(partial(check, call=call, seed=seed)) for seed in (1, 2)]
        wrong = next((wrong for wrong, _ in told if wrong), "")
        found, (_, phases) = judged(said, wrong, *(["pinned-memory"] if limit else [])), told[-1]
        if phases is not None and not wrong:
            there, back = phases.copy_in_ns / 1e6, phases.copy_out_ns / 1e6
            said = f"{found.found}; to the device in {there:.3g} ms, back in {back:.3g} ms"
            found = found._replace(found=said, times=(("copy in", there), ("copy out", back)))
        yield found


def handles(bench: Bench) -> Iterator[Section | Finding]:
    """Writes a handle's memory and reads it back, while another thread runs calls."""
    yield Section("copies", "copying for a handle while a lane of another thread works")
    data = np.random.default_rng(7).integers(0, 256, _HANDLE, np.uint8).tobytes()
    call = bench.trials[0].call

    def work(lane: Lane) -> str:
        return next(filter(None, (check(lane, call, seed)[0] for seed in range(_CALLS))), "")

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


class PlansAndRuns:
    """A planner and a lane in one thread, which no server has."""

    def __init__(self, bench: Bench) -> None:
        self._planner = Planner(bench.context, bench.operators)
        self.lane = bench.open_lane()
        self.plan = self._planner.plan
        self.close = self.lane.close
        self.spent = False

    @property
    def broken(self) -> NpucallError | None:
        """Why the device will not work again in this process."""
        return self._planner.broken or self.lane.broken

    def plan_and_run(self, call: Prepared, seed: int) -> str:
        """Plans a call, then runs it; answers what is wrong with its numbers."""
        self.plan(call)
        return check(self.lane, call, seed)[0]


def plans(bench: Bench) -> Iterator[Section | Finding]:
    """Plans in a thread of its own, since plans may leave something in their thread."""
    yield Section("planning", "starting a thread that plans and runs")
    with (
        _refusals(bench.context.libraries.base) as refusals,
        bench.in_thread(partial(PlansAndRuns, bench)) as thread,
    ):
        yield from _plan_every_operator(bench, thread)
        if not bench.is_broken:
            yield from _plan_and_run(bench, thread)
        if refusals and not bench.is_broken:
            yield warning(
                f"an executor that never ran is not destroyed: {refusals[0]}",
                f"a plan leaves some host memory until its thread is replaced; {_NEEDED}",
                _UNRUN,
            )
        yield Section("planning", "ending that thread")


def _plan_every_operator(bench: Bench, thread: LaneThread[PlansAndRuns]) -> Iterator[Any]:
    calls = of_every_operator(bench.catalogue, bench.product)
    sizes: list[int] = []
    for call in calls:
        said = f"the first phase of {call.operator.title}"
        yield Section("planning", said)
        try:
            sizes.append(thread.do(lambda both, call=call: both.plan(call)))  # type: ignore[misc]
        except NpucallError as error:
            yield failed(error, said)
            if bench.is_broken:
                return
    yield ok(
        f"the first phases of {len(sizes)} of {len(calls)} declared operators are accepted; the "
        f"largest workspace is {max(sizes, default=0)} bytes"
    )


def _plan_and_run(bench: Bench, thread: LaneThread[PlansAndRuns]) -> Iterator[Any]:
    """Plans, runs, plans and runs each call. One wrong result is enough for a fault."""
    for title, call, seed in ((each.title, each.call, n) for each in bench.trials for n in (1, 2)):
        yield Section("planning", f"plan, then run {seed} of {title} on one thread")
        try:
            wrong = thread.do(lambda both, c=call, s=seed: both.plan_and_run(c, s))  # type: ignore[misc]
        except NpucallError as error:
            yield failed(error, f"{title} behind a plan of it", _UNRUN)
            return
        if wrong:
            nothing = (
                f"{title}: a run after a plan on the same thread launches nothing, but reports "
                "success: this CANN answers it from a first phase that never ran"
            )
            said = f"{title} behind a plan of it on the same thread"
            is_guarded = wrong != NOTHING
            yield judged(said, wrong, _UNRUN) if is_guarded else warning(nothing, _NEEDED, _UNRUN)
            return
    yield ok(
        f"plan, run, plan, run of {len(bench.trials)} calls on one thread: right, so this CANN "
        "does not launch what was only planned",
        _UNRUN,
    )


@contextmanager
def _refusals(base: NnOpBase) -> Iterator[list[NpucallError]]:
    """Collects the errors of CANN when executors are destroyed; other code ignores them."""
    found: list[NpucallError] = []
    destroy: Callable[..., Any] = base.aclDestroyAclOpExecutor

    def listening(executor: Any) -> None:
        try:
            destroy(executor)
        except NpucallError as error:
            found.append(error)
            raise

    base.aclDestroyAclOpExecutor = listening
    try:
        yield found
    finally:
        base.aclDestroyAclOpExecutor = destroy


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
        wrong, _ = check(bench.lane, trial.call, 6)
        said = f"twice its memory is refused with {error.details['device_status']}, and calls go on"
        if wrong:
            yield judged(f"{trial.title} behind memory that ran out", wrong, _MEMORY)
        else:
            yield ok(said, _MEMORY)
    except NpucallError as error:
        yield failed(error, "more memory than the device has", _MEMORY)
    else:
        memory.give_back()
        yield warning(
            f"the device allocated {2 * total} bytes, but reports {total}",
            "calls that are too large may end the process: set memory_limit",
            _MEMORY,
        )
