"""What a lane takes and keeps, and how it waits: its limits are settings."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from grpc import StatusCode

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.prepare import prepare
from npucall.errors import (
    CancelledError,
    DeadlineError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)
from npucall.products import A2
from npucall_server.devices.base import Step
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.planner import Planner
from npucall_server.devices.cann.program import ProgramRun
from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.settings.npu import AscendPaths

from .calls import Ask, in_place, l1, rsub, without_elements
from .faults import NO_MEMORY, failure
from .opened import Open, Opened

MIB, KIB = 2**20, 2**10
PIECES = 4 * 512
"""Bytes of a small call: three inputs and an output."""
OF_A_CALL = 2 * (2 * MIB - 32)
"""A small call keeps a huge page for its tensors and one for its workspace."""
FAST_LAUNCH, FAST_SYNC = 1, 2
NO_PATHS = AscendPaths(None, None, ())
LIMITS = LaneLimits(
    device_timeout=10, staging_limit=MIB, kept_memory=1 << 30, kept_calls=2, busy_wait=False
)
LARGE = 300_000
"""Elements of 4 bytes; with its workspace a call takes 10 MiB of device memory."""
LITTLE = 14 * MIB
KERNEL = "aclnnL1LossBackward"


@pytest.mark.parametrize(
    ("limit", "elements", "pinned", "to_device", "to_host", "waits"),
    [(PIECES, 6, 64 * KIB, 1, 1, 0),
     (PIECES - 1, 1000, 64 * KIB, 3 * 9, 9, 0),  # tensors of 4,000 bytes by 448
     (0, 6, 0, 3, 1, 4)],
    ids=["through pinned memory", "in pieces", "waiting"],
)  # fmt: skip
def test_the_limit_decides_how_tensors_are_copied(
    open_device: Open, limit: int, elements: int, pinned: int, to_device: int, to_host: int,
    waits: int,
) -> None:  # fmt: skip
    device = open_device(staging_limit=limit)
    assert device.serves(l1(device, elements))
    counters = device.simulator.counters()
    assert (counters["pinned_bytes"], counters["pageable_copies"]) == (pinned, 0)
    found = counters["copies_host_to_device"], counters["copies_device_to_host"]
    assert found == (to_device, to_host)
    assert device.simulator.call_count("aclrtMemcpy") == waits


def test_memory_within_the_limit_is_kept_and_beyond_it_given_back(open_device: Open) -> None:
    device = open_device(kept_device_memory=OF_A_CALL)
    case = l1(device)
    assert device.serves(case)
    assert "aclrtMalloc" not in device.functions(lambda: device.run(case))
    assert device.simulator.live_objects()["aclrtMalloc"] == 2
    device.close()
    device = open_device(kept_device_memory=OF_A_CALL - 1)
    for _ in range(2):
        assert device.serves(l1(device))
        live = device.simulator.live_objects()
        assert not {"aclTensor", "aclrtMalloc", "aclrtMallocHost"} & set(live)


@pytest.mark.parametrize("kept", [1, 3])
def test_descriptors_of_so_many_calls_are_kept(open_device: Open, kept: int) -> None:
    device = open_device(kept_calls=kept)
    for count in range(1, 6):
        assert device.serves(l1(device, count))
    assert device.simulator.live_objects()["aclTensor"] == 4 * kept


def test_nothing_is_kept_for_an_operator_known_by_its_header(device: Opened) -> None:
    assert device.serves(rsub(device))
    assert not {"aclTensor", "aclScalar"} & set(device.simulator.live_objects())


def test_a_call_without_elements_takes_no_memory(device: Opened) -> None:
    assert device.serves(without_elements(device))
    assert not {"aclrtMalloc", "aclrtMallocHost"} & set(device.simulator.live_objects())


def test_calls_run_on_as_many_lanes_as_there_are(open_device: Open) -> None:
    device = open_device(lanes=3)
    assert device.simulator.call_count("aclrtCreateStreamWithConfig") == 3
    case, served = l1(device), list[bool]()

    def inner() -> None:
        served.append(device.runs_around(case, lambda: served.append(device.serves(case))))

    assert device.runs_around(case, inner)
    assert served == [True, True]
    assert device.simulator.counters()["device_allocations"] == 3 * 2


def test_a_lane_waits_asleep_or_awake_and_so_long(
    context: DeviceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = recorded(context, monkeypatch, "aclrtCreateStreamWithConfig")
    waited = recorded(context, monkeypatch, "aclrtSynchronizeStreamWithTimeout")
    for busy_wait, seconds in (False, 1.5), (True, 120), (False, 1e-6):
        lane = lane_of(context, busy_wait=busy_wait, device_timeout=seconds)
        lane._synchronise()
        lane.close()
    asleep = (0, FAST_LAUNCH)
    assert [arguments[1:] for arguments in created] == [
        asleep,
        (0, FAST_LAUNCH | FAST_SYNC),
        asleep,
    ]
    assert [milliseconds for _, milliseconds in waited] == [1500, 120_000, 1]


def test_an_operator_that_no_library_has_is_unavailable(context: DeviceContext) -> None:
    lane = lane_of(context)
    operator = prototype_only("aclnnNowhere", (), "")
    call = prepare(Call(operator, {}), A2, Catalogue([operator]))
    planner, program = Planner(context, lane._operators), ProgramRun([Step(call, {})], "somebody")
    for work in (lambda: planner.plan(call), lambda: lane.go_on(program, lambda: None)):
        with pytest.raises(OperatorUnavailableError, match="expected aclnnNowhere in a library"):
            work()
    lane.close()


def lane_of(context: DeviceContext, **limits: Any) -> Lane:
    operators = context.libraries.operators(NO_PATHS)
    return Lane(context, operators, LIMITS._replace(**limits), lambda note: None)


def recorded(
    context: DeviceContext, monkeypatch: pytest.MonkeyPatch, function: str
) -> list[tuple[Any, ...]]:
    """The arguments of a C function from here on."""
    seen: list[tuple[Any, ...]] = []
    real = getattr(context.libraries.acl, function)

    def call(*arguments: Any) -> None:
        seen.append(arguments)
        real(*arguments)

    monkeypatch.setattr(context.libraries.acl, function, call)
    return seen


# --- Too little memory: what is kept is given back, and the call tried once more ------------------


def test_a_call_that_does_not_fit_is_refused_and_a_smaller_one_served(device: Opened) -> None:
    device.simulator.set_memory(LITTLE)
    with pytest.raises(OutOfMemoryError, match=r"aclrtMalloc: .*207001") as caught:
        device.run(l1(device, 2 * LARGE))
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert device.serves(l1(device, LARGE))
    assert device.lost == []


def test_what_an_idle_lane_keeps_makes_room(open_device: Open) -> None:
    device = open_device(lanes=2)
    small, other = l1(device), l1(device, LARGE)
    assert device.runs_around(small, lambda: device.run(other))
    kept = device.simulator.counters()["device_bytes"]
    device.simulator.set_memory(LITTLE)
    assert device.serves(l1(device, LARGE + 1000))
    assert device.simulator.counters()["device_bytes"] <= LITTLE < kept + 4 * MIB
    assert device.device._lanes._free.qsize() == 2


def test_pools_are_emptied_only_for_lack_of_memory_and_as_far_as_they_can_be(
    device: Opened,
) -> None:
    case = l1(device, LARGE)
    emptied = ("aclrtFree", "aclrtFreeHost", "aclDestroyTensor")
    for fail in False, True:
        assert [device.serves(case) for _ in range(2)] == [True] * 2
        assert "aclrtFree" not in device.functions(lambda: device.run(case))
        device.simulator.fail(KERNEL, status=NO_MEMORY)
        for function in emptied * fail:
            device.simulator.fail(function, status=500000)
        served: list[bool] = []
        used = device.functions(lambda: served.append(device.serves(case)))  # noqa: B023
        assert served == [True]
        assert {*emptied} <= {*used}


def test_the_second_try_has_the_inputs_as_they_were(device: Opened) -> None:
    case = in_place(device)
    device.simulator.fail("aclnnInplaceVendorRelu", status=NO_MEMORY, what="at_sync")
    assert device.serves(case)


# --- Calls for which nobody waits any more --------------------------------------------------------


def raising(error: NpucallError, *, at: int) -> Callable[[], None]:
    """A check that passes until it is asked for the nth time."""
    answers = [None] * (at - 1) + [error]

    def check() -> None:
        if answers and (found := answers.pop(0)):
            raise found

    return check


@pytest.mark.parametrize("ask", [l1, rsub], ids=["descriptors are kept", "made for the call"])
@pytest.mark.parametrize("error", [DeadlineError("late"), CancelledError("gone")])
def test_a_call_that_nobody_waits_for_is_not_launched_or_its_result_thrown_away(
    device: Opened, ask: Ask, error: NpucallError
) -> None:
    case = ask(device)
    own = case.call.operator.name
    found = []
    used = device.functions(
        lambda: found.append(failure(partial(device.run, case, raising(error, at=1))))
    )
    assert found == [error]
    assert not [name for name in used if name.startswith(own) or "DestroyAclOpExecutor" in name]
    found.append(failure(partial(device.run, case, raising(error, at=2))))
    assert found == [error] * 2
    assert device.simulator.call_count(own) == 1
    assert device.serves(case)


@pytest.mark.parametrize("ask", [l1, rsub])
def test_nobody_is_asked_between_the_phases(device: Opened, ask: Ask) -> None:
    """A first phase without its second one spends the lane."""
    case, calls = ask(device), []
    phase_one = f"{case.call.operator.name}GetWorkspaceSize"
    device.run(case, lambda: calls.append(device.simulator.call_count(phase_one)))
    assert calls == [0, 1]
    assert device.simulator.call_count(case.call.operator.name) == 1


def test_copies_under_way_are_waited_for_before_the_call_ends(device: Opened) -> None:
    device.simulator.set_delays(bytes_per_second=100_000)
    with pytest.raises(CancelledError):
        device.run(l1(device), raising(CancelledError("gone"), at=1))
    assert device.simulator.call_count("aclrtSynchronizeStreamWithTimeout") == 1
    # Its memory can be used for the next one at once.
    assert device.serves(l1(device))
    assert device.simulator.violations() == []
