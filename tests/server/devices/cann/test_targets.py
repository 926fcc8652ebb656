"""Outputs of the CANN device in memory that is given for them, and how long it holds memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from .faults import failure
from .opened import FreeTurn
from .situations import FOUR_PIECES, SITUATIONS, l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.devices.base import Ran

    from .asked import Asked
    from .opened import Opened
    from .situations import Ask

    Open = Callable[..., Opened]

OVERFLOW = 207016
ASKS = list(dict.fromkeys(situation.then for situation in SITUATIONS.values()))
WAYS = {"whole": {}, "in pieces": {"staging_limit": FOUR_PIECES}, "waiting": {"staging_limit": 0}}


def run_into(device: Opened, asked: Asked, targets: dict[str, bytearray]) -> Ran:
    return device.device.run(asked.call, asked.storages, FreeTurn(), targets)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_outputs_are_written_into_the_memory_that_is_given_for_them(
    open_device: Open, ask: Ask, way: str
) -> None:
    device = open_device(**WAYS[way])
    asked = ask(device.device)
    targets = {n: bytearray(b"\xa5" * s.storage_bytes) for n, s in asked.call.outputs.items()}
    outputs = run_into(device, asked, targets).outputs
    assert list(targets.values()) == asked.answers
    for output, target in zip(outputs, targets.values(), strict=True):
        target[:] = bytes(len(target))
        assert bytes(output) == target  # the same memory


@pytest.mark.parametrize("way", WAYS)
def test_an_output_without_memory_of_its_own_gets_some(open_device: Open, way: str) -> None:
    device = open_device(**WAYS[way])
    asked = l1(device.device)
    assert [bytes(output) for output in run_into(device, asked, {}).outputs] == asked.answers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", [False, True], ids=["a call that ends", "a call that fails"])
def test_nothing_of_a_call_is_held_when_it_is_over(
    open_device: Open, fails: bool, way: str
) -> None:
    device = open_device(**WAYS[way])
    asked = l1(device.device)
    inputs = {name: np.frombuffer(data, np.uint8).copy() for name, data in asked.storages.items()}
    held = [weakref.ref(array) for array in inputs.values()]
    storages = {name: array.data for name, array in inputs.items()}
    del inputs
    if fails:
        device.simulator.fail("aclnnL1LossBackward", status=OVERFLOW, what="at_sync")
    error = failure(lambda: device.device.run(asked.call, storages, FreeTurn()))
    assert (error is not None) == fails
    del error
    storages.clear()
    assert [array() for array in held] == [None] * 3
