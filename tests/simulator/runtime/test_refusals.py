"""Calls that are refused for their arguments alone."""

import ctypes
from ctypes import byref, c_int64, c_void_p
from typing import Any

import pytest

from .helpers import in_thread
from .raw import EVENT_SYNC, EVENT_TIME_LINE, TO_DEVICE, Cann

NULLS: list[tuple[str, tuple[Any, ...]]] = [
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
VALUES: list[tuple[str, tuple[Any, ...], int]] = [
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
DESCRIPTORS: list[tuple[str, tuple[Any, ...], int]] = [
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


def test_what_is_null_or_cannot_be_is_refused(cann: Cann) -> None:
    found = [(f, cann.libraries[0][f](*arguments)) for f, arguments in NULLS]
    assert [(function, status) for function, status in found if status != 100000] == []
    found = [(f, arguments, cann.libraries[0][f](*arguments)) for f, arguments, _ in VALUES]
    assert found == VALUES
    found = [(f, arguments, cann.libraries[1][f](*arguments)) for f, arguments, _ in DESCRIPTORS]
    assert found == DESCRIPTORS
    tensor = c_void_p(cann.tensor(None, [1]))
    arguments = (tensor, None, 2, 0, None, c_int64(0), 2, None, 0, None)
    assert cann.libraries[1]["aclInitTensor"](*arguments) == 161001


def test_a_fault_that_is_unknown_is_refused(cann: Cann) -> None:
    with pytest.raises(ValueError, match="no such fault: 'explode' at call 1 of 'aclrtFree'"):
        cann.fail("aclrtFree", status=1, what="explode")


def test_a_thread_without_device_has_neither_device_nor_context(bare: Cann) -> None:
    assert bare.aclrtGetDevice(byref(ctypes.c_int())) == 107002
    assert bare.aclrtGetCurrentContext(byref(c_void_p())) == 107002


def test_streams_and_events_take_no_work_that_they_cannot_have(cann: Cann) -> None:
    assert cann.libraries[0]["aclrtResetEvent"](c_void_p(cann.event()), None) == 207000
    stamp = byref(ctypes.c_uint64())
    for flags in EVENT_SYNC, EVENT_TIME_LINE:
        event = c_void_p(cann.event(flags))
        assert cann.libraries[0]["aclrtEventGetTimestamp"](event, stamp) == 107006
    stream, event, address = cann.stream(), cann.event(), cann.device(4)
    cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtStreamAbort(stream))
    assert cann.aclrtSynchronizeEvent(event) == 107023
    assert cann.aclrtMemsetAsync(address, 4, 0, 4, stream) == 107023
    stream = cann.stream()
    assert in_thread(lambda: cann.aclrtDestroyStream(stream)) == 107002
