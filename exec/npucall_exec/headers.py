"""The headers of a toolkit: CANN's names, numbers and prototypes in our own text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from npucall.declare.declaration import Operator
from npucall.declare.families import snake
from npucall.operators import CATALOGUE
from npucall.statuses import STATUSES
from npucall.tensors import Format
from npucall_exec.compiler import RUNTIME, sources_of
from npucall_exec.entry_points import declared, parameters_of

_HEADER_OF = {
    "aclnnGeGlu": "geglu",
    "aclnnGeGluV3": "geglu",
    "aclnnGeGluBackward": "geglu_backward",
    "aclnnGeGluV3Backward": "geglu_backward",
    "aclnnAvgPool2d": "avgpool2d",
    "aclnnAvgPool2dBackward": "avgpool2d_backward",
    "aclnnAvgPool3d": "avgpool3d",
    "aclnnAvgPool3dBackward": "avgpool3d_backward",
    "aclnnBatchNormReduceBackward": "batch_norm_backward_reduce",
    "aclnnBatchMatMul": "batch_matmul",
    "aclnnConvTbcBackward": "convolution_backward",
    "aclnnFloorDivides": "floor_divide",
    "aclnnGroupedBiasAddGradV2": "grouped_bias_add_grad",
    "aclnnLogSigmoid": "logsigmoid",
    "aclnnLogSigmoidBackward": "logsigmoid_backward",
    "aclnnLogSoftmax": "logsoftmax",
    "aclnnLogSoftmaxBackward": "logsoftmax_backward",
    "aclnnMuls": "mul",
    "aclnnFlashAttentionScoreV2": "flash_attention_score",
    **{
        f"aclnnFlashAttention{kind}{version}": f"flash_attention_score{of}"
        for kind, of in (("VarLenScore", ""), ("UnpaddingScoreGrad", "_grad"))
        for version in ("", "V2", "V4")
    },
    "aclnnFlashAttentionScoreGradV2": "flash_attention_score_grad",
    "aclnnReflectionPad2dBackward": "pad2d_backward",
    "aclnnReplicationPad2dBackward": "pad2d_backward",
}
"""Headers that do not have the name of their operator."""
_FUNCTION = re.compile(r"^SIM_API ([^;{]*?\b(\w+)\([^;{]*\)) \{$", re.MULTILINE)
_ENUMS = {
    "aclrtMemMallocPolicy": "ACL_MEM_MALLOC_HUGE_FIRST ACL_MEM_MALLOC_HUGE_ONLY "
    "ACL_MEM_MALLOC_NORMAL_ONLY ACL_MEM_MALLOC_HUGE_FIRST_P2P ACL_MEM_MALLOC_HUGE_ONLY_P2P "
    "ACL_MEM_MALLOC_NORMAL_ONLY_P2P ACL_MEM_MALLOC_HUGE1G_ONLY ACL_MEM_MALLOC_HUGE1G_ONLY_P2P "
    "ACL_MEM_TYPE_LOW_BAND_WIDTH=0x100 ACL_MEM_TYPE_HIGH_BAND_WIDTH=0x1000",
    "aclrtMemcpyKind": "ACL_MEMCPY_HOST_TO_HOST ACL_MEMCPY_HOST_TO_DEVICE "
    "ACL_MEMCPY_DEVICE_TO_HOST ACL_MEMCPY_DEVICE_TO_DEVICE ACL_MEMCPY_DEFAULT "
    "ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE ACL_MEMCPY_INNER_DEVICE_TO_DEVICE "
    "ACL_MEMCPY_INTER_DEVICE_TO_DEVICE",
    "aclrtMemAttr": "ACL_DDR_MEM ACL_HBM_MEM ACL_DDR_MEM_HUGE ACL_DDR_MEM_NORMAL ACL_HBM_MEM_HUGE "
    "ACL_HBM_MEM_NORMAL",
    "aclrtHostRegisterType": "ACL_HOST_REGISTER_MAPPED",
    "aclrtRunMode": "ACL_DEVICE ACL_HOST",
    "aclrtDeviceStatus": "ACL_RT_DEVICE_STATUS_NORMAL ACL_RT_DEVICE_STATUS_ABNORMAL "
    "ACL_RT_DEVICE_STATUS_END=0xFFFF",
    "aclrtStreamStatus": "ACL_STREAM_STATUS_COMPLETE ACL_STREAM_STATUS_NOT_READY "
    "ACL_STREAM_STATUS_RESERVED=0xFFFF",
    "aclrtEventStatus": "ACL_EVENT_STATUS_COMPLETE ACL_EVENT_STATUS_NOT_READY "
    "ACL_EVENT_STATUS_RESERVED",
    "aclrtEventRecordedStatus": "ACL_EVENT_RECORDED_STATUS_NOT_READY "
    "ACL_EVENT_RECORDED_STATUS_COMPLETE",
    "aclrtEventWaitStatus": "ACL_EVENT_WAIT_STATUS_COMPLETE ACL_EVENT_WAIT_STATUS_NOT_READY "
    "ACL_EVENT_WAIT_STATUS_RESERVED=0xFFFF",
    "aclrtFloatOverflowMode": "ACL_RT_OVERFLOW_MODE_SATURATION ACL_RT_OVERFLOW_MODE_INFNAN "
    "ACL_RT_OVERFLOW_MODE_UNDEF",
    "aclrtLastErrLevel": "ACL_RT_THREAD_LEVEL",
    "aclSysParamOpt": "ACL_OPT_DETERMINISTIC ACL_OPT_ENABLE_DEBUG_KERNEL "
    "ACL_OPT_STRONG_CONSISTENCY",
    "aclCANNPackageName": "ACL_PKG_NAME_CANN ACL_PKG_NAME_RUNTIME ACL_PKG_NAME_COMPILER "
    "ACL_PKG_NAME_HCCL ACL_PKG_NAME_TOOLKIT ACL_PKG_NAME_OPP ACL_PKG_NAME_OPP_KERNEL "
    "ACL_PKG_NAME_DRIVER",
}
_MACROS = {
    "ACL_STREAM_FAST_LAUNCH": 0x1, "ACL_STREAM_FAST_SYNC": 0x2, "ACL_EVENT_SYNC": 0x1,
    "ACL_EVENT_CAPTURE_STREAM_PROGRESS": 0x2, "ACL_EVENT_TIME_LINE": 0x8,
    "ACL_CONTINUE_ON_FAILURE": 0, "ACL_STOP_ON_FAILURE": 1,
}  # fmt: skip
_STRUCTURES = """\
typedef struct aclrtUtilizationExtendInfo aclrtUtilizationExtendInfo;
typedef struct aclrtUtilizationInfo {
    int32_t cubeUtilization, vectorUtilization, aicpuUtilization, memoryUtilization;
    aclrtUtilizationExtendInfo *utilizationExtend;
} aclrtUtilizationInfo;

