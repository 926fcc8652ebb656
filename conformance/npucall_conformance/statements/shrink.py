"""aclnnShrink, aclnnHardshrink, aclnnSoftshrink, gradients of the last two [src:shrink]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import DTypeError, FormatError
from npucall.tensors import Format
from npucall_conformance.statements import _activations as shared
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    PAIRS_OF_FLOATS,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    mixed_floats,
)
from npucall_conformance.stating.promotion import dtype_of, promotion
from npucall_conformance.stating.statement import RANK_SHAPES
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B, WITH_BFLOAT16, on

INF, NAN = shared.INF, shared.NAN
BOTH = ("grad_output", "self")
TENSORS = (*BOTH, "grad_input")
COMPLEX = Invalid("complex-lambd", {"lambd": Scalar(COMPLEX64, 1)}, ("lambd",), DTypeError)
NUMBERS = tuple(
    Setup(f"lambd-{name}", attributes={"lambd": given})
    for name, given in (("integer", Scalar(INT32, 1)), ("short", Scalar(BF16, 0.3)),
                        ("infinite", INF), ("nan", NAN))
)  # fmt: skip
COMMON: dict[str, Any] = {
    "takes": FLOATS_BUT_ON_310B,
    "legacy": ("Ascend910", "Ascend310P"),
    "attributes": {"lambd": (0.5, 0.0)},
    # All of an infinite or unknown threshold is 0.
    "faint": lambda k: ("out", "grad_input") if not k["lambd"] < 1e3 else (),
}
NEGATIVE = (Setup("lambd-negative", attributes={"lambd": -0.5}),)


def inside(k: Arguments, x: float, least: float = 0.0) -> bool:
    low = max(k["lambd"], least)
    return k["lambd"] != k["lambd"] or -low <= x <= low  # NaN


def hard(k: Arguments, x: float) -> float:
    return 0.0 if inside(k, x) else x


def hards(k: Arguments, x: Any) -> Any:
    return np.where((np.abs(x) <= max(k["lambd"], 0.0)) | np.isnan(k["lambd"]), 0.0, x)


def soft(k: Arguments, x: float) -> float:
    if inside(k, x):
        return 0.0
    return x - k["lambd"] if x > 0 else x + k["lambd"]


def softs(k: Arguments, x: Any) -> Any:
    less = np.sign(x) * (np.abs(x) - k["lambd"])
    hidden = (np.abs(x) <= k["lambd"]) | np.isnan(k["lambd"])
    return np.where(hidden, 0.0, less), np.where(hidden, 0.0, np.abs(x) + np.abs(k["lambd"]))


def slope(k: Arguments, g: float, x: float) -> float:
    return 0.0 if inside(k, x, -INF) else g


def slopes(k: Arguments, g: Any, x: Any) -> Any:
    away = ~((x >= -k["lambd"]) & (x <= k["lambd"])) & ~np.isnan(k["lambd"])
    return np.where(away, g, 0.0)


def by_bias(k: Arguments, x: float) -> float:
    if x > k["lambd"]:
        return x - k["bias"]
    return x + k["bias"] if x < -k["lambd"] else 0.0


def by_biases(k: Arguments, x: Any) -> Any:
    away = (x > k["lambd"]) | (x < -k["lambd"])
    size = np.abs(x) + np.abs(k["bias"])
    return np.where(away, x - np.sign(x) * k["bias"], 0.0), np.where(away, size, 0.0)


def torch_shrinks(k: Arguments, torch: Any) -> Any:
    x, lambd, bias = (k[name] for name in ("self", "lambd", "bias"))
    return torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, 0.0))


def forward(name: str, step: Any, steps: Any, wrong: tuple[Invalid, ...], **more: Any) -> Any:
    return elementwise(
        f"aclnn{name}",
        prototype="const aclTensor* self, const aclScalar* lambd, aclTensor* out",
        inputs=(shared.numbers(1.5, 0.5, -0.5),),
        output=Out("out", "self", "self"),
        scalar=step,
        vector=steps,
        kernel=dtype_of("self"),
        npu=aten(name.lower(), "self", "lambd"),
        torch=lambda k, torch: getattr(torch.nn.functional, name.lower())(k["self"], k["lambd"])
        if k["lambd"] >= 0 else None,
        mixed=(*shared.converted(*PAIRS_OF_FLOATS), *NUMBERS),
        edges=(shared.edges(0.25, -0.25),),
        invalid=(
            *defects.nulls("self", "lambd", "out"),
            *defects.no_bfloat16("self", "out"),
            *defects.dtypes("self", "out"),
            *shared.shapes_of("out"),
            *shared.too_many_dimensions(),
            *wrong,
        ),
        **COMMON,
        **more,
    )  # fmt: skip


def backward(name: str, spelled: str, wrong: tuple[Invalid, ...], **more: Any) -> Any:
    return elementwise(
        f"aclnn{name}Backward",
        prototype=f"const aclTensor* gradOutput, const aclTensor* self, const aclScalar* {spelled},"
        " aclTensor* gradInput",
        renamed={"lambda": "lambd"},
        inputs=(In("grad_output", normal()),
                In("self", mixed(normal(1.5), choice(0.0, 0.5, -0.5), 0.1))),
        output=Out("grad_input", lambda k: k.shape(*BOTH), promotion(*BOTH)),
        scalar=slope,
        vector=slopes,
        space=BOTH,
        kernel=promotion(*BOTH),
        cost=0,
        npu=aten(f"{name.lower()}_backward", *_npu.BOTH, "lambd"),
        torch=lambda k, torch: getattr(torch.ops.aten, f"{name.lower()}_backward")(
            *(k[each] for each in BOTH), k["lambd"]) if k["lambd"] >= 0 else None,
        mixed=(*mixed_floats(*BOTH, output="grad_input"), *NUMBERS),
        edges=(crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, INF, NAN),
            "self": (0.0, -0.0, 0.5, -0.5, 0.75, -0.75, 0.25, INF, -INF, NAN),
        }),),
        invalid=(
            *defects.nulls(*BOTH, "lambd", "grad_input"),
            *defects.dtypes(*TENSORS),
            *defects.no_bfloat16(*TENSORS),
            *defects.ranks(*TENSORS),
            *wrong,
        ),
        **COMMON,
        **more,
    )  # fmt: skip


STRETCH = (
    *defects.shapes("grad_output", (5, 3), blames=BOTH),
    *defects.shapes("self", (5, 3), blames=BOTH),
    *defects.shapes("grad_input", (4, 3), (1, 3, 4), (1, 4)),
)
BELOW = defects.values("lambd", -0.5)

SHRINK = elementwise(
    "aclnnShrink",
    prototype="const aclTensor* self, const aclScalar* lambd, const aclScalar* bias,"
    " aclTensor* out",
    takes=on((*WITH_BFLOAT16, "Ascend310P"), FLOAT, FLOAT16),
    inputs=(shared.numbers(1.5, 0.5, -0.5),),
    output=Out("out", "self", "self"),
    scalar=by_bias,
    vector=by_biases,
    dtypes=(FLOAT, FLOAT16),
    kernel=dtype_of("self"),
    npu="torch_npu has no function for it",
    torch=torch_shrinks,
    attributes={"lambd": (0.5, 0.0), "bias": (0.25, 0.0, -0.75)},
    faint=COMMON["faint"],
    rank_shapes=(*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3)),  # no rank is too high
    mixed=(
        *shared.converted((FLOAT, FLOAT16), (FLOAT16, FLOAT)),
        *NUMBERS,
        *(
            Setup(f"bias-{name}", attributes={"bias": given})
            for name, given in (("integer", Scalar(INT32, 1)), ("short", Scalar(BF16, 0.3)))
        ),
    ),
    edges=(
        shared.edges(0.25, -0.25),
        *(shared.edges(attributes={"bias": bias}) for bias in (INF, NAN, 300.0)),
    ),
    invalid=(
        *defects.nulls("self", "lambd", "bias", "out"),
        *(
            row
            for name in shared.TENSORS
            for found in (DOUBLE, BF16)
            for row in defects.dtypes(name, found=found)
        ),
        *shared.shapes_of("self"),
        COMPLEX,
        Invalid("complex-bias", {"bias": Scalar(COMPLEX64, 1)}, ("bias",), DTypeError),
        *BELOW,
        Invalid("format-self-alone", {"self": {"format": Format.NCHW}}, ("self",), FormatError),
        Invalid("format-out-alone", {"out": {"format": Format.NHWC}}, ("self",), FormatError),
    ),
)  # fmt: skip

SHRINKS = (
    forward("Hardshrink", hard, hards, (COMPLEX,), cost=0, reductions=NEGATIVE),
    forward("Softshrink", soft, softs, (COMPLEX, *BELOW)),
    backward(
        "Hardshrink", "lambd", (COMPLEX, *STRETCH), reductions=NEGATIVE, empty_before=STRETCH[0].row
    ),
    backward("Softshrink", "lambda", (*STRETCH, COMPLEX, *BELOW)),
)
