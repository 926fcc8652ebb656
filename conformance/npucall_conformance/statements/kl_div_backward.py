"""aclnnKlDivBackward [src:kl-div-backward]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import gradient
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import log_probabilities, probabilities, upstream
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.parts import (
    HALFWAY,
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
    halfway,
    immense,
    mixed_floats,
    of_reductions,
)
from npucall_conformance.stating.promotion import float16_if_all
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B

INPUTS = ("grad_output", "self", "target")
TENSORS = (*INPUTS, "out")
NAN, INF = reals.NAN, reals.INFINITY
G_EDGES = (1.0, 0.0, -2.0, 300.0, 1e-4, INF, NAN)
S_EDGES = (-1.0, INF, NAN)


def scalar(k: Arguments, g: float, _: float, t: float) -> float:
    weight = reals.exp(t, k.top) if k["log_target"] else t
    return reals.capped(-(weight * g), k.top) * factor(k)


def vector(k: Arguments, g: Any, _: Any, t: Any) -> Any:
    weight = t
    if k["log_target"]:
        weight = capped(np.exp(t), k.top)
    return capped(g * weight * -1.0, k.top) * factor(k)


def factor(k: Arguments) -> float:
    """Mean over, or first extent of, what self and target broadcast to."""
    if k["reduction"] == 3:  # batchmean
        return 1 / max(k.first("self", "target"), 1)
    return k.mean("self", "target")


def torch_says(k: Arguments, torch: Any) -> Any:
    if len({tensor.shape for tensor in (k["self"], k["target"], k["grad_output"])}) > 1:
        return None
    kl_div = torch.nn.functional.kl_div
    return gradient(
        torch,
        lambda s: kl_div(s, k["target"], reduction="none", log_target=k["log_target"]),
        k["self"],
        k["grad_output"] * factor(k),
    )


KL_DIV_BACKWARD = elementwise(
    "aclnnKlDivBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, bool logTarget, aclTensor* out"
    ),
    takes=FLOATS_BUT_ON_310B,
    legacy=("Ascend910", "Ascend310P"),
    defaults={"reduction": 1, "log_target": False},
    unwarned={"reduction": (0, 1, 2, 3)},
    inputs=(
        In("grad_output", upstream("self", "target")),
        In("self", log_probabilities(), read=False),
        In("target", probabilities()),
    ),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    space=("self", "target"),
    expands=("grad_output",),
    kernel=float16_if_all(*INPUTS),
    npu=_npu.gradient_of("self", _npu.KL_DIV),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2, 3), "log_target": (False, True)},
    mixed=mixed_floats(*INPUTS, output="out"),
    empty=(
        Setup("self-kept", shapes={"self": (2, 1), "target": (2, 0), "grad_output": (2, 0)}),
        Setup("self-empty-alone", shapes={"self": (0, 3), "target": (1, 3), "grad_output": ()}),
    ),
    edges=(
        immense({"grad_output": 1e20, "self": 0.0, "target": 1e20}, log_target=False),
        crossed({
            "grad_output": G_EDGES,
            "target": (0.0, -0.0, -1.5, 0.25, 12.0, 89.0, 300.0, 1e-4, INF, -INF, NAN),
            "self": S_EDGES,
        }),
    ),
    reductions=of_reductions(4, 7, -1, 2**40, 2**32 + 1),
    halfway=halfway(
        {"grad_output": HALFWAY, "self": 0.5, "target": 1.5}, reduction=0, log_target=False
    ),
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        Invalid("cast-from-complex", {"self": {"dtype": COMPLEX64}}, ("out",), DTypeError),
        *defects.dtypes(*TENSORS),
        *defects.no_bfloat16(*TENSORS),
        *defects.ranks(*TENSORS),
        *defects.shapes("self", (5, 3), blames=("self", "target")),
        *defects.shapes("target", (5, 3), blames=("self", "target")),
        *defects.shapes("grad_output", (5, 3), (5, 3, 4)),
        Invalid("out-transposed", {"out": {"shape": (4, 3)}}, ("out",), ShapeError),
        Invalid("out-of-higher-rank", {"out": {"shape": (1, 3, 4)}}, ("out",), ShapeError),
    ),
    contradictions=(
        Contradiction(
            1, "KlDivBackward on Atlas training and inference",
            Setup(products=("Ascend910", "Ascend310P"), dtypes=dict.fromkeys(INPUTS, FLOAT16)),
            {"README, newer page": Refusal(), "older page, source": ...}, "older page, source",
        ),
        Contradiction(
            2, "DOUBLE", Setup(dtypes=dict.fromkeys(TENSORS, DOUBLE)),
            {"older page": ..., "newer page, source": Refusal()}, "newer page, source",
        ),
        Contradiction(
            3, "dtype of out", Setup(dtypes={"out": FLOAT16}),
            {"newer page": Refusal(), "source": ...}, "source",
        ),
        Contradiction(
            4, "gradOutput larger than self and target", Setup(shapes={"grad_output": (2, 3, 4)}),
            {"README, newer page": ..., "source": Refusal()}, "source",
        ),
        Contradiction(
            5, "rank 0", Setup(base=()), {"newer page": Refusal(), "source": ...}, "source",
        ),
        Contradiction(
            6, "reduction 7",
            Setup(
                values={"grad_output": [1, 2], "self": [0, 0], "target": [3, 4]},
                attributes={"reduction": 7, "log_target": False},
            ),
            {"source": [-3, -8], "KL forward": Refusal()}, "source",
        ),
        Contradiction(
            7, "divisor of batchmean",
            Setup(
                values={
                    "grad_output": [[1, 1]], "self": [[0, 0]], "target": [[1, 2], [3, 4], [5, 6]]
                },
                attributes={"reduction": 3, "log_target": False},
            ),
            {"source": [[-3, -4]], "torch": [[-9, -12]]}, "source",
        ),
    ),
)  # fmt: skip
