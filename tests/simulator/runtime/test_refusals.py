"""Calls that are refused for their arguments alone."""

from __future__ import annotations

import ctypes
import mmap
from ctypes import byref, c_int64, c_void_p
from typing import TYPE_CHECKING

import pytest

from .helpers import in_thread
from .raw import EVENT_SYNC, EVENT_TIME_LINE, TO_DEVICE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulator.control import Simulator

    from .raw import Cann

NULLS = [
    ("aclrtGetVersion", (None, None, None)),
    ("aclsysGetCANNVersion", (0, None)),
    ("aclsysGetVersionStr", (None, None)),
    ("aclsysGetVersionNum", (None, None)),
    ("aclrtGetDeviceCount", (None,)),
    ("aclrtGetDevice", (None,)),
    ("aclrtGetRunMode", (None,)),
    ("aclrtQueryDeviceStatus", (0, None)),
    ("aclrtGetDeviceUtilizationRate", (0, None)),
    ("aclrtCreateContext", (None, 0)),
    ("aclrtDestroyContext", (None,)),
    ("aclrtSetCurrentContext", (None,)),
    ("aclrtGetCurrentContext", (None,)),
    ("aclrtGetSysParamOpt", (0, None)),
    ("aclrtCtxGetSysParamOpt", (0, None)),
    ("aclrtCreateStream", (None,)),
    ("aclrtCreateStreamWithConfig", (None, 0, 3)),
    ("aclrtDestroyStream", (None,)),
    ("aclrtDestroyStreamForce", (None,)),
    ("aclrtStreamQuery", (None, None)),
    ("aclrtStreamAbort", (None,)),
    ("aclrtStreamGetId", (None, None)),
    ("aclrtLaunchHostFunc", (None, None, None)),
    ("aclrtCreateEvent", (None,)),
    ("aclrtCreateEventWithFlag", (None, 1)),
    ("aclrtCreateEventExWithFlag", (None, 1)),
    ("aclrtDestroyEvent", (None,)),
    ("aclrtRecordEvent", (None, None)),
    ("aclrtResetEvent", (None, None)),
    ("aclrtSynchronizeEvent", (None,)),
    ("aclrtQueryEvent", (None, None)),
    ("aclrtQueryEventStatus", (None, None)),
    ("aclrtQueryEventWaitStatus", (None, None)),
    ("aclrtEventElapsedTime", (None, None, None)),
    ("aclrtEventGetTimestamp", (None, None)),
    ("aclrtStreamWaitEvent", (None, None)),
    ("aclrtMalloc", (None, 4, 0)),
    ("aclrtMallocAlign32", (None, 4, 0)),
    ("aclrtFree", (None,)),
    ("aclrtMallocHost", (None, 4)),
    ("aclrtFreeHost", (None,)),
    ("aclrtHostRegister", (None, 4096, 0, None)),
    ("aclrtHostUnregister", (None,)),
    ("aclrtGetMemInfo", (1, None, None)),
    ("aclrtMemcpy", (None, 4, None, 4, TO_DEVICE)),
    ("aclrtMemcpyAsync", (None, 4, None, 4, TO_DEVICE, None)),
    ("aclrtMemset", (None, 4, 0, 4)),
    ("aclrtMemsetAsync", (None, 4, 0, 4, None)),
]
VALUES = [
    ("aclsysGetCANNVersion", (8, byref((ctypes.c_char * 512)())), 100000),
    ("aclrtSetDevice", (2,), 107001),
    ("aclrtResetDevice", (2,), 107001),
    ("aclrtResetDeviceForce", (2,), 107001),
    ("aclrtResetDeviceForce", (1,), 107001),
    ("aclrtQueryDeviceStatus", (2, byref(ctypes.c_int())), 107001),
    ("aclrtGetDeviceUtilizationRate", (2, byref((ctypes.c_int64 * 3)())), 107001),
    ("aclrtGetDeviceUtilizationRate", (0, byref((ctypes.c_int64 * 3)(0, 0, 1))), 100000),
    ("aclrtCreateContext", (byref(c_void_p()), 2), 107001),
    ("aclrtDeviceTaskAbort", (2, 0), 107001),
    ("aclrtSetDeviceSatMode", (2,), 107000),
    ("aclrtSetSysParamOpt", (9, 0), 100000),
    ("aclrtCtxSetSysParamOpt", (9, 0), 100000),
    ("aclrtGetSysParamOpt", (1, byref(ctypes.c_int64())), 107021),
    ("aclrtCtxGetSysParamOpt", (1, byref(ctypes.c_int64())), 107021),
    ("aclrtSynchronizeDeviceWithTimeout", (0,), 107000),
    ("aclrtSynchronizeEventWithTimeout", (None, 0), 107000),
    ("aclrtCreateStreamWithConfig", (byref(c_void_p()), 8, 0), 107000),
    ("aclrtSetStreamFailureMode", (None, 2), 107000),
    ("aclrtCreateEventExWithFlag", (byref(c_void_p()), 0), 107000),
    ("aclrtCreateEventExWithFlag", (byref(c_void_p()), 0x1000), 107000),
    ("aclrtGetMemInfo", (18, byref(ctypes.c_size_t()), byref(ctypes.c_size_t())), 107000),
    ("aclrtMemcpyAsync", (c_void_p(1), 3, c_void_p(2), 4, TO_DEVICE, None), 107000),
    ("aclrtMemset", (c_void_p(1), 3, 0, 4), 107000),
    ("aclrtHostRegister", (c_void_p(64), 64, 0, byref(c_void_p())), 107000),
    ("aclrtPeekAtLastError", (1,), 100000),
    ("aclrtGetLastError", (1,), 100000),
]
DESCRIPTORS = [
    ("aclGetViewShape", (None, None, None), 161001),
    ("aclGetStorageShape", (None, None, None), 161001),
    ("aclGetViewStrides", (None, None, None), 161001),
    ("aclGetViewOffset", (None, None), 161001),
    ("aclGetFormat", (None, None), 161001),
    ("aclGetIntArraySize", (None, None), 161001),
    ("aclGetTensorListSize", (None, None), 161001),
    ("aclGetScalarListSize", (None, None), 161001),
    ("aclSetRawTensorAddr", (None, None), 161001),
    ("aclInitTensor", (None, None, 0, 0, None, 0, 2, None, 0, None), 161001),
    ("aclSetInputTensorAddr", (None, 0, None, None), 561103),
    ("aclSetDynamicInputTensorAddr", (None, 0, 0, None, None), 561103),
]


