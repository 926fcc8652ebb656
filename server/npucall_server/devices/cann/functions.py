"""The functions of libascendcl (libacl_rt) and libnnopbase, a line each, with their constants.

Names and parameters are C's own. Sizes count bytes unless a line says otherwise.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

from npucall_server.devices.cann.library import (
    Functions,
    HandleFunction,
    NewStatusFunction,
    StatusFunction,
    ValueFunction,
)

ACL_ERROR_REPEAT_INITIALIZE = 100002
ACL_ERROR_INTERNAL_ERROR = 500000
ACL_RT_THREAD_LEVEL = 0
ACL_HOST = 1
"""aclrtRunMode: this program runs on the host."""
ACL_RT_DEVICE_STATUS_NORMAL = 0
ACL_OPT_DETERMINISTIC = 0
ACL_RT_OVERFLOW_MODE_INFNAN = 1
ACL_STREAM_FAST_LAUNCH = 0x1
ACL_STREAM_FAST_SYNC = 0x2
ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x2
ACL_EVENT_TIME_LINE = 0x8
ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_MEMCPY_DEVICE_TO_DEVICE = 3
ACL_HBM_MEM = 1
ACL_PKG_NAME_CANN = 0
ACL_PKG_NAME_DRIVER = 7


class CannPackageVersion(Structure):
    """``aclCANNPackageVersion``: 512 bytes."""

    _fields_ = (
        ("version", c_char * 128),
        ("majorVersion", c_char * 64),
        ("minorVersion", c_char * 64),
        ("releaseVersion", c_char * 64),
        ("patchVersion", c_char * 64),
        ("reserved", c_char * 128),
    )


class UtilizationInfo(Structure):
    """``aclrtUtilizationInfo``: percentages; ``utilizationExtend`` must be null."""

    _fields_ = (
        ("cubeUtilization", c_int32),
        ("vectorUtilization", c_int32),
        ("aicpuUtilization", c_int32),
        ("memoryUtilization", c_int32),
        ("utilizationExtend", c_void_p),
    )


class AscendCL(Functions):
    """Runtime: libascendcl.so, in newer versions libacl_rt.so."""

    aclInit = StatusFunction(c_char_p)
    aclFinalize = StatusFunction()
    aclFinalizeReference = NewStatusFunction(POINTER(c_uint64))
    aclrtGetVersion = StatusFunction(POINTER(c_int32), POINTER(c_int32), POINTER(c_int32))
    aclsysGetCANNVersion = StatusFunction(c_int, POINTER(CannPackageVersion))
    aclsysGetVersionStr = NewStatusFunction(c_char_p, c_char_p)
    aclGetRecentErrMsg = ValueFunction(result=c_char_p)
    aclrtGetLastError = ValueFunction(c_int, result=c_int)

    aclrtGetDeviceCount = StatusFunction(POINTER(c_uint32))
    aclrtSetDevice = StatusFunction(c_int32)
    aclrtResetDevice = StatusFunction(c_int32)
    aclrtGetSocName = ValueFunction(result=c_char_p)
    aclrtGetRunMode = StatusFunction(POINTER(c_int))
    aclrtQueryDeviceStatus = StatusFunction(c_int32, POINTER(c_int))
    aclrtGetDeviceUtilizationRate = StatusFunction(c_int32, POINTER(UtilizationInfo))
    aclrtGetCurrentContext = StatusFunction(POINTER(c_void_p))
    aclrtSetCurrentContext = StatusFunction(c_void_p)
    aclrtSetDeviceSatMode = StatusFunction(c_int)
    aclrtSetSysParamOpt = StatusFunction(c_int, c_int64)
    aclrtCtxSetSysParamOpt = StatusFunction(c_int, c_int64)

    # Stream, priority, flags. Milliseconds; -1: for ever; the meaning of 0 depends on the version.
    aclrtCreateStreamWithConfig = StatusFunction(POINTER(c_void_p), c_uint32, c_uint32)
    aclrtDestroyStream = StatusFunction(c_void_p)
    aclrtSynchronizeStreamWithTimeout = StatusFunction(c_void_p, c_int32)

    aclrtCreateEventExWithFlag = StatusFunction(POINTER(c_void_p), c_uint32)
    aclrtDestroyEvent = StatusFunction(c_void_p)
    aclrtRecordEvent = StatusFunction(c_void_p, c_void_p)
    aclrtSynchronizeEvent = StatusFunction(c_void_p)
    aclrtSynchronizeEventWithTimeout = StatusFunction(c_void_p, c_int32)  # as for a stream
    aclrtEventElapsedTime = StatusFunction(POINTER(c_float), c_void_p, c_void_p)  # milliseconds

    aclrtMalloc = StatusFunction(POINTER(c_void_p), c_size_t, c_int)
    aclrtFree = StatusFunction(c_void_p)
    aclrtMallocHost = StatusFunction(POINTER(c_void_p), c_size_t)
    aclrtFreeHost = StatusFunction(c_void_p)
    # Destination, its size, source, count, kind; waits for no stream.
    aclrtMemcpy = StatusFunction(c_void_p, c_size_t, c_void_p, c_size_t, c_int)
    # Destination, its size, source, count, kind, stream.
    aclrtMemcpyAsync = StatusFunction(c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_void_p)
    # Address, its size, value of a byte, count, stream.
    aclrtMemsetAsync = StatusFunction(c_void_p, c_size_t, c_int32, c_size_t, c_void_p)
    aclrtGetMemInfo = StatusFunction(c_int, POINTER(c_size_t), POINTER(c_size_t))  # free, total


class NnOpBase(Functions):
    """Descriptors: libnnopbase.so."""

    # View shape and its rank, dtype, strides and offset in elements, format, storage shape and its
    # rank, device address of the storage's start.
    aclCreateTensor = HandleFunction(
        POINTER(c_int64), c_uint64, c_int, POINTER(c_int64), c_int64, c_int, POINTER(c_int64),
        c_uint64, c_void_p,
    )  # fmt: skip
    aclCreateScalar = HandleFunction(c_void_p, c_int)
    aclCreateIntArray = HandleFunction(POINTER(c_int64), c_uint64)
    aclCreateFloatArray = HandleFunction(POINTER(c_float), c_uint64)
    aclCreateBoolArray = HandleFunction(POINTER(c_bool), c_uint64)
    # These take over their elements.
    aclCreateTensorList = HandleFunction(POINTER(c_void_p), c_uint64)
    aclCreateScalarList = HandleFunction(POINTER(c_void_p), c_uint64)

    aclSetRawTensorAddr = StatusFunction(c_void_p, c_void_p)  # not between the phases
    aclDestroyTensor = StatusFunction(c_void_p)
    aclDestroyScalar = StatusFunction(c_void_p)
    aclDestroyIntArray = StatusFunction(c_void_p)
    aclDestroyFloatArray = StatusFunction(c_void_p)
    aclDestroyBoolArray = StatusFunction(c_void_p)
    aclDestroyTensorList = StatusFunction(c_void_p)
    aclDestroyScalarList = StatusFunction(c_void_p)
    aclDestroyAclOpExecutor = StatusFunction(c_void_p)
