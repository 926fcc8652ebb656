"""What the statements of the variants of aclnnKlDivTargetBackward share [src:kl-div-target]."""

from __future__ import annotations

from npucall_conformance.stating import reals
from npucall_conformance.stating.domains import log_probabilities, probabilities, upstream
from npucall_conformance.stating.parts import In, crossed

NAME = "aclnnKlDivTargetBackward"
PROTOTYPE = (
    "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
    "int64_t reduction, bool logTarget, aclTensor* gradTarget"
)
DEFAULTS = {"reduction": 1, "log_target": False}
INPUTS = ("grad_output", "self", "target")
TENSORS = (*INPUTS, "grad_target")
DRAWN = (
    In("grad_output", upstream("self", "target")),
    In("self", log_probabilities()),
    In("target", probabilities()),
)
_INF, _NAN = reals.INFINITY, reals.NAN
EDGES = (
    crossed({
        "grad_output": (1.0, -2.0, 0.0, 300.0, _INF, _NAN),
        "target": (0.0, -0.0, -1.5, 0.25, 12.0, 89.0, _INF, -_INF, _NAN),
        "self": (-1.0, 0.5, _INF, -_INF, _NAN),
    }),
)  # fmt: skip
# E9 of [src:worked-examples]: four elements, two rows, a zero.
E9 = {
    "grad_output": [[4, 4], [4, 4]],
    "self": [[-1, -2], [0.5, -0.5]],
    "target": [[0, 0.5], [1, 0.25]],
}
MEAN = {"reduction": 1, "log_target": False}
NOT_SCALED = {"reduction": 0, "log_target": False}
