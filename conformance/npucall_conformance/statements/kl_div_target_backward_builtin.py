"""aclnnKlDivTargetBackward, variant ``builtin`` [src:kl-div-target]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall.errors import ShapeError
from npucall_conformance.statements import _kl_div_target as shared
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import gradient
from npucall_conformance.statements.kl_div_backward import factor
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.parts import (
    HALFWAY,
    Contradiction,
    Invalid,
    Out,
    Refusal,
    Setup,
    halfway,
    immense,
    mixed_floats,
    of_reductions,
)
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

OUTPUT = "grad_target"


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    scaled = g * factor(k)
    if k["log_target"]:
        weight = reals.exp(t, k.top)
        return reals.capped(scaled * (t - s) * weight, k.top) + scaled * weight
    return (scaled * reals.log(t) - scaled * s) + reals.divide(scaled * t, t)


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    scaled = g * factor(k)
    if k["log_target"]:
        weight = capped(np.exp(t), k.top)
        terms = (scaled * (t - s) * weight, scaled * weight)
        size = np.abs(scaled) * (np.abs(t) + np.abs(s) + 1) * weight
        return terms[0] + terms[1], size
    logarithm = np.log(t)
    value = scaled * logarithm - scaled * s + scaled * t / t
    return value, np.abs(scaled) * (np.abs(logarithm) + np.abs(s) + 1)


def torch_says(k: Arguments, torch: Any) -> Any:
    if len({tensor.shape for tensor in (k["self"], k["target"], k["grad_output"])}) > 1:
        return None
    kl_div = torch.nn.functional.kl_div
    return gradient(
        torch,
        lambda t: kl_div(k["self"], t, reduction="none", log_target=k["log_target"]),
        k["target"],
        k["grad_output"] * factor(k),
    )


BUILTIN = elementwise(
    shared.NAME,
    prototype=shared.PROTOTYPE,
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults=shared.DEFAULTS,
    unwarned={"reduction": (0, 1, 2, 3)},
    variant="builtin",
    inputs=(*shared.DRAWN[:2], replace(shared.DRAWN[2], tiny=False)),
    output=Out(OUTPUT, shape="target", dtype="target"),
    scalar=scalar,
    vector=vector,
    space=("self", "target"),
    expands=("grad_output",),
    npu=_npu.gradient_of("target", _npu.KL_DIV),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2, 3), "log_target": (False, True)},
    mixed=mixed_floats(*shared.INPUTS),
    empty=(
        Setup("self-empty-alone", shapes={"self": (0, 4), "target": (1, 4), "grad_output": ()}),
        Setup("target-kept", shapes={"self": (2, 0), "target": (2, 1), "grad_output": (2, 0)}),
    ),
    edges=(
        immense({"grad_output": 1e20, "self": 1e20, "target": 1.0}, log_target=False),
        *shared.EDGES,
    ),
    reductions=of_reductions(4, 7, -1, 2**40, 2**32 + 1),
    halfway=halfway(
        {"grad_output": HALFWAY, "self": -0.5, "target": 1.0}, reduction=0, log_target=False
    ),
    invalid=(
        *defects.nulls(*shared.TENSORS),
        *defects.uncastable(OUTPUT),
        *defects.dtypes(*shared.TENSORS),
        *defects.dtypes(OUTPUT, found=FLOAT16),
        *defects.ranks(*shared.TENSORS),
        *defects.shapes("self", (5, 3), blames=("self", "target")),
        *defects.shapes("target", (5, 3), blames=("self", "target")),
        *defects.shapes("grad_output", (5, 3), (5, 3, 4)),
        Invalid("output-transposed", {OUTPUT: {"shape": (4, 3)}}, (OUTPUT,), ShapeError),
        *defects.formats(*shared.TENSORS),
    ),
    contradictions=(
        Contradiction(
            11, "target of 0 (builtin)", Setup(values=shared.E9, attributes=shared.NOT_SCALED),
            {
                "README": [[0, 9.22741128], [2, 0.45482256]],
                "builtin, torch": [[reals.NAN, 9.22741128], [2, 0.45482256]],
            },
            "builtin, torch",
        ),
        Contradiction(
            12, "divisor of mean where self is smaller",
            Setup(
                # t = 1 and s = 0, so that every element is 1, and a column's sum 3, before scaling.
                values={"grad_output": [[6]], "self": [[0], [0], [0]], "target": [[1, 1]]},
                attributes=shared.MEAN,
            ),
            {"A2, A3": [[3, 3]], "Ascend 950": [[6, 6]], "golden of its test": [[9, 9]]},
            "A2, A3",
        ),
        Contradiction(
            13, "builtin on A2 and A3", Setup(products=("Ascend910B", "Ascend910_93")),
            {"page, source": ..., "README of the kernel": Refusal()}, "page, source",
        ),
        Contradiction(
            14, "dtype of gradTarget", Setup(dtypes={"self": FLOAT16}),
            {"error table, source": ..., "parameter table": Refusal()}, "error table, source",
        ),
    ),
)  # fmt: skip
