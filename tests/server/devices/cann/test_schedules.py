"""Random faults over random calls of several callers: what is answered is right, nothing stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from npucall.errors import ArgumentMissingError, DeviceLostError
from npucall_server.devices.cann.status_table import STATUSES, Fate

from . import situations
from .faults import BAD_ALLOC, KINDS, NULL_POINTER, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened
    from .situations import Ask

    Open = Callable[..., Opened]

LANES, CALLERS = 2, 4
SETTINGS = {"kept_calls": 2, "staging_limit": 1 << 16}
"""Large calls are copied in pieces, the others as a whole."""
ASKS: dict[str, Ask] = {
    **{f"l1 of {count}": partial(situations.l1, count=count) for count in (1, 33, 5_000, 150_000)},
    "unread": situations.unread,
    "rsub": situations.rsub,
    "cat": situations.cat,
    "add scalars": situations.add_scalars,
    "reduce nansum": situations.reduce_nansum,
    "layer norm": situations.layer_norm,
    "in place": situations.in_place,
    "no elements": situations.without_elements,
}


class Planned(NamedTuple):
    """A fault of a schedule."""

    function: str
    nth: int
    status: int
    what: str


@pytest.fixture
def functions(open_device: Open) -> list[str]:
    """The C functions that these calls use."""
    device = open_device(lanes=LANES, **SETTINGS)
    names = device.functions(lambda: [device.run(ask(device.device)) for ask in ASKS.values()])
    device.close()
    return names


def schedules(functions: list[str]) -> st.SearchStrategy[list[Planned]]:
    """Some faults; what is to fail at the synchronise does so if it submits work."""
    of_fate = {fate: [c for c, row in STATUSES.items() if row.fate is fate] for fate in Fate}
    statuses = st.sampled_from(Fate).flatmap(lambda fate: st.sampled_from(of_fate[fate]))
    what = st.sampled_from(["return", "at_sync"])
    nth = st.sampled_from([1, 2, 3, 5, 8])
    fault = st.builds(Planned, st.sampled_from(functions), nth, statuses, what)
    return st.lists(fault, min_size=3, max_size=8, unique=True)


UNRUN = st.sampled_from(["unguarded", "guarded", "refused"])
"""What becomes of executors that never run."""
calls = st.lists(st.tuples(st.sampled_from(list(ASKS)), st.booleans()), min_size=4, max_size=12)


@pytest.mark.more
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), calls=calls, kind=UNRUN)
def test_whatever_fails_every_answer_is_right_and_nothing_stays(
    open_device: Open, unrun: Callable[[str], None], functions: list[str], data: st.DataObject,
    calls: list[tuple[str, bool]], kind: str,
) -> None:  # fmt: skip
    schedule = data.draw(schedules(functions))
    unrun(kind)
    device = open_device(lanes=LANES, **SETTINGS)
    assert answered_wrong(device, calls, schedule) == []
    assert device.simulator.violations() == []
    event("lost" if device.lost else "served on")
    if device.lost:
        device.abandon()
        return
    first, *others = (ask(device.device) for ask in ASKS.values())
    served: list[bool] = []
    assert device.runs_around(first, lambda: served.extend(map(device.serves, others)))
    assert all(served)
    device.close()
    may_stay = {"aclOpExecutor"} if kind == "refused" else set()
    assert {*device.simulator.live_objects()} <= may_stay
    assert device.simulator.violations() == []
    device.simulator.reset()


def answered_wrong(
    device: Opened, calls: list[tuple[str, bool]], schedule: list[Planned]
) -> list[str]:
    """Makes the calls from several threads while the faults happen; what came out wrong."""
    for fault in schedule:
        device.simulator.fail(fault.function, fault.nth, status=fault.status, what=fault.what)
    statuses = {BAD_ALLOC, *(fault.status for fault in schedule)}
    with ThreadPoolExecutor(CALLERS) as callers:
        found = list(callers.map(lambda call: wrong(device, *call, statuses), calls))
    device.simulator.clear_faults()
    return [line for line in found if line]


def wrong(device: Opened, name: str, planned: bool, statuses: set[int]) -> str:
    """Makes one call; empty if its answer is right, or its error one that the schedule can have."""
    asked = ASKS[name](device.device)
    right: list[bool] = []
    work = (lambda: device.plan(asked) >= 0) if planned else (lambda: device.serves(asked))
    error = failure(lambda: right.append(work()))
    if error is None:
        return "" if right == [True] else f"{name}: another answer"
    if isinstance(error, DeviceLostError):
        return "" if device.lost else f"{name}: {error!r}"
    status = int(error.details["device_status"])
    kind = ArgumentMissingError if status == NULL_POINTER else KINDS[STATUSES[status].fate]
    return "" if status in statuses and type(error) is kind else f"{name}: {error!r}"