typedef struct aclCANNPackageVersion {
    char version[128], majorVersion[64], minorVersion[64], releaseVersion[64], patchVersion[64];
    char reserved[128];
} aclCANNPackageVersion;
"""
# What the runtime calls otherwise, by function: its words and CANN's.
_SPELLED = {
    "aclrtMalloc": ("int", "aclrtMemMallocPolicy policy"),
    "aclrtMallocAlign32": ("int", "aclrtMemMallocPolicy policy"),
    "aclrtMemcpy": ("int kind", "aclrtMemcpyKind kind"),
    "aclrtMemcpyAsync": ("int kind", "aclrtMemcpyKind kind"),
    "aclrtHostRegister": ("int,", "aclrtHostRegisterType type,"),
    "aclrtGetMemInfo": ("int attribute", "aclrtMemAttr attribute"),
    "aclrtGetRunMode": ("int *", "aclrtRunMode *"),
    "aclrtQueryDeviceStatus": ("int *", "aclrtDeviceStatus *"),
    "aclrtGetDeviceUtilizationRate": ("Utilization *", "aclrtUtilizationInfo *"),
    "aclrtSetDeviceSatMode": ("int mode", "aclrtFloatOverflowMode mode"),
    "aclrtStreamQuery": ("int *", "aclrtStreamStatus *"),
    "aclrtQueryEvent": ("int *", "aclrtEventStatus *"),
    "aclrtQueryEventStatus": ("int *", "aclrtEventRecordedStatus *"),
    "aclrtQueryEventWaitStatus": ("int *", "aclrtEventWaitStatus *"),
    "aclrtPeekAtLastError": ("int level", "aclrtLastErrLevel level"),
    "aclrtGetLastError": ("int level", "aclrtLastErrLevel level"),
    "aclrtSetSysParamOpt": ("int option", "aclSysParamOpt option"),
    "aclrtGetSysParamOpt": ("int option", "aclSysParamOpt option"),
    "aclrtCtxSetSysParamOpt": ("int option", "aclSysParamOpt option"),
    "aclrtCtxGetSysParamOpt": ("int option", "aclSysParamOpt option"),
    "aclsysGetCANNVersion": (
        "int name, PackageVersion *",
        "aclCANNPackageName name, aclCANNPackageVersion *",
    ),
    "aclGetDataType": ("int *", "aclDataType *"),
}
_OTHER_NAMES = ("acl/acl_base.h", "acl/acl_rt.h", "acl/acl_op.h")
"""Headers that programs include beside acl/acl.h; ours has it all."""
_TOP = """\
/* Of npucall: declarations of CANN's names, for npucall exec. */
#pragma once
"""


def headers() -> dict[str, str]:
    """The headers of the runtime, and of the operators of the catalogue, by path."""
    texts = {
        "acl/acl.h": _runtime(),
        **dict.fromkeys(_OTHER_NAMES, '#include "acl/acl.h"\n'),
        "aclnn/acl_meta.h": _framed(_functions("nnopbase"), "acl/acl.h"),
        "aclnn/aclnn_base.h": '#include "aclnn/acl_meta.h"\n',
    }
    by_header: dict[str, dict[str, Operator[Any, Any]]] = {}
    for operator in CATALOGUE:
        by_header.setdefault(header_of(operator), {})[operator.name] = operator
    for name, operators in by_header.items():
        body = "\n".join(map(_both_phases, operators.values()))
        texts[f"aclnnop/{name}"] = _framed(body, "aclnn/acl_meta.h")
    return {name: f"{_TOP}{text}" for name, text in texts.items()}


def header_of(operator: Operator[Any, Any]) -> str:
    """The file that declares an operator, and its twin that works in place."""
    plain = operator.name.replace("aclnnInplace", "aclnn")
    name = re.sub(r"(Upsample(?!NearestExact)\w+?)(?=\dd(?!AA))", r"\1_", plain)
    return f"aclnn_{_HEADER_OF.get(plain, snake(name))}.h"


def functions(part: str) -> dict[str, str]:
    """The C functions of a part of the runtime, by name, as its sources declare them."""
    text = "".join(path.read_text() for path in sources_of(part))
    return {name: " ".join(found.split()) for found, name in _FUNCTION.findall(text)}


def _functions(part: str) -> str:
    lines = []
    for name, declaration in functions(part).items():
        head, _, parameters = declaration.partition("(")
        ours, of_cann = _SPELLED.get(name, ("", ""))
        parameters = parameters.replace(ours, of_cann, 1)
        lines.append(f"{head}({'void)' if parameters == ')' else parameters};\n")
    return "".join(lines)


def _runtime() -> str:
    body = "\n".join([_types(), *_enums(), _macros(), _STRUCTURES, _functions("acl")])
    return _framed(body, "stdbool.h", "stddef.h", "stdint.h")


def _types() -> str:
    """The types of the runtime, without what only its own sources need."""
    text = (RUNTIME / "acl_types.h").read_text()
    (types,) = re.findall(r'extern "C" \{(.*)\}  // extern "C"', text, re.DOTALL)
    return types.replace("typedef int aclFormat;\n", "").strip() + "\n"


def _enums() -> Iterator[str]:
    formats = " ".join(f"ACL_FORMAT_{each.name}={each.value}" for each in Format)
    # This one has its prefix without FORMAT.
    formats = formats.replace("ACL_FORMAT_FRACTAL_Z_3D", "ACL_FRACTAL_Z_3D")
    for name, members in {"aclFormat": f"ACL_FORMAT_UNDEFINED=-1 {formats}", **_ENUMS}.items():
        lines = "".join(f"    {member.replace('=', ' = ')},\n" for member in members.split())
        yield f"typedef enum {{\n{lines}}} {name};\n"


def _macros() -> str:
    """Statuses are constants, which differ from macros for nobody who only compares them."""
    numbers = {status.symbol: number for number, status in STATUSES.items()}
    numbers = {"ACL_SUCCESS": 0, "ACL_ERROR_NONE": 0, "ACLNN_SUCCESS": 0, **numbers, **_MACROS}
    return "".join(f"#define {name} {number}\n" for name, number in numbers.items())


def _both_phases(operator: Operator[Any, Any]) -> str:
    own = declared(parameters_of(operator))
    return (
        f"aclnnStatus {operator.name}GetWorkspaceSize({own}, uint64_t *workspaceSize,\n"
        "    aclOpExecutor **executor);\n"
        f"aclnnStatus {operator.name}(void *workspace, uint64_t workspaceSize,\n"
        "    aclOpExecutor *executor, aclrtStream stream);\n"
    )


def _framed(body: str, *included: str) -> str:
    includes = "".join(f'#include "{n}"\n' if "/" in n else f"#include <{n}>\n" for n in included)
    start, end = '#ifdef __cplusplus\nextern "C" {\n#endif\n', "#ifdef __cplusplus\n}\n#endif\n"
    return f"\n{includes}\n{start}\n{body}\n{end}"
