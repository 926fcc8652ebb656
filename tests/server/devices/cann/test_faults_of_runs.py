"""Every C function that a call uses fails: in every situation, in every way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.more import only

from npucall.errors import DeviceLostError
from npucall_server.devices.cann.functions import AscendCL, NnOpBase
from npucall_server.devices.cann.status_table import Fate

from .faults import Fault, status_for
from .opened import Opened
from .situations import SITUATIONS
from .sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    Open = Callable[..., Opened]

SYNCHRONISE = "aclrtSynchronizeStreamWithTimeout"
NOT_NEEDED_AGAIN = (SYNCHRONISE, "aclDestroy", "aclrtFree")
"""A stream that cannot be waited for breaks the device; what is destroyed once is gone."""
MANY = 20
"""So often a function fails in a row that a second try of the call does not help."""
NOT_OF_CALLS = {
    "aclInit", "aclFinalize", "aclFinalizeReference", "aclrtGetVersion", "aclsysGetCANNVersion",
    "aclsysGetVersionStr", "aclrtGetDeviceCount", "aclrtSetDevice", "aclrtResetDevice",
    "aclrtGetSocName", "aclrtGetRunMode", "aclrtQueryDeviceStatus",
    "aclrtGetDeviceUtilizationRate", "aclrtGetCurrentContext", "aclrtSetCurrentContext",
    "aclrtSetDeviceSatMode", "aclrtSetSysParamOpt", "aclrtCtxSetSysParamOpt",
    "aclrtCreateStreamWithConfig", "aclrtDestroyStream", "aclrtDestroyEvent",
    "aclrtGetMemInfo", "aclSetRawTensorAddr",
}  # fmt: skip
OF_FAILURES = {"aclGetRecentErrMsg", "aclDestroyAclOpExecutor"}


@pytest.fixture(params=only(*SITUATIONS))
def sweep(request: pytest.FixtureRequest, open_device: Open) -> Sweep:
    return Sweep(open_device, SITUATIONS[request.param], Opened.serves)


@pytest.mark.parametrize("fate", only(Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.CALL), ids=str)
def test_a_failure_is_named_and_the_next_call_is_right(sweep: Sweep, fate: Fate) -> None:
    assert sweep.misfits(sweep.faults(fate, 1, 2)) == []


def test_lack_of_memory_is_mended_once(sweep: Sweep) -> None:
    assert sweep.misfits(sweep.faults(Fate.MEMORY, 1, 2)) == []


def test_lack_of_memory_that_lasts_is_told(sweep: Sweep) -> None:
    faults = sweep.faults(Fate.MEMORY, 1)
    needed = [fault for fault in faults if not fault.function.startswith(NOT_NEEDED_AGAIN)]
    assert sweep.misfits(needed, times=MANY) == []


def test_a_broken_device_is_lost_once(sweep: Sweep) -> None:
    assert sweep.misfits(sweep.faults(Fate.BROKEN, 1, 2)) == []


@pytest.mark.parametrize(
    "fate", only(Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.MEMORY, Fate.CALL), ids=str
)
def test_a_stream_that_cannot_be_waited_for_breaks_the_device(sweep: Sweep, fate: Fate) -> None:
    opened, asked = sweep.ready()
    fault = Fault(SYNCHRONISE, status_for(fate, SYNCHRONISE))
    for _ in range(MANY):
        fault.set(opened.simulator)
    with pytest.raises(DeviceLostError if fate is Fate.MEMORY else fault.kind):
        opened.run(asked)
    lost, violations = opened.lost, opened.simulator.violations()
    opened.abandon()
    assert (len(lost), violations) == (1, [])


def test_the_situations_reach_every_function_that_a_call_uses(open_device: Open) -> None:
    sweeps = (Sweep(open_device, each, Opened.serves) for each in SITUATIONS.values())
    used = {function for sweep in sweeps for function in sweep.functions()}
    declared = {*AscendCL.declared(), *NnOpBase.declared()}
    assert declared - used == NOT_OF_CALLS | OF_FAILURES
