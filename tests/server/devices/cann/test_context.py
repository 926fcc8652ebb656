"""The process's one device: taken and given back in pairs, and what it says of itself."""

from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, byref, c_int64, c_uint64

import pytest
from tests.simulator.control import Simulator

from npucall.errors import ArgumentError, DeviceError
from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann.functions import ACL_OPT_DETERMINISTIC
from npucall_server.devices.cann.runtime import DeviceContext, Libraries, device_count

from .calls import l1
from .opened import Open, Opened

GIB = 2**30
PAIRS = {"aclInit": "aclFinalizeReference", "aclrtSetDevice": "aclrtResetDevice"}
UNTOLD = [
    "aclrtGetMemInfo", "aclrtQueryDeviceStatus", "aclrtGetDeviceUtilizationRate",
    "aclsysGetCANNVersion", "aclsysGetVersionStr", "aclsysGetCANNVersion", "aclrtGetVersion",
]  # fmt: skip
"""Functions that tell facts, as often as they are called for all of them."""


def opened(libraries: Libraries, number: int = 0, *, deterministic: bool = False) -> DeviceContext:
    return DeviceContext(libraries, number, deterministic=deterministic)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_is_taken_is_given_back_once_however_often(
    libraries: Libraries, simulator: Simulator, deterministic: bool
) -> None:
    """Deterministic is set for process and context."""
    for times in (1, 2):
        opened(libraries, deterministic=deterministic).close()
        assert {simulator.call_count(name) for pair in PAIRS.items() for name in pair} == {times}
        for mode in "aclrtCtxSetSysParamOpt", "aclrtSetSysParamOpt":
            assert simulator.call_count(mode) == deterministic * times


def test_process_and_context_are_deterministic(libraries: Libraries) -> None:
    runtime, found = CDLL(libraries.paths[0]), c_int64()
    with opened(libraries, deterministic=True):
        for get in runtime.aclrtGetSysParamOpt, runtime.aclrtCtxGetSysParamOpt:
            assert (get(ACL_OPT_DETERMINISTIC, byref(found)), found.value) == (0, 1)


def test_the_device_is_that_of_the_number(libraries: Libraries, simulator: Simulator) -> None:
    with opened(libraries, 1) as context:
        assert context.soc == "Ascend910B2"
        assert simulator.live_objects()["aclrtSetDevice"] == 1
    with pytest.raises(DeviceError, match="107001"):
        opened(libraries, 2)
    assert device_count(libraries) == 2


def test_who_came_second_gives_back_its_own_init_and_no_other(
    libraries: Libraries, simulator: Simulator
) -> None:
    libraries.acl.aclInit(None)
    opened(libraries).close()
    left = c_uint64(9)
    libraries.acl.aclFinalizeReference(byref(left))
    assert (left.value, simulator.call_count("aclFinalize")) == (0, 0)


def test_facts_are_what_the_functions_tell_in_any_thread(
    libraries: Libraries, simulator: Simulator
) -> None:
    simulator.set_memory(3 * GIB)
    with opened(libraries) as context, ThreadPoolExecutor(1) as thread:
        facts = context.facts()
        assert thread.submit(context.facts).result() == facts
    versions = facts.cann_version, facts.driver_version, facts.runtime_version
    assert versions == ("9.0.0", "25.5.0", "1.17.0")
    assert (facts.memory_total_bytes, facts.memory_free_bytes) == (3 * GIB, 3 * GIB)
    assert facts.healthy is True


def test_facts_that_are_not_told_are_left_out(libraries: Libraries, simulator: Simulator) -> None:
    with opened(libraries) as context:
        for function in UNTOLD:
            simulator.fail(function, status=507899)
        assert context.facts() == DeviceFacts()


def test_a_device_that_cannot_be_asked_is_not_called_healthy(
    libraries: Libraries, simulator: Simulator
) -> None:
    with opened(libraries) as context:
        simulator.fail("aclrtSetCurrentContext", status=507899)
        facts = context.facts()
    assert (facts.healthy, facts.memory_total_bytes, facts.cann_version) == (False, 0, "")


def test_an_error_of_the_block_counts_before_those_of_closing(
    libraries: Libraries, simulator: Simulator
) -> None:
    simulator.fail("aclrtResetDevice", status=507899)
    with pytest.raises(KeyError), opened(libraries):
        raise KeyError
    assert simulator.live_objects() == {}


# --- What its SoC is taken for: known, near to what is known, or refused --------------------------


def test_a_known_name_is_no_guess(device: Opened) -> None:
    assert (device.device.facts().product_guess, device.notes) == ("", [])


@pytest.mark.parametrize(
    ("soc", "product"),
    [("Ascend910B5", "Ascend910B"), ("Ascend910_9361", "Ascend910_93"),
     ("Ascend910_5591", "Ascend950"), ("Ascend310P2", "Ascend310P")],
)  # fmt: skip
def test_a_name_that_is_near_to_a_product_s_is_served_and_said_to_be_a_guess(
    simulator: Simulator, open_device: Open, soc: str, product: str
) -> None:
    simulator.set_soc(soc)
    device = open_device()
    assert (device.device.soc, device.product.soc) == (soc, product)
    assert device.serves(l1(device))
    (note,) = device.notes
    assert note == device.device.facts().product_guess
    assert f"does not know {soc}, and guesses from its family that it is like {product}" in note


def test_a_name_that_is_near_to_none_is_refused(simulator: Simulator, open_device: Open) -> None:
    simulator.set_soc("Ascend777X")
    with pytest.raises(ArgumentError, match="found 'Ascend777X'"):
        open_device()
    assert simulator.live_objects() == {}
