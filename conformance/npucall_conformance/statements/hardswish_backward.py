"""aclnnHardswishBackward [src:hardswish]: the ends belong to the slanted part."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall_conformance.statements._hardswish import hardswish
from npucall_conformance.stating.arguments import Arguments


def scalar(_: Arguments, g: float, x: float) -> float:
    if x < -3:
        return g * 0.0  # NaN for an infinite gradient
    if x <= 3:
        return g * (x / 3 + 0.5)
    return g  # also where x is NaN


def vector(_: Arguments, g: Any, x: Any) -> Any:
    slanted = np.abs(x) <= 3
    slope = np.select([slanted, x < 0], [(2 * x + 3) / 6, 0.0], 1.0)
    return slope * g, np.where(slanted, np.abs(x) / 3 + 0.5, slope) * np.abs(g)


def torch_says(k: Arguments, torch: Any) -> Any:
    g, x = k["grad_output"], k["self"]
    at_an_end = x.abs() == 3  # where torch takes the flat parts
    return torch.where(at_an_end, g * (0.5 + x / 3), torch.ops.aten.hardswish_backward(g, x))


HARDSWISH_BACKWARD = hardswish(
    "aclnnHardswishBackward", scalar, vector, torch_says, listed=("self", "grad_output"),
    npu="torch_npu calls aclnnHardswishBackwardV2 in its place",
)  # fmt: skip