@pytest.mark.parametrize(("function", "arguments"), NULLS)
def test_null_answers_100000(cann: Cann, function: str, arguments: tuple[object, ...]) -> None:
    assert cann.libraries[0][function](*arguments) == 100000


@pytest.mark.parametrize(("function", "arguments", "status"), VALUES)
def test_a_value_that_cannot_be_is_refused(
    cann: Cann, function: str, arguments: tuple[object, ...], status: int
) -> None:
    assert cann.libraries[0][function](*arguments) == status


@pytest.mark.parametrize(("function", "arguments", "status"), DESCRIPTORS)
def test_a_descriptor_that_is_not_there_is_refused(
    cann: Cann, function: str, arguments: tuple[object, ...], status: int
) -> None:
    assert cann.libraries[1][function](*arguments) == status


def test_a_thread_without_device_has_neither_device_nor_context(bare: Cann) -> None:
    assert bare.aclrtGetDevice(byref(ctypes.c_int())) == 107002
    assert bare.aclrtGetCurrentContext(byref(c_void_p())) == 107002


def test_an_event_of_another_context_answers_107003(cann: Cann) -> None:
    event = cann.event(EVENT_SYNC)
    cann.made("aclrtCreateContext", 0)
    assert cann.aclrtRecordEvent(event, None) == 107003


def test_an_extended_event_cannot_be_reset(cann: Cann) -> None:
    assert cann.libraries[0]["aclrtResetEvent"](c_void_p(cann.event()), None) == 207000


def test_an_event_of_an_aborted_stream_answers_107023(cann: Cann) -> None:
    stream, event = cann.stream(), cann.event()
    cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtStreamAbort(stream))
    assert cann.aclrtSynchronizeEvent(event) == 107023


def test_no_work_is_taken_by_an_aborted_stream(cann: Cann) -> None:
    stream, address = cann.stream(), cann.device(4)
    cann.ok(cann.aclrtStreamAbort(stream))
    assert cann.aclrtMemsetAsync(address, 4, 0, 4, stream) == 107023


def test_the_default_kind_of_a_copy_within_the_host_is_refused_asynchronously(
    cann: Cann,
) -> None:
    first, second = cann.pinned(b"abcd"), cann.pinned(b"efgh")
    assert cann.aclrtMemcpyAsync(first, 4, second, 4, 4, None) == 207000


def test_a_kind_that_the_addresses_contradict_answers_107000(cann: Cann) -> None:
    assert cann.aclrtMemcpy(cann.device(4), 4, b"abcd", 4, 2) == 107000


def test_a_timestamp_needs_an_event_with_time_line_that_is_over(cann: Cann) -> None:
    stamp = byref(ctypes.c_uint64())
    answers = [
        cann.libraries[0]["aclrtEventGetTimestamp"](c_void_p(cann.event(flags)), stamp)
        for flags in (EVENT_SYNC, EVENT_TIME_LINE)
    ]
    assert answers == [107006, 107006]


def test_memory_is_registered_once(cann: Cann) -> None:
    with mmap.mmap(-1, 4096) as pages:
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        cann.ok(cann.aclrtHostRegister(address, 4096, 0, byref(c_void_p())))
        assert cann.aclrtHostRegister(address, 4096, 0, byref(c_void_p())) == 107000
        cann.ok(cann.aclrtHostUnregister(address))


def test_a_stream_is_destroyed_by_a_thread_with_its_context(cann: Cann) -> None:
    stream = cann.stream()
    assert in_thread(lambda: cann.aclrtDestroyStream(stream)) == 107002


def test_a_descriptor_cannot_get_a_rank_without_extents(cann: Cann) -> None:
    initialise = cann.libraries[1]["aclInitTensor"]
    tensor = c_void_p(cann.tensor(None, [1]))
    arguments = (tensor, None, 2, 0, None, c_int64(0), 2, None, 0, None)
    assert initialise(*arguments) == 161001


def test_no_device_answers_500000_at_init(
    bare: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_DEVICES", "0")
    simulator.reset()
    assert bare.aclInit(None) == 500000


def test_a_second_init_with_another_configuration_answers_100000(
    bare: Cann, tmp_path: Path
) -> None:
    path = tmp_path / "acl.json"
    path.write_text("{}")
    assert [bare.aclInit(None), bare.aclInit(str(path).encode())] == [0, 100000]
