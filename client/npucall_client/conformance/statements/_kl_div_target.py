"""What the statements of the variants of aclnnKlDivTargetBackward share, operators.md 1.2."""

from __future__ import annotations

from npucall_client.conformance import reals
from npucall_client.conformance.domains import log_probabilities, normal, probabilities
from npucall_client.conformance.statement import In, crossed

NAME = "aclnnKlDivTargetBackward"
INPUTS = ("grad_output", "self", "target")
TENSORS = (*INPUTS, "grad_target")
DRAWN = (
    In("grad_output", normal()),
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
# E9 of operators.md 3.3: four elements, two rows, a zero.
E9 = {
    "grad_output": [[4, 4], [4, 4]],
    "self": [[-1, -2], [0.5, -0.5]],
    "target": [[0, 0.5], [1, 0.25]],
}
MEAN = {"reduction": 1, "log_target": False}
NOT_SCALED = {"reduction": 0, "log_target": False}
