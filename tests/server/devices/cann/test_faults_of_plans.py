"""Every C function that Plan uses fails, with every kind of argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall_server.devices.cann.status_table import Fate

from .situations import SITUATIONS, l1
from .sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

WORKSPACE = 512 + 16384
"""The simulator's for small inputs: their bytes rounded up to 512, and 16 KiB."""
MANY = 20
FORGETFUL = {"kept_calls": 0}
"""Each plan is a first phase."""


def plans(opened: Opened, asked: Asked) -> bool:
    return opened.plan(asked) == WORKSPACE


@pytest.fixture(params=["a scalar", "a list of tensors", "a list of scalars", "an array of bools"])
def sweep(request: pytest.FixtureRequest, open_device: Open) -> Sweep:
    situation = SITUATIONS[request.param]._replace(settings=FORGETFUL)
    return Sweep(open_device, situation, plans)


@pytest.mark.parametrize("fate", [Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.CALL], ids=str)
def test_a_failure_is_named_and_the_next_plan_is_right(sweep: Sweep, fate: Fate) -> None:
    assert sweep.misfits(sweep.faults(fate, 1, 2)) == []


def test_lack_of_memory_is_mended_once(sweep: Sweep) -> None:
    assert sweep.misfits(sweep.faults(Fate.MEMORY, 1, 2)) == []


def test_lack_of_memory_that_lasts_is_told(sweep: Sweep) -> None:
    assert sweep.misfits(sweep.faults(Fate.MEMORY, 1), times=MANY) == []


def test_a_broken_device_is_lost_once(sweep: Sweep) -> None:
    assert sweep.misfits(sweep.faults(Fate.BROKEN, 1, 2)) == []


def test_a_plan_touches_no_memory(device: Opened) -> None:
    device.plan(l1(device.device))  # opens the thread
    asked = SITUATIONS["a scalar"].then(device.device)
    assert device.functions(lambda: device.plan(asked)) == [
        "aclCreateScalar",
        "aclCreateTensor",
        "aclDestroyAclOpExecutor",
        "aclDestroyScalar",
        "aclDestroyTensor",
        "aclnnRsubGetWorkspaceSize",
        "aclrtGetLastError",
    ]
