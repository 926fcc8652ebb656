"""aclnnGeGlu and aclnnGeGluV3, and their gradients [src:ge-glu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, INT32
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _gelu as gelu
from npucall_conformance.statements.glu import even
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

GELUS = ((gelu.erf_gelu, gelu.erf_gelu_of), (gelu.tanh_gelu, gelu.tanh_gelu_of))
SLOPES = ((gelu.erf_form, gelu.erf_form_of), (gelu.tanh_form, gelu.tanh_form_of))
NUMBERS = (0.0, -0.0, 1.0, -0.75, 2.5, -2.5, 5.0, -8.0, 12.0, -30.0, 1e4, -1e4)
UPSTREAM = (1.0, -2.0, 0.0, 300.0)
COMMON: dict[str, Any] = {
    "takes": {**FLOATS_WITH_BFLOAT16, **on(("Ascend310P", "Ascend910"), FLOAT, FLOAT16)},
    "legacy": ("Ascend910",),
    "base_shapes": ((4, 6), (2, 6, 8), (18,), (2, 3, 4, 6)),
    "large_shape": (338, 306),
    "layout_shape": (4, 6),
    "rank_shapes": ((6,), (2, 1, 3, 1, 2, 2, 1, 2), (2, 1, 1, 1, 2, 1, 1, 2)),
    "empty_shapes": ((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    "sized": lambda count: (count + count % 2,),
    "fitted": even,
    "kernel": dtype_of("self"),
}
BAD_HALVES = (
    *defects.shapes("self", ()),
    *defects.values("dim", 2, -3),
    *defects.shapes("self", (4, 7), blames=("self", "dim")),
)


def of_both(row: str, shape: Shape, *names: str, blames: tuple[str, ...] = ()) -> Invalid:
    """Two tensors that fit each other, and not the rest."""
    changes = {name: {"shape": shape} for name in names}
    return Invalid(row, changes, blames or names[:1], ShapeError)


def half_of(shape: Shape, dim: int) -> Shape:
    halved = list(shape)
    halved[dim] //= 2
    return tuple(halved)


def left(k: Arguments | Attributes) -> bool:
    return "activate_left" in (k.values if isinstance(k, Arguments) else k) and k["activate_left"]


def halves(k: Arguments, x: Any) -> tuple[Any, Any]:
    """What is activated, and what it multiplies."""
    half = np.shape(x)[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return (first, second) if left(k) else (second, first)


def row(k: Arguments, x: list[float]) -> dict[str, list[float]]:
    z, y = (part.tolist() for part in halves(k, np.array(x)))
    found = [GELUS[k["approximate"]][0](each) for each in z]
    return {"out": [a * b for a, b in zip(y, found, strict=True)], "out_gelu": found}


def vector(k: Arguments, x: Any) -> dict[str, Any]:
    z, y = halves(k, x)
    value, size = GELUS[k["approximate"]][1](z)
    return {"out": (value * y, size * np.abs(y)), "out_gelu": (value, size)}


def grad_row(k: Arguments, g: list[float], x: list[float], gelu: list[float]) -> list[float]:
    z, y = (part.tolist() for part in halves(k, np.array(x)))
    form = SLOPES[k["approximate"]][0]
    linear = [a * b for a, b in zip(g, gelu, strict=True)]
    active = [a * b * form(c) for a, b, c in zip(g, y, z, strict=True)]
    return active + linear if left(k) else linear + active


def grad_vector(k: Arguments, g: Any, x: Any, gelu: Any) -> tuple[Any, Any]:
    z, y = halves(k, x)
    step, slope = SLOPES[k["approximate"]][1](z)
    active, size = g * (step + slope) * y, np.abs(g * y) * (step + np.abs(slope))
    parts = ((active, size), (gelu * g, np.abs(gelu * g)))
    value, sizes = zip(*(parts if left(k) else parts[::-1]), strict=True)
    return np.concatenate(value, -1), np.concatenate(sizes, -1)


def torch_says(k: Arguments, torch: Any) -> dict[str, Any]:
    pair = k["self"].chunk(2, k["dim"])
    z, y = pair if left(k) else pair[::-1]
    found = gelu.torch_gelu(z, torch, ("none", "tanh")[k["approximate"]])
    return {"out": y * found, "out_gelu": found}


def torch_gradient(k: Arguments, torch: Any) -> Any:
    pair = k["self"].chunk(2, k["dim"])
    z, y = pair if left(k) else pair[::-1]
    z = z.detach().clone().requires_grad_()
    found = gelu.torch_gelu(z, torch, ("none", "tanh")[k["approximate"]])
    (slope,) = torch.autograd.grad(found, z, k["grad_output"] * y)
    parts = (slope, k["grad_output"] * k["gelu"])
    return torch.cat(parts if left(k) else parts[::-1], k["dim"])


def activated(draw: Draw) -> Any:
    """About what the forward operator gives."""
    return np.maximum(draw.random.normal(0, 1, draw.shape), -0.17)


def attributes(version: str) -> dict[str, Any]:
    """Of both versions; the third says which half is activated."""
    named = {"dim": (-1, 0, lambda base: len(base) // 2), "approximate": (0, 1)}
    return {**named, "activate_left": (False, True)} if version else named


def forward(version: str) -> Statement:
    flag = "bool activateLeft, " if version else ""
    return rowwise(
        f"aclnnGeGlu{version}",
        prototype=f"const aclTensor* self, int64_t dim, int64_t approximate, {flag}"
        "aclTensor* out, aclTensor* outGelu",
        inputs=(In("self", normal(2.0)),),
        output=tuple(
            Out(name, lambda k: half_of(k["self"].shape, k["dim"]), "self")
            for name in ("out", "out_gelu")
        ),
        row=row,
        vector=vector,
        torch=torch_says,
        npu="torch_npu calls it in npu_geglu, where the suite does not look",
        defaults={"dim": -1, "approximate": 1, **({"activate_left": False} if version else {})},
        attributes=attributes(version),
        edges=(Setup("halves", (24,), values={"self": NUMBERS + NUMBERS[::-1]},
                     attributes={"dim": 0}),),
        empty_spares=("dtype-float16",),
        invalid=(
            *defects.nulls("self", "out", "out_gelu"),
            *defects.dtypes("self", "out", "out_gelu", found=INT32),
            *defects.no_bfloat16("self", "out", "out_gelu"),
            *defects.dtypes("out", "out_gelu", found=FLOAT16),
            *defects.ranks("self", "out", "out_gelu"),
            *BAD_HALVES,
            *defects.shapes("out", (4, 6), (2, 6), (3,), (1, 4, 3)),
            *defects.shapes("out_gelu", (4, 6), (2, 6), (3,), (1, 4, 3)),
            *defects.values("approximate", 2, -1),
        ),
        **COMMON,
    )  # fmt: skip


def backward(version: str) -> Statement:
    flag = "bool activateLeft, " if version else ""

    def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
        return {"self": base, **dict.fromkeys(("grad_output", "gelu"), half_of(base, given["dim"]))}

    return rowwise(
        f"aclnnGeGlu{version}Backward",
        prototype="const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gelu, "
        f"int64_t dim, int64_t approximate, {flag}aclTensor* gradInput",
        inputs=(In("grad_output", normal()), In("self", normal(2.0)), In("gelu", activated)),
        output=Out("grad_input", "self", "self"),
        row=grad_row,
        vector=grad_vector,
        shapes=shapes,
        torch=torch_gradient,
        npu="torch_npu calls it in the gradient of npu_geglu, where the suite does not look",
        defaults={"dim": -1, "approximate": 1, **({"activate_left": False} if version else {})},
        attributes=attributes(version),
        edges=(Setup("halves", (24,), values={
            "self": NUMBERS + NUMBERS[::-1], "grad_output": UPSTREAM * 3, "gelu": NUMBERS,
        }, attributes={"dim": 0}),),
        invalid=(
            *defects.nulls("grad_output", "self", "gelu", "grad_input"),
            *defects.dtypes("grad_output", found=INT32),
            *defects.no_bfloat16("grad_output"),
            *defects.dtypes("self", "gelu", "grad_input", found=FLOAT16),
            *defects.shapes("gelu", (4, 6), (3,), (1, 4, 3)),
            *defects.shapes("grad_input", (6, 4), (4, 3), (1, 4, 6)),
            of_both("self-of-no-dimension", (), "self", "grad_input"),
            *defects.values("dim", 2, -3),
            of_both("odd-self", (4, 7), "self", "grad_input", blames=("self", "dim")),
            of_both("whole-gradient", (4, 6), "grad_output", "gelu"),
            *defects.values("approximate", 2, -1),
        ),
        **COMMON,
    )  # fmt: skip


GE_GLU = tuple(make(version) for make in (forward, backward) for version in ("", "V3"))
