"""A device that has too little memory: what is kept is given back, and the call tried once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode

from npucall.errors import OutOfMemoryError

from .faults import failure
from .situations import in_place, l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

MIB = 2**20
LARGE = 300_000
"""Elements of 4 bytes; with its workspace a call takes 10 MiB of device memory."""
PLENTY, LITTLE = 64 * MIB, 14 * MIB


def large(device: Opened, count: int = LARGE) -> Asked:
    return l1(device.device, count)


def device_bytes(device: Opened) -> int:
    return device.simulator.counters()["device_bytes"]


def test_a_call_that_does_not_fit_is_refused_and_a_smaller_one_served(device: Opened) -> None:
    device.simulator.set_memory(LITTLE)
    with pytest.raises(OutOfMemoryError, match=r"aclrtMalloc: .*207001") as caught:
        device.run(large(device, 2 * LARGE))
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert device.serves(large(device))
    assert device.lost == []


def test_what_an_idle_lane_keeps_makes_room(open_device: Open) -> None:
    device = open_device(lanes=2)
    small, other = l1(device.device), large(device)
    assert device.runs_around(small, lambda: device.run(other))
    kept = device_bytes(device)
    device.simulator.set_memory(LITTLE)
    assert device.serves(l1(device.device, LARGE + 1000))
    assert device_bytes(device) <= LITTLE < kept + 4 * MIB
    assert device.device._lanes._free.qsize() == 2


def test_what_a_lane_at_work_uses_is_left_to_it(open_device: Open) -> None:
    device = open_device(lanes=2)
    device.simulator.set_memory(LITTLE)
    asked, other, errors = large(device), large(device), []
    assert device.runs_around(asked, lambda: errors.append(failure(lambda: device.run(other))))
    assert [type(error) for error in errors] == [OutOfMemoryError]
    assert device.serves(other)


def test_pools_are_emptied_only_for_lack_of_memory(device: Opened) -> None:
    asked = large(device)
    assert device.serves(asked)
    assert "aclrtFree" not in device.functions(lambda: device.run(asked))
    device.simulator.fail("aclnnL1LossBackward", status=207001)
    assert {"aclrtFree", "aclrtFreeHost", "aclDestroyTensor"} <= set(
        device.functions(lambda: device.run(asked))
    )


def test_a_pool_that_cannot_be_emptied_does_not_end_the_second_try(device: Opened) -> None:
    asked = large(device)
    assert [device.serves(asked) for _ in range(2)] == [True] * 2
    device.simulator.fail("aclnnL1LossBackward", status=207001)
    for function in ("aclrtFree", "aclrtFreeHost", "aclDestroyTensor"):
        device.simulator.fail(function, status=500000)
    assert device.serves(asked)


def test_the_second_try_has_the_inputs_as_they_were(device: Opened) -> None:
    asked = in_place(device.device)
    device.simulator.fail("aclnnInplaceRelu", status=207001, what="at_sync")
    assert device.serves(asked)
