"""aclnnHardswishBackwardV2 [src:hardswish]: the ends belong to the flat parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall_conformance.statements import _npu
from npucall_conformance.statements._hardswish import hardswish
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.npu import aten


def scalar(_: Arguments, g: float, x: float) -> float:
    if x <= -3:
        return 0.0  # whatever the gradient is
    if x < 3:
        return g * (x / 3 + 0.5)
    return g  # also where x is NaN


def vector(_: Arguments, g: Any, x: Any) -> Any:
    slanted = np.abs(x) < 3
    value = np.select([slanted, x < 0], [g * (2 * x + 3) / 6, 0.0], g)
    return value, np.where(slanted, (np.abs(x) / 3 + 0.5) * np.abs(g), np.abs(value))


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.ops.aten.hardswish_backward(k["grad_output"], k["self"])


HARDSWISH_BACKWARD_V2 = hardswish(
    "aclnnHardswishBackwardV2", scalar, vector, torch_says, listed=("grad_output", "self"),
    npu=aten("hardswish_backward", *_npu.BOTH),
)  # fmt: skip
