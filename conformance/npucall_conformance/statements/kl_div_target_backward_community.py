"""aclnnKlDivTargetBackward, variants ``documented`` and ``community`` [src:kl-div-target]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT16, FLOATS
from npucall.errors import ShapeError
from npucall_conformance.statements import _kl_div_target as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.parts import (
    HALFWAY,
    Contradiction,
    Invalid,
    Out,
    Setup,
    halfway,
    immense,
)
from npucall_conformance.stating.promotion import float16_if_all
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    if k["log_target"]:
        slope = reals.capped((t + 1 - s) * reals.exp(t, k.top), k.top)
        return reals.capped(g * slope, k.top)
    if t == 0:
        return 0.0
    return reals.capped(g * (reals.log(t) + 1 - s), k.top)


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    if k["log_target"]:
        weight = capped(np.exp(t), k.top)
        slope = capped((t + 1 - s) * weight, k.top)
        value = capped(g * slope, k.top)
        size = np.abs(g) * (np.abs(t) + 1 + np.abs(s)) * weight
    else:
        zero = t == 0
        value = np.where(zero, 0, capped(g * (np.log(t) + 1 - s), k.top))
        size = np.where(zero, 0, np.abs(g) * (np.abs(np.log(t)) + 1 + np.abs(s)))
    return value, size


def statement(variant: str) -> Statement:
    """The variants differ in the divisor of mean, and in the check of formats."""
    documented = variant == "documented"
    by_variant = ("README", "kernel") if documented else ("kernel", "README")

    def factor(k: Arguments) -> float:
        """Documented: first extent of target as passed; community: elements of the result."""
        divisor = k.first("target") if documented else k.count(*shared.INPUTS)
        return 1 / max(divisor, 1) if k["reduction"] == 1 else 1.0

    return elementwise(
        shared.NAME,
        prototype=shared.PROTOTYPE,
        takes=on(("Ascend910B",), *FLOATS),
        legacy=(),
        defaults=shared.DEFAULTS,
        unwarned={"reduction": (0, 1, 2)},
        variant=variant,
        inputs=shared.DRAWN,
        output=Out("grad_target", shape=lambda k: k.shape(*shared.INPUTS), dtype="target"),
        scalar=lambda k, *elements: scalar(k, *elements) * factor(k),
        vector=lambda k, *arrays: tuple(a * factor(k) for a in vector(k, *arrays)),
        space=shared.INPUTS,
        kernel=float16_if_all(*shared.INPUTS),
        stepwise=lambda kernel: kernel is FLOAT16,
        npu="no NPU has it" if documented else "torch_npu does not say which variant it runs",
        attributes={"reduction": (0, 1, 2, 3), "log_target": (False, True)},
        edges=(
            immense({"grad_output": 1e20, "self": 1e20, "target": 1.0}, log_target=False),
            *shared.EDGES,
        ),
        reductions=tuple(
            Setup(attributes={"reduction": each}) for each in (3, 4, 7, -1, 2**40, 2**32 + 1)
        ),
        empty=(Setup("one-empty", shapes={"target": (1, 0), "self": (2, 1), "grad_output": ()}),),
        halfway=halfway(
            {"grad_output": HALFWAY, "self": -0.5, "target": 1.0}, reduction=0, log_target=False
        ),
        empty_before="shape-grad_output-5x3",
        invalid=(*_table(), *(defects.formats(*shared.TENSORS) if documented else ())),
        contradictions=(
            Contradiction(
                8, f"divisor of mean ({variant})",
                Setup(values=shared.E9, attributes=shared.MEAN),
                {
                    "README": [[0, 4.61370564], [1, 0.22741128]],
                    "kernel": [[0, 2.30685282], [0.5, 0.11370564]],
                },
                by_variant[0],
            ),
            Contradiction(
                9, f"target below 0 ({variant})",
                Setup(
                    values={"grad_output": [1], "self": [0], "target": [-1]},
                    attributes=shared.NOT_SCALED,
                ),
                {"kernel": [reals.NAN], "README (undefined)": ...}, "kernel",
            ),
            Contradiction(
                11, f"target of 0 ({variant})",
                Setup(values=shared.E9, attributes=shared.NOT_SCALED),
                {
                    "README": [[0, 9.22741128], [2, 0.45482256]],
                    "builtin, torch": [[reals.NAN, 9.22741128], [2, 0.45482256]],
                },
                "README",
            ),
        ),
    )  # fmt: skip


def _table() -> tuple[Invalid, ...]:
    inputs, output = shared.INPUTS, "grad_target"
    return (
        *defects.nulls(*shared.TENSORS),
        *defects.dtypes(*shared.TENSORS),
        *defects.ranks(*inputs),
        *defects.shapes("grad_output", (5, 3), blames=("grad_output", "self")),
        *defects.shapes("self", (5, 3), blames=("grad_output", "self")),
        *defects.shapes("target", (5, 3), blames=inputs),
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("self", found=BF16),
        *defects.dtypes(output, found=FLOAT16),
        Invalid("output-transposed", {output: {"shape": (4, 3)}}, (output,), ShapeError),
        Invalid("output-of-rank-9", {output: {"shape": (1,) * 9}}, (output,), ShapeError),
    )


STATEMENTS = (statement("documented"), statement("community"))
