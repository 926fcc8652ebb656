"""What the statuses of CANN mean: one table, by which every failure becomes an error of npucall."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from npucall.errors import (
    PARAM_NULLPTR,
    ArgumentError,
    ArgumentMissingError,
    DeviceError,
    NpucallError,
    OperatorUnavailableError,
    OutOfMemoryError,
)


class BrokenDeviceError(DeviceError):
    """The device will not work again in this process; a new process may find it well."""


class Fate(Enum):
    """What a status means for the call, and for the process."""

    ARGUMENT = auto()
    """The caller's argument is at fault."""
    UNAVAILABLE = auto()
    """This host cannot run the operator: a kernel, a package or a feature is missing."""
    MEMORY = auto()
    """No memory now."""
    CALL = auto()
    """The call failed; the device goes on."""
    BROKEN = auto()
    """It sticks to the context or the device, or work still runs: only a new process helps."""


class Status(NamedTuple):
    """One row of the table."""

    symbol: str
    fate: Fate


_SYMBOLS = {
    Fate.ARGUMENT: """
        161001 ACLNN_ERR_PARAM_NULLPTR
        161002 ACLNN_ERR_PARAM_INVALID
    """,
    Fate.UNAVAILABLE: """
        100024 ACL_ERROR_OP_NOT_FOUND
        100025 ACL_ERROR_OP_LOAD_FAILED
        100026 ACL_ERROR_UNSUPPORTED_DATA_TYPE
        100029 ACL_ERROR_KERNEL_NOT_FOUND
        100039 ACL_ERROR_COMPILING_STUB_MODE
        148049 ACL_ERROR_INVALID_OPP_PATH
        200001 ACL_ERROR_API_NOT_SUPPORT
        200006 ACL_ERROR_FEATURE_UNSUPPORTED
        207000 ACL_ERROR_RT_FEATURE_NOT_SUPPORT
        561003 ACLNN_ERR_INNER_FIND_KERNEL_ERROR
        561107 ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND
        561112 ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND
    """,
    Fate.MEMORY: """
        200000 ACL_ERROR_BAD_ALLOC
        207001 ACL_ERROR_RT_MEMORY_ALLOCATION
        207018 ACL_ERROR_RT_DEVICE_OOM
    """,
    Fate.CALL: """
        100000 ACL_ERROR_INVALID_PARAM
        100001 ACL_ERROR_UNINITIALIZE
        100002 ACL_ERROR_REPEAT_INITIALIZE
        100003 ACL_ERROR_INVALID_FILE
        100004 ACL_ERROR_WRITE_FILE
        100005 ACL_ERROR_INVALID_FILE_SIZE
        100006 ACL_ERROR_PARSE_FILE
        100007 ACL_ERROR_FILE_MISSING_ATTR
        100008 ACL_ERROR_FILE_ATTR_INVALID
        100009 ACL_ERROR_INVALID_DUMP_CONFIG
        100010 ACL_ERROR_INVALID_PROFILING_CONFIG
        100020 ACL_ERROR_OP_TYPE_NOT_MATCH
        100021 ACL_ERROR_OP_INPUT_NOT_MATCH
        100022 ACL_ERROR_OP_OUTPUT_NOT_MATCH
        100023 ACL_ERROR_OP_ATTR_NOT_MATCH
        100027 ACL_ERROR_FORMAT_NOT_MATCH
        100037 ACL_ERROR_REPEAT_FINALIZE
        107000 ACL_ERROR_RT_PARAM_INVALID
        107001 ACL_ERROR_RT_INVALID_DEVICEID
        107002 ACL_ERROR_RT_CONTEXT_NULL
        107003 ACL_ERROR_RT_STREAM_CONTEXT
        107004 ACL_ERROR_RT_MODEL_CONTEXT
        107005 ACL_ERROR_RT_STREAM_MODEL
        107006 ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID
        107007 ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL
        107008 ACL_ERROR_RT_ADDR_UNALIGNED
        107009 ACL_ERROR_RT_FILE_OPEN
        107010 ACL_ERROR_RT_FILE_WRITE
        107011 ACL_ERROR_RT_STREAM_SUBSCRIBE
        107012 ACL_ERROR_RT_THREAD_SUBSCRIBE
        107013 ACL_ERROR_RT_GROUP_NOT_SET
        107014 ACL_ERROR_RT_GROUP_NOT_CREATE
        107015 ACL_ERROR_RT_STREAM_NO_CB_REG
        107016 ACL_ERROR_RT_INVALID_MEMORY_TYPE
        107017 ACL_ERROR_RT_INVALID_HANDLE
        107018 ACL_ERROR_RT_INVALID_MALLOC_TYPE
        107019 ACL_ERROR_RT_WAIT_TIMEOUT
        107020 ACL_ERROR_RT_TASK_TIMEOUT
        107021 ACL_ERROR_RT_SYSPARAMOPT_NOT_SET
        107023 ACL_ERROR_RT_STREAM_ABORT
        200002 ACL_ERROR_INVALID_DEVICE
        200003 ACL_ERROR_MEMORY_ADDRESS_UNALIGNED
        200004 ACL_ERROR_RESOURCE_NOT_MATCH
        200005 ACL_ERROR_INVALID_RESOURCE_HANDLE
        207002 ACL_ERROR_RT_MEMORY_FREE
        207003 ACL_ERROR_RT_AICORE_OVER_FLOW
        207004 ACL_ERROR_RT_NO_DEVICE
        207005 ACL_ERROR_RT_RESOURCE_ALLOC_FAIL
        207006 ACL_ERROR_RT_NO_PERMISSION
        207007 ACL_ERROR_RT_NO_EVENT_RESOURCE
        207008 ACL_ERROR_RT_NO_STREAM_RESOURCE
        207009 ACL_ERROR_RT_NO_NOTIFY_RESOURCE
        207010 ACL_ERROR_RT_NO_MODEL_RESOURCE
        207011 ACL_ERROR_RT_NO_CDQ_RESOURCE
        207012 ACL_ERROR_RT_OVER_LIMIT
        207013 ACL_ERROR_RT_QUEUE_EMPTY
        207014 ACL_ERROR_RT_QUEUE_FULL
        207015 ACL_ERROR_RT_REPEATED_INIT
        207016 ACL_ERROR_RT_AIVEC_OVER_FLOW
        207017 ACL_ERROR_RT_OVER_FLOW
        300000 ACL_ERROR_STORAGE_OVER_LIMIT
        361001 ACLNN_ERR_RUNTIME_ERROR
        500000 ACL_ERROR_INTERNAL_ERROR
        500001 ACL_ERROR_FAILURE
        500002 ACL_ERROR_GE_FAILURE
        500003 ACL_ERROR_RT_FAILURE
        500004 ACL_ERROR_DRV_FAILURE
        500005 ACL_ERROR_PROFILING_FAILURE
        507005 ACL_ERROR_RT_END_OF_SEQUENCE
        507006 ACL_ERROR_RT_EVENT_NOT_COMPLETE
        507023 ACL_ERROR_RT_MODEL_ABORT_NORMAL
        507899 ACL_ERROR_RT_DRV_INTERNAL_ERROR
        507900 ACL_ERROR_RT_AICPU_INTERNAL_ERROR
        507902 ACL_ERROR_RT_AICPU_INFO_LOAD_RSP_ERR
        507903 ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED
        561000 ACLNN_ERR_INNER
        561001 ACLNN_ERR_INNER_INFERSHAPE_ERROR
        561002 ACLNN_ERR_INNER_TILING_ERROR
        561101 ACLNN_ERR_INNER_CREATE_EXECUTOR
        561102 ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR
        561103 ACLNN_ERR_INNER_NULLPTR
        561104 ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE
        561105 ACLNN_ERR_INNER_KEY_CONFLICT
        561106 ACLNN_ERR_INNER_INVALID_IMPL_MODE
        561108 ACLNN_ERR_INNER_LOAD_JSON_FAILED
        561109 ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND
        561110 ACLNN_ERR_INNER_JSON_FORMAT_INVALID
        561111 ACLNN_ERR_INNER_JSON_DTYPE_INVALID
        561113 ACLNN_ERR_INNER_OP_FILE_INVALID
        561114 ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND
        561115 ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH
        561116 ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE
        561117 ACLNN_ERR_INNER_INPUT_JSON_IS_NULL
        561118 ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID
        561119 ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID
    """,
    Fate.BROKEN: """
        107022 ACL_ERROR_RT_DEVICE_TASK_ABORT
        507000 ACL_ERROR_RT_INTERNAL_ERROR
        507001 ACL_ERROR_RT_TS_ERROR
        507002 ACL_ERROR_RT_STREAM_TASK_FULL
        507003 ACL_ERROR_RT_STREAM_TASK_EMPTY
        507004 ACL_ERROR_RT_STREAM_NOT_COMPLETE
        507007 ACL_ERROR_RT_CONTEXT_RELEASE_ERROR
        507008 ACL_ERROR_RT_SOC_VERSION
        507009 ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT
        507010 ACL_ERROR_RT_LOST_HEARTBEAT
        507011 ACL_ERROR_RT_MODEL_EXECUTE
        507012 ACL_ERROR_RT_REPORT_TIMEOUT
        507013 ACL_ERROR_RT_SYS_DMA
        507014 ACL_ERROR_RT_AICORE_TIMEOUT
        507015 ACL_ERROR_RT_AICORE_EXCEPTION
        507016 ACL_ERROR_RT_AICORE_TRAP_EXCEPTION
        507017 ACL_ERROR_RT_AICPU_TIMEOUT
        507018 ACL_ERROR_RT_AICPU_EXCEPTION
        507033 ACL_ERROR_RT_DEV_SETUP_ERROR
        507034 ACL_ERROR_RT_VECTOR_CORE_TIMEOUT
        507035 ACL_ERROR_RT_VECTOR_CORE_EXCEPTION
        507036 ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION
        507046 ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
        507047 ACL_ERROR_RT_EVENT_SYNC_TIMEOUT
        507048 ACL_ERROR_RT_FFTS_PLUS_TIMEOUT
        507049 ACL_ERROR_RT_FFTS_PLUS_EXCEPTION
        507050 ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION
        507051 ACL_ERROR_RT_SEND_MSG
        507052 ACL_ERROR_RT_COPY_DATA
        507053 ACL_ERROR_RT_DEVICE_MEM_ERROR
        507054 ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR
        507055 ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR
        507056 ACL_ERROR_RT_LINK_ERROR
        507057 ACL_ERROR_RT_SUSPECT_REMOTE_ERROR
        507901 ACL_ERROR_RT_SOCKET_CLOSE
    """,
}


