"""What a lane takes and keeps, and how it waits: its limits are settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from npucall.declare.declaration import prototype_only
from npucall.errors import OperatorUnavailableError
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.planner import Planner
from npucall_server.npu_settings import AscendPaths

from .situations import l1, rsub, without_elements

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from npucall_server.devices.cann.runtime import DeviceContext

    from .opened import Opened

    Open = Callable[..., Opened]

MIB, KIB = 2**20, 2**10
PIECES = 4 * 512
"""Bytes of a small call: three inputs and an output."""
OF_A_CALL = 2 * (2 * MIB - 32)
"""A small call keeps a huge page for its tensors and one for its workspace."""
FAST_LAUNCH, FAST_SYNC = 1, 2
NO_PATHS = AscendPaths(None, None, ())
LIMITS = LaneLimits(
    device_timeout=10, staging_limit=MIB, kept_memory=MIB, kept_calls=2, busy_wait=False
)


def test_tensors_up_to_the_limit_go_through_pinned_memory(open_device: Open) -> None:
    device = open_device(staging_limit=PIECES)
    assert device.serves(l1(device.device))
    counters = device.simulator.counters()
    assert (counters["pinned_bytes"], counters["pageable_copies"]) == (64 * KIB, 0)
    assert (counters["copies_host_to_device"], counters["copies_device_to_host"]) == (1, 1)


def test_larger_ones_go_through_it_in_pieces(open_device: Open) -> None:
    device = open_device(staging_limit=PIECES - 1)
    assert device.serves(l1(device.device, 1000))
    counters = device.simulator.counters()
    assert (counters["pinned_bytes"], counters["pageable_copies"]) == (64 * KIB, 0)
    copies = counters["copies_host_to_device"], counters["copies_device_to_host"]
    assert copies == (3 * 9, 9)  # tensors of 4,000 bytes by 448


def test_without_pinned_memory_copies_wait(open_device: Open) -> None:
    device = open_device(staging_limit=0)
    assert device.serves(l1(device.device))
    counters = device.simulator.counters()
    assert (counters["pinned_allocations"], counters["pageable_copies"]) == (0, 0)
    assert (device.simulator.call_count("aclrtMemcpy"), counters["copies_device_to_host"]) == (4, 1)


def test_both_ways_take_turns(open_device: Open) -> None:
    device = open_device(staging_limit=PIECES)
    small, large = l1(device.device), l1(device.device, 5000)
    assert [device.serves(each) for each in (small, large, small, large)] == [True] * 4


def test_memory_within_the_limit_is_kept(open_device: Open) -> None:
    device = open_device(kept_device_memory=OF_A_CALL)
    asked = l1(device.device)
    assert device.serves(asked)
    assert "aclrtMalloc" not in device.functions(lambda: device.run(asked))
    assert device.simulator.live_objects()["aclrtMalloc"] == 2


def test_memory_beyond_the_limit_is_given_back_after_the_call(open_device: Open) -> None:
    device = open_device(kept_device_memory=OF_A_CALL - 1)
    assert device.serves(l1(device.device))
    counters, live = device.simulator.counters(), device.simulator.live_objects()
    assert (counters["device_bytes"], counters["pinned_bytes"]) == (0, 0)
    assert not {"aclTensor", "aclrtMalloc", "aclrtMallocHost"} & set(live)
    assert device.serves(l1(device.device))


@pytest.mark.parametrize("kept", [1, 3])
def test_descriptors_of_so_many_calls_are_kept(open_device: Open, kept: int) -> None:
    device = open_device(kept_calls=kept)
    for count in range(1, 6):
        assert device.serves(l1(device.device, count))
    assert device.simulator.live_objects()["aclTensor"] == 4 * kept


def test_nothing_is_kept_for_an_operator_known_by_its_header(device: Opened) -> None:
    assert device.serves(rsub(device.device))
    assert not {"aclTensor", "aclScalar"} & set(device.simulator.live_objects())


def test_a_call_without_elements_takes_no_memory(device: Opened) -> None:
    assert device.serves(without_elements(device.device))
    assert not {"aclrtMalloc", "aclrtMallocHost"} & set(device.simulator.live_objects())


def test_each_lane_has_a_stream_of_its_own(open_device: Open) -> None:
    device = open_device(lanes=3)
    assert device.simulator.call_count("aclrtCreateStreamWithConfig") == 3


def test_calls_run_on_as_many_lanes_as_there_are(open_device: Open) -> None:
    device = open_device(lanes=3)
    asked = l1(device.device)
    served: list[bool] = []

    def inner() -> None:
        served.append(device.runs_around(asked, lambda: served.append(device.serves(asked))))

    assert device.runs_around(asked, inner)
    assert served == [True, True]
    assert device.simulator.counters()["device_allocations"] == 3 * 2


@pytest.mark.parametrize(
    ("busy_wait", "flags"), [(False, FAST_LAUNCH), (True, FAST_LAUNCH | FAST_SYNC)]
)
def test_a_lane_waits_asleep_or_awake(
    context: DeviceContext, monkeypatch: pytest.MonkeyPatch, busy_wait: bool, flags: int
) -> None:
    seen = recorded(context, monkeypatch, "aclrtCreateStreamWithConfig")
    lane_of(context, busy_wait=busy_wait).close()
    assert [arguments[1:] for arguments in seen] == [(0, flags)]


@pytest.mark.parametrize(("seconds", "milliseconds"), [(1.5, 1500), (120, 120_000), (1e-6, 1)])
def test_a_lane_waits_for_its_stream_so_long(
    context: DeviceContext, monkeypatch: pytest.MonkeyPatch, seconds: float, milliseconds: int
) -> None:
    seen = recorded(context, monkeypatch, "aclrtSynchronizeStreamWithTimeout")
    lane = lane_of(context, device_timeout=seconds)
    lane._synchronise()
    lane.close()
    assert [arguments[1] for arguments in seen] == [milliseconds]


def test_a_lane_that_is_closed_keeps_nothing(context: DeviceContext, simulator: Simulator) -> None:
    before = simulator.live_objects()
    lane_of(context).close()
    assert simulator.live_objects() == before


def test_an_operator_that_no_library_has_is_unavailable(context: DeviceContext) -> None:
    lane = lane_of(context)
    call: Any = type("Call", (), {"operator": prototype_only("aclnnNowhere", (), "")})
    planner = Planner(context, lane._operators)
    for work in (lambda: planner.plan(call), lambda: lane.run(call, {}, lambda: None)):
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
