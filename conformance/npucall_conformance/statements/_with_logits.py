"""What the gradients of the binary cross entropy with logits share [src:bce-with-logits]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npucall.dtypes import FLOAT16
from npucall.errors import AttributeValueError, FormatError
from npucall.tensors import Format
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, probabilities, uniform, upstream
from npucall_conformance.stating.parts import In, Invalid, Setup, crossed

INPUTS = ("grad_output", "self", "target", "weight", "pos_weight")
WEIGHTS = ("weight", "pos_weight")
EXPANDS = ("grad_output", *WEIGHTS)
DRAWN = (
    In("grad_output", upstream("self")),
    In("self", normal(2)),
    In("target", probabilities(0, 1)),
    In("weight", uniform(0.1, 2), optional=True),
    In("pos_weight", uniform(0.1, 4), optional=True),
)
_NAN, _INF = reals.NAN, reals.INFINITY
# e^-80 is a normal number in FLOAT: what underflows, times an infinite gradient, would be NaN.
_EDGES = {
    "grad_output": (1.0, 0.0, -300.0, _INF, _NAN),
    "self": (0.0, -0.0, 1.0, 80.0, -80.0, _INF, -_INF, _NAN),
    "target": (0.0, 1.0, 0.25, -1.5, _INF, _NAN),
}
EDGES = (
    crossed(_EDGES, absent=WEIGHTS),
    crossed({"self": _EDGES["self"], "weight": _EDGES["grad_output"]}, absent=("pos_weight",)),
    crossed({
        "grad_output": (1.0, _INF),
        "self": _EDGES["self"],
        "target": _EDGES["target"],
        "weight": (1.0, 0.0),
        "pos_weight": (1.0, 0.0, 3.0, _INF, _NAN),
    }),
)  # fmt: skip
# Shapes are not looked at where self is empty, and nothing is computed.
EMPTY = (
    Setup("unlike-target", shapes={"self": (0, 3), "target": (2, 3)}, filled=0.0),
    Setup(
        "unlike-others", shapes={"self": (0,), "grad_output": (2, 3), "weight": (4,)}, filled=0.0
    ),
)
SOME_ABSENT = tuple(
    Setup("-".join(("no", *absent)).replace("_", "-"), base=(3, 4), absent=absent)
    for absent in (("weight",), ("pos_weight",), WEIGHTS)
)


def invalid(out: str, *by_product: Invalid) -> tuple[Invalid, ...]:
    """The error table; ``out`` is the output's name, ``by_product`` are dtypes some have not."""
    other = {"format": Format.NCHW}
    return (
        *defects.nulls(*INPUTS[:3], out),
        *defects.ranks(out),
        *defects.rank_of_what_follows("self", out),
        *defects.dtypes(*INPUTS, out),
        *by_product,
        *defects.dtypes(out, found=FLOAT16),
        *(
            Invalid(f"format-{name}", {name: other}, ("self",), FormatError)
            for name in ("self", "target", out)
        ),
        *defects.shapes("self", (4, 3), (1, 4), blames=("self",)),
        *defects.shapes("target", (4, 3), (1, 4), blames=("self",)),
        *defects.shapes(out, (4, 3), (1, 3, 4), blames=("self",)),
        *defects.shapes("grad_output", (5, 3), (2, 3, 4)),
        *defects.shapes("weight", (5, 3), (2, 3, 4)),
        *defects.shapes("pos_weight", (5, 3), (2, 3, 4)),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        Invalid(
            "reduction-of-nothing", {"reduction": 7}, ("reduction",), AttributeValueError,
            base=Setup(base=(0, 3)),
        ),
    )  # fmt: skip


def loss(k: Arguments, torch: Any) -> Callable[[Any, Any], Any]:
    """The loss of each element of logits and targets, as torch has it."""
    return lambda logits, target: torch.nn.functional.binary_cross_entropy_with_logits(
        logits, target, weight=k["weight"], pos_weight=k["pos_weight"], reduction="none"
    )
