"""Writes the operators' headers in the variety of an installation: prefixes, comments, spelling."""

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from npucall_exec.entry_points import CParameter

from .prototypes import Prototype

FIXED = Path(__file__).parent / "headers"
"""Headers that are the same in every build: macros, umbrellas, helper functions."""

_API = "ACLNN_API "
_ATTRIBUTE = '__attribute__((visibility("default")))'
# How a function is introduced: four of five headers of an installation say ACLNN_API.
_PREFIXES = (_API, _API, f"{_ATTRIBUTE}\n", _API, _API, f"{_ATTRIBUTE}", _API, _API, "", _API)
_DEPRECATED = """\
ACL_DEPRECATED_MESSAGE("{name} will be removed (not soon); use {name}V3, please; "
                       "its parameters (axis, dstType) are the same")
"""
# A parser that does not strip comments takes what these hold for declarations.
_COMMENT_ONE = """\
/**
 * @brief {name} 的第一段接口、根据具体的计算流程计算 workspace 大小。
 * @domain aclnn_ops
 *
 * Example:
 *     aclnnStatus {name}GetWorkspaceSize(int example, uint64_t *size, aclOpExecutor **executor);
 *     if ({name}GetWorkspaceSize({names}, &size, &executor) != 0) {{ return; }}
 *
{listed}
 * @param [out] workspaceSize: bytes of device memory; may be 0 (then pass NULL).
 * @return aclnnStatus: 0, or 161001 ("must not be nullptr"), or 161002.
 */
"""
_COMMENT_TWO = """\
// {name} 的第二段接口、用于执行计算; aclnnStatus {name}(void);
"""
_FRAME = """\
/* {header}: 算子头文件 */
#ifndef {guard}
#define {guard}

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

#ifdef __cplusplus
extern "C" {{
#endif

{body}
#ifdef __cplusplus
}}
#endif

#endif  // {guard}
"""


def write_headers(operators: Iterable[Prototype], folder: Path, *, level2: bool) -> None:
    """Writes a header for each that the operators name.

    ``level2``: a folder of that name gets a copy of every header, and those that are there only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_header = defaultdict(list)
    for operator in operators:
        by_header[operator.header].append(operator)
    for number, (header, held) in enumerate(by_header.items()):
        text = header_text(header, held, number)
        if level2:
            (folder / "level2").mkdir(exist_ok=True)
            (folder / "level2" / header).write_text(text, encoding="utf-8")
        if not (level2 and "level2" in held[0].words):
            (folder / header).write_text(text, encoding="utf-8")


def header_text(header: str, operators: Sequence[Prototype], number: int) -> str:
    """One header; its ``number`` decides how it is spelled."""
    body = "\n".join(_declarations(operator, number) for operator in operators)
    guard = f"OP_API_INC_{header.upper().replace('.', '_')}_"
    return _FRAME.format(header=header, guard=guard, body=body)


def _declarations(operator: Prototype, number: int) -> str:
    name = operator.name
    prefix = f"{_ATTRIBUTE}\n" if "generated" in operator.words else _PREFIXES[number % 10]
    deprecated = ""
    if "deprecated" in operator.words:
        prefix, deprecated = _API, _DEPRECATED.format(name=name)
    names = ", ".join(p.name for p in operator.parameters)
    listed = "\n".join(map(_described, operator.parameters))
    one = [*map(_spelled, operator.parameters), "uint64_t *workspaceSize"]
    one += ["aclOpExecutor **executor"]
    stream = "const aclrtStream stream" if number % 7 == 0 else "aclrtStream stream"
    two = ["void *workspace", "uint64_t workspaceSize", "aclOpExecutor *executor", stream]
    return (
        _COMMENT_ONE.format(name=name, names=names, listed=listed)
        + f"{deprecated}{prefix}aclnnStatus {_call(f'{name}GetWorkspaceSize', one, number)};\n\n"
        + _COMMENT_TWO.format(name=name)
        + f"{deprecated}{prefix}aclnnStatus {_call(name, two, number)};\n"
    )


def _described(parameter: CParameter) -> str:
    direction = "out" if parameter.output else "in"
    optional = " 可选。" if parameter.optional else ""
    return (
        f" * @param [{direction}] {parameter.name}: npu device侧的 {parameter.c_type}。{optional}"
    )


def _spelled(parameter: CParameter) -> str:
    return f"{parameter.c_type.replace('*', ' *')} {parameter.name}".replace("* ", "*")


def _call(name: str, parameters: Sequence[str], number: int) -> str:
    """Function name and parameters: in one line, one a line with comments, or filled."""
    if number % 4 == 1:
        listed = ",\n".join(f"    {text}" for text in parameters)
        return f"{name}(\n{listed})"
    if number % 4 == 2:
        stars = [text.replace(" *", "* ", 1).replace("* *", "** ") for text in parameters]
        listed = "\n    ".join(f"{text},  // 参数, {text};" for text in stars[:-1])
        return f"{name} ({listed}\n    {stars[-1]})"
    joined = f"{name}({', '.join(parameters)})"
    return joined if number % 4 == 3 else textwrap.fill(joined, 100, subsequent_indent="    ")
