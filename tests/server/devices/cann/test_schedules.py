"""Random faults, address sanitizer, soak: what is answered is right, nothing stays."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from npucall.errors import DeviceLostError
from npucall.statuses import Fate

from . import calls as cases
from .calls import Ask, Case
from .faults import BAD_ALLOC, failure, kind_of, statuses
from .opened import Open, Opened

LANES, CALLERS = 2, 4
SETTINGS = {"kept_calls": 2, "staging_limit": 1 << 16}
"""Large calls are copied in pieces, the others as a whole."""
ASKS: dict[str, Ask] = {
    **{f"l1 of {count}": partial(cases.l1, count=count) for count in (1, 33, 5_000, 150_000)},
    "unread": cases.unread,
    "rsub": cases.rsub,
    "cat": cases.cat,
    "add scalars": cases.add_scalars,
    "reduce nansum": cases.reduce_nansum,
    "sums": cases.vendor_sums,
    "in place": cases.in_place,
    "no elements": cases.without_elements,
}
UNRUN = st.sampled_from(["unguarded", "guarded", "refused"])
"""What becomes of executors that never run."""
CALLS = st.lists(st.tuples(st.sampled_from(list(ASKS)), st.booleans()), min_size=4, max_size=12)
"""Calls by name, that are run or planned."""


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
    names = device.functions(lambda: [device.run(ask(device)) for ask in ASKS.values()])
    device.close()
    return list(names)


def schedules(functions: list[str]) -> st.SearchStrategy[list[Planned]]:
    """Some faults; what is to fail at the synchronise does so if it submits work."""
    status = st.sampled_from(Fate).flatmap(lambda fate: st.sampled_from(statuses(fate)))
    what = st.sampled_from(["return", "at_sync"])
    nth = st.sampled_from([1, 2, 3, 5, 8])
    fault = st.builds(Planned, st.sampled_from(functions), nth, status, what)
    return st.lists(fault, min_size=3, max_size=8, unique=True)


@pytest.mark.more
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), calls=CALLS, kind=UNRUN)
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
    first, *others = (ask(device) for ask in ASKS.values())
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
    planned = {BAD_ALLOC, *(fault.status for fault in schedule)}
    with ThreadPoolExecutor(CALLERS) as callers:
        found = list(callers.map(lambda call: wrong(device, *call, planned), calls))
    device.simulator.clear_faults()
    return [line for line in found if line]


def wrong(device: Opened, name: str, is_plan: bool, planned: set[int]) -> str:
    """Makes one call; empty if its answer is right, or its error one that the schedule can have."""
    case = ASKS[name](device)
    right: list[bool] = []
    work = (lambda: device.plan(case) >= 0) if is_plan else (lambda: device.serves(case))
    error = failure(lambda: right.append(work()))
    if error is None:
        return "" if right == [True] else f"{name}: another answer"
    if isinstance(error, DeviceLostError):
        return "" if device.lost else f"{name}: {error!r}"
    status = int(error.details["device_status"])
    fits = status in planned and type(error) is kind_of(status)
    return "" if fits else f"{name}: {error!r}"


HERE = Path(__file__).parent
SLICE = ("copies", "descriptors", "errors", "faults_around_calls", "lane", "lanes", "tensors",
         "stopwatch", "unread_bytes", "schedules")  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("NPUCALL_SIM_ASAN") == "1", reason="this is that run")
def test_gccs_address_sanitizer_finds_nothing_in_a_slice_of_these_tests() -> None:
    command = ["gcc", "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "NPUCALL_SIM_ASAN": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # Python's own memory lives to the end
        "PYTHONMALLOC": "malloc",  # every object of Python has an allocation of its own
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    told = "--capture=sys"  # else what is found is lost with the process
    done = subprocess.run(
        [*command, told, *(str(HERE / f"test_{name}.py") for name in SLICE)],
        cwd=HERE.parents[3], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "AddressSanitizer" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


MIB = 2**20
WARM_UP, MANY = 5_000, 100_000
SOAKED: list[Ask] = [
    *(partial(cases.l1, count=count) for count in (1, 100, 1000, 5000)),
    cases.unread, cases.rsub, cases.cat, cases.add_scalars, cases.in_place,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.alone
def test_after_a_while_nothing_is_allocated_and_memory_does_not_grow(open_device: Open) -> None:
    device = open_device(lanes=LANES)
    device.simulator.set_kernels("none")
    soaked = [ask(device) for ask in SOAKED]
    run_often(device, soaked, WARM_UP)
    allocated, resident = allocations(device), resident_bytes()
    run_often(device, soaked, MANY)
    assert allocations(device) == allocated
    assert resident_bytes() - resident < 2 * MIB
    device.close()
    assert device.simulator.live_objects() == {}


def run_often(device: Opened, soaked: list[Case], calls: int) -> None:
    """Makes so many calls from several threads."""

    def caller() -> None:
        for case in islice(cycle(soaked), calls // CALLERS):
            device.run(case)

    with ThreadPoolExecutor(CALLERS) as callers:
        for done in [callers.submit(caller) for _ in range(CALLERS)]:
            done.result()


def allocations(device: Opened) -> list[int]:
    counters = device.simulator.counters()
    return [counters["device_allocations"], counters["pinned_allocations"]]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
