"""The process's one device: taken and given back in pairs, and what it says of itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_uint64
from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeviceError
from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann.runtime import DeviceContext, device_count

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from npucall_server.devices.cann.runtime import Libraries

GIB = 2**30
MODES = ["aclrtCtxSetSysParamOpt", "aclrtSetSysParamOpt"]
PAIRS = {
    "aclInit": "aclFinalizeReference",
    "aclrtSetDevice": "aclrtResetDevice",
}


def opened(libraries: Libraries, *, deterministic: bool = False) -> DeviceContext:
    return DeviceContext(libraries, 0, deterministic=deterministic)


def test_what_is_taken_is_given_back_once(libraries: Libraries, simulator: Simulator) -> None:
    opened(libraries).close()
    for take, give in PAIRS.items():
        assert (simulator.call_count(take), simulator.call_count(give)) == (1, 1)


def test_the_device_is_that_of_the_number(libraries: Libraries, simulator: Simulator) -> None:
    with DeviceContext(libraries, 1, deterministic=False) as context:
        assert context.soc == "Ascend910B2"
        assert simulator.live_objects()["aclrtSetDevice"] == 1
    with pytest.raises(DeviceError, match="107001"):
        DeviceContext(libraries, 2, deterministic=False)
    assert device_count(libraries) == 2


def test_who_came_second_gives_back_its_own_init_and_no_other(
    libraries: Libraries, simulator: Simulator
) -> None:
    libraries.acl.aclInit(None)
    opened(libraries).close()
    left = c_uint64(9)
    libraries.acl.aclFinalizeReference(byref(left))
    assert (left.value, simulator.call_count("aclFinalize")) == (0, 0)


def test_a_device_can_be_opened_again(libraries: Libraries) -> None:
    for _ in range(2):
        opened(libraries).close()


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_is_set_for_process_and_context(
    libraries: Libraries, simulator: Simulator, deterministic: bool
) -> None:
    opened(libraries, deterministic=deterministic).close()
    assert [simulator.call_count(mode) for mode in MODES] == [int(deterministic)] * 2


def test_facts_are_what_the_functions_tell(libraries: Libraries, simulator: Simulator) -> None:
    simulator.set_memory(3 * GIB)
    with opened(libraries) as context:
        facts = context.facts()
    assert (facts.cann_version, facts.driver_version, facts.runtime_version) == (
        "9.0.0",
        "25.5.0",
        "1.17.0",
    )
    assert (facts.memory_total_bytes, facts.memory_free_bytes) == (3 * GIB, 3 * GIB)
    assert facts.healthy is True


def test_facts_that_are_not_told_are_left_out(libraries: Libraries, simulator: Simulator) -> None:
    with opened(libraries) as context:
        functions = [
            "aclrtGetMemInfo",
            "aclrtQueryDeviceStatus",
            "aclrtGetDeviceUtilizationRate",
            "aclsysGetCANNVersion",
            "aclsysGetVersionStr",
            "aclsysGetCANNVersion",
            "aclrtGetVersion",
        ]
        for function in functions:
            simulator.fail(function, status=507899)
        assert context.facts() == DeviceFacts()


def test_facts_can_be_asked_in_any_thread(libraries: Libraries) -> None:
    with opened(libraries) as context, ThreadPoolExecutor(1) as thread:
        assert thread.submit(context.facts).result() == context.facts()


def test_an_error_of_the_block_counts_before_those_of_closing(
    libraries: Libraries, simulator: Simulator
) -> None:
    def fail() -> None:
        simulator.fail("aclrtResetDevice", status=507899)
        raise KeyError

    with pytest.raises(KeyError), opened(libraries):
        fail()
    assert simulator.live_objects() == {}


def test_a_device_that_cannot_be_asked_is_not_called_healthy(
    libraries: Libraries, simulator: Simulator
) -> None:
    with DeviceContext(libraries, 0, deterministic=False) as context:
        simulator.fail("aclrtSetCurrentContext", status=507899)
        facts = context.facts()
    assert (facts.healthy, facts.memory_total_bytes, facts.cann_version) == (False, 0, "")
