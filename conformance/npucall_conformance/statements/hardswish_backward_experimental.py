"""aclnnHardswishBackward, variant ``experimental`` [src:hardswish]."""

from __future__ import annotations

from dataclasses import replace

from npucall_conformance.statements._hardswish import hardswish
from npucall_conformance.statements.hardswish_backward_v2 import scalar, torch_says, vector

HARDSWISH_BACKWARD_EXPERIMENTAL = replace(
    hardswish(
        "aclnnHardswishBackward", scalar, vector, torch_says, listed=("self", "grad_output"),
        npu="torch_npu calls aclnnHardswishBackwardV2 in its place",
    ),
    variant="experimental",
)  # fmt: skip
