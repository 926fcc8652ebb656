"""The parameters of CANN's functions, as far as the tests call them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int64, c_uint64, c_void_p
from typing import Any

from tests.simulator.caller import NUMBERS
from tests.simulator.prototypes import read_prototypes

_TENSOR = (
    POINTER(c_int64), c_uint64, c_int, POINTER(c_int64), c_int64, c_int, POINTER(c_int64), c_uint64,
    c_void_p,
)  # fmt: skip
_COPY = (c_void_p, ctypes.c_size_t, c_void_p, ctypes.c_size_t, c_int)
_FILL = (c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_size_t)
PLAN = (POINTER(c_uint64), POINTER(c_void_p))
RUN = (c_void_p, c_uint64, c_void_p, c_void_p)
_POINTER = POINTER(c_void_p)
_NUMBER = POINTER(c_int)
RUNTIME: dict[str, tuple[Any, ...]] = {
    "aclInit": (c_char_p,),
    "aclFinalizeReference": (POINTER(c_uint64),),
    "aclrtGetVersion": (_NUMBER, _NUMBER, _NUMBER),
    "aclrtSetDevice": (c_int,),
    "aclrtResetDevice": (c_int,),
    "aclrtGetDevice": (_NUMBER,),
    "aclrtCreateContext": (_POINTER, c_int),
    "aclrtDestroyContext": (c_void_p,),
    "aclrtSetCurrentContext": (c_void_p,),
    "aclrtGetCurrentContext": (_POINTER,),
    "aclrtSetSysParamOpt": (c_int, c_int64),
    "aclrtCreateStream": (_POINTER,),
    "aclrtDestroyStream": (c_void_p,),
    "aclrtDestroyStreamForce": (c_void_p,),
    "aclrtSynchronizeStream": (c_void_p,),
    "aclrtSynchronizeStreamWithTimeout": (c_void_p, c_int),
    "aclrtStreamQuery": (c_void_p, _NUMBER),
    "aclrtStreamAbort": (c_void_p,),
    "aclrtSetStreamFailureMode": (c_void_p, c_uint64),
    "aclrtLaunchHostFunc": (c_void_p, c_void_p, c_void_p),
    "aclrtCreateEvent": (_POINTER,),
    "aclrtCreateEventWithFlag": (_POINTER, ctypes.c_uint32),
    "aclrtCreateEventExWithFlag": (_POINTER, ctypes.c_uint32),
    "aclrtDestroyEvent": (c_void_p,),
    "aclrtRecordEvent": (c_void_p, c_void_p),
    "aclrtSynchronizeEvent": (c_void_p,),
    "aclrtSynchronizeEventWithTimeout": (c_void_p, c_int),
    "aclrtQueryEvent": (c_void_p, _NUMBER),
    "aclrtQueryEventStatus": (c_void_p, _NUMBER),
    "aclrtStreamWaitEvent": (c_void_p, c_void_p),
    "aclrtEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "aclrtMalloc": (_POINTER, ctypes.c_size_t, c_int),
    "aclrtMallocAlign32": (_POINTER, ctypes.c_size_t, c_int),
    "aclrtFree": (c_void_p,),
    "aclrtHostRegister": (c_void_p, c_uint64, c_int, _POINTER),
    "aclrtHostUnregister": (c_void_p,),
    "aclrtMallocHost": (_POINTER, ctypes.c_size_t),
    "aclrtFreeHost": (c_void_p,),
    "aclrtMemcpy": _COPY,
    "aclrtMemcpyAsync": (*_COPY, c_void_p),
    "aclrtMemset": _FILL,
    "aclrtMemsetAsync": (*_FILL, c_void_p),
    "aclrtGetMemInfo": (c_int, POINTER(ctypes.c_size_t), POINTER(ctypes.c_size_t)),
    "aclrtPeekAtLastError": (c_int,),
    "aclrtGetLastError": (c_int,),
    "aclrtQueryDeviceStatus": (c_int, _NUMBER),
    "aclrtSetOpExecuteTimeOutWithMs": (ctypes.c_uint32,),
}
BASE: dict[str, tuple[Any, ...]] = {
    "aclDestroyTensor": (c_void_p,),
    "aclDestroyScalar": (c_void_p,),
    "aclDestroyIntArray": (c_void_p,),
    "aclDestroyTensorList": (c_void_p,),
    "aclSetRawTensorAddr": (c_void_p, c_void_p),
    "aclGetDataType": (c_void_p, _NUMBER),
    "aclSetAclOpExecutorRepeatable": (c_void_p,),
    "aclDestroyAclOpExecutor": (c_void_p,),
    "aclSetDynamicTensorAddr": (c_void_p, c_uint64, c_uint64, c_void_p, c_void_p),
    "aclSetTensorAddr": (c_void_p, ctypes.c_size_t, c_void_p, c_void_p),
}
CREATORS: dict[str, tuple[Any, ...]] = {
    "aclCreateTensor": _TENSOR,
    "aclCreateScalar": (c_void_p, c_int),
    "aclCreateIntArray": (POINTER(c_int64), c_uint64),
    "aclCreateBoolArray": (POINTER(c_bool), c_uint64),
    "aclCreateTensorList": (_POINTER, c_uint64),
    "aclCreateScalarList": (_POINTER, c_uint64),
}
# Parameters before workspaceSize and executor.
OPERATORS: dict[str, tuple[Any, ...]] = {
    prototype.name: tuple(NUMBERS.get(p.base_type, c_void_p) for p in prototype.parameters)
    for prototype in read_prototypes()
}
