"""Tries first phases alone: whether each operator's works, and whether a run after it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from npucall.errors import NpucallError
from npucall_server.commands.doctor.bench import NOTHING, check
from npucall_server.commands.doctor.finding import Finding, Section, failed, judged, ok, warning
from npucall_server.commands.doctor.kinds import of_every_operator
from npucall_server.devices.cann.planner import Planner

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall_server.commands.doctor.bench import Bench
    from npucall_server.devices.cann.functions import NnOpBase
    from npucall_server.devices.lane_thread import LaneThread

_KEY = "unrun-executor"
_NEEDED = "a server needs npucall's planner thread on this CANN, and has it: no need to do anything"


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
        return check(self.lane, call, seed).wrong


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
                _KEY,
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
            yield failed(error, f"{title} behind a plan of it", _KEY)
            return
        if wrong == NOTHING:
            yield warning(
                f"{title}: a run after a plan on the same thread launches nothing, but reports "
                "success: this CANN answers it from a first phase that never ran",
                _NEEDED,
                _KEY,
            )
            return
        if wrong:
            yield judged(f"{title} behind a plan of it on the same thread", wrong, _KEY)
            return
    yield ok(
        f"plan, run, plan, run of {len(bench.trials)} calls on one thread: right, so this CANN "
        "does not launch what was only planned",
        _KEY,
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
