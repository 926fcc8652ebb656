"""Which tensors of a C prototype an operator writes.

Headers do not say so [src:output-roles]: a quarter of CANN's operators declare every tensor const,
including outputs, and some inputs are not const. A rule that uses names, order and const together
is right for 99 operators in a hundred. The others are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

TENSOR_TYPES = frozenset(
    {"aclTensor*", "const aclTensor*", "aclTensorList*", "const aclTensorList*"}
)


class TensorRole(Enum):
    """What a tensor is for."""

    INPUT = "in"
    OUTPUT = "out"
    IN_OUT = "in/out"


_IN, _OUT, _IN_OUT = TensorRole.INPUT, TensorRole.OUTPUT, TensorRole.IN_OUT
_REF = re.compile(r"\w+Ref(?:Optional)?")
"""Names of tensors that are read and written."""
_OUT_NAME = re.compile(r"(?!gradOut$|grad_out$)\w+(?:Out|_out)(?:Optional)?")
"""Names of const tensors that are always written."""
_CONST_OUTPUT = re.compile(
    rf"{_OUT_NAME.pattern}|out|output|y\d*|result|gradInput|\w+Ref(?:Optional)?"
)
"""Names of tensors that are written if every tensor is const."""
_PURE_OUTPUT = re.compile(
    r"out(?:[A-Z]\w*)?|output\w*|y\d*|result|\w+Out(?:Optional)?|grad[A-Z]\w*|\w+Grad"
)
"""Names of tensors without const that are only written, not read."""
_IN_PLACE = re.compile(r"aclnnInplace\w+|\w+Inplace")
_RESIDUAL = re.compile(r"aclnnInplace\w*MatmulAllReduceAddRmsNorm")
"""These operators overwrite ``residual``. Other operators in place overwrite their first tensor."""

_ADVANCE_STEP = dict.fromkeys(("inputTokens", "inputPositions", "seqLens", "slotMapping"), _IN_OUT)
_EXCEPTIONS: Mapping[str, Mapping[str, TensorRole]] = {
    "aclnnAdvanceStep": _ADVANCE_STEP,
    "aclnnAdvanceStepV2": _ADVANCE_STEP,
    "aclnnBatchNormElemt": {"mean": _IN, "invstd": _IN},
    "aclnnBatchNormElemtBackward": {"counter": _IN},
    "aclnnDeformableConv2dBackward": {"offsetOut": _IN},
    "aclnnForeachNonFiniteCheckAndUnscale": {"scaledGrads": _IN_OUT, "foundInf": _IN_OUT},
    "aclnnFusedCrossEntropyLossWithMaxSum": {"vocabParallelLogitsOptional": _OUT},
    "aclnnGroupedMatmulFinalizeRouting": {"w": _IN},
    "aclnnGroupedMatmulFinalizeRoutingV2": {"x2": _IN},
    "aclnnGroupedMatmulFinalizeRoutingV3": {"x2": _IN},
    "aclnnGroupedMatmulFinalizeRoutingWeightNzV2": {"x2": _IN},
    "aclnnIndexCopy": {"selfRef": _IN, "outRef": _OUT},
    "aclnnInplaceAtan2": {"other": _IN},
    "aclnnInplaceRReluWithNoise": {"noise": _IN_OUT},
    "aclnnModulateBackward": {"grad_input": _OUT, "grad_scale": _OUT, "grad_shift": _OUT},
    "aclnnMultilabelMarginLoss": {"isTarget": _OUT},
    "aclnnNLLLoss2dBackward": {"totalWeight": _IN},
    "aclnnQuantizedBatchNorm": {"weight": _IN, "bias": _IN},
    "aclnnRReluWithNoise": {"noise": _IN_OUT},
    "aclnnSiluMul": {"y": _IN},
    "aclnnSoftmaxCrossEntropyWithLogits": {"labels": _IN},
    "aclnnXlog1py": {"y": _IN, "z": _OUT},
}
"""Operators for which the rule is wrong; from the tables of parameters in their documents."""


def roles_of(operator: str, types: Mapping[str, str]) -> dict[str, TensorRole]:
    """The role of each tensor. ``types``: all parameters' C types by name, in C order."""
    tensors = [name for name, c_type in types.items() if c_type in TENSOR_TYPES]
    in_place = _tensor_in_place(operator, tensors)
    written = _written(types, tensors, in_place)
    roles = {
        name: _role_of_written(name, types[name], in_place) if name in written else TensorRole.INPUT
        for name in tensors
    }
    exceptions = _EXCEPTIONS.get(operator, {})
    return roles | {name: role for name, role in exceptions.items() if name in roles}


def _tensor_in_place(operator: str, tensors: list[str]) -> str | None:
    """The tensor that the operator overwrites, if its name says that it works in place."""
    if not _IN_PLACE.fullmatch(operator):
        return None
    if _RESIDUAL.fullmatch(operator) and "residual" in tensors:
        return "residual"
    return next(iter(tensors), None)


def _written(types: Mapping[str, str], tensors: list[str], in_place: str | None) -> set[str]:
    certain = {in_place} if in_place else set()
    variable = {name for name in tensors if not types[name].startswith("const ")}
    if variable:
        return certain | variable | set(filter(_OUT_NAME.fullmatch, tensors))
    named = {name for name in tensors if _CONST_OUTPUT.fullmatch(name)}
    if in_place:
        return certain | named
    return _behind_attributes(list(types), tensors) or named


def _behind_attributes(names: list[str], tensors: list[str]) -> set[str]:
    """The tensors after the last attribute, if inputs come before it, as in generated operators."""
    last = max((index for index, name in enumerate(names) if name not in tensors), default=0)
    if not any(name in tensors for name in names[:last]):
        return set()
    return {*names[last + 1 :], *filter(_REF.fullmatch, tensors)}


def _role_of_written(name: str, c_type: str, in_place: str | None) -> TensorRole:
    if name == in_place or _REF.fullmatch(name):
        return TensorRole.IN_OUT
    variable = not c_type.startswith("const ")
    return TensorRole.IN_OUT if variable and not _PURE_OUTPUT.fullmatch(name) else TensorRole.OUTPUT