def _rows() -> dict[int, Status]:
    rows = {}
    for fate, lines in _SYMBOLS.items():
        for line in lines.strip().splitlines():
            code, symbol = line.split()
            rows[int(code)] = Status(symbol, fate)
    return rows


STATUSES = _rows()
"""Every status that has a name here. 507046 and 507047 are among the broken: a stream that did not
finish in time still uses its buffers, and no way is known to get it back."""

HIDING = range(561000, 562000)
"""Statuses of aclnn functions behind which the runtime may know a better one; so has 361001."""
RUNTIME_ERROR = 361001

_BROKEN_BY_DEFAULT = range(507000, 507100)


def status_of(code: int) -> Status:
    """The row of a status; one that CANN added later is sorted by the class of its number."""
    known = STATUSES.get(code)
    if known is not None:
        return known
    return Status(
        "status unknown to npucall", Fate.BROKEN if code in _BROKEN_BY_DEFAULT else Fate.CALL
    )


def error_of(function: str, code: int, driver_message: str, hidden: int = 0) -> NpucallError:
    """The error for a C function that answered a status other than 0.

    ``hidden``: the runtime's own status behind an aclnn function's, or 0; it decides then.
    """
    symbol, fate = status_of(code)
    found = f"{code} ({symbol})"
    if hidden:
        inner = status_of(hidden)
        found, fate = f"{found}, the runtime's {hidden} ({inner.symbol}) behind it", inner.fate
    kind = ArgumentMissingError if code == PARAM_NULLPTR else _KINDS[fate]
    first_line = driver_message.strip().partition("\n")[0]
    said = f": {first_line}" if first_line else ""
    return kind(
        f"{function}: expected status 0, found {found}{said}",
        aclnn_status=code if function.startswith("aclnn") else None,
        phase="run",
        function=function,
        device_status=str(hidden or code),
        driver_message=driver_message,
    )


_KINDS: dict[Fate, type[NpucallError]] = {
    Fate.ARGUMENT: ArgumentError,
    Fate.UNAVAILABLE: OperatorUnavailableError,
    Fate.MEMORY: OutOfMemoryError,
    Fate.CALL: DeviceError,
    Fate.BROKEN: BrokenDeviceError,
}
