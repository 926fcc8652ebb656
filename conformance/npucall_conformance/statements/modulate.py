"""aclnnModulate and aclnnModulateBackward [src:modulate]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, INT32
from npucall.errors import ArgumentMissingError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
PAIR = ("scale", "shift")
SUMS = ("grad_scale", "grad_shift")
COMMON: dict[str, Any] = {
    "takes": FLOATS_WITH_BFLOAT16,
    "legacy": (),
    "npu": "torch_npu has no function for it",
    "base_shapes": ((2, 4, 6), (3, 5, 7), (1, 3, 1), (4, 1, 5)),
    "layout_shape": (2, 3, 4),
    "rank_shapes": ((1, 1, 1),),
    "empty_shapes": ((0, 3, 4), (2, 3, 0)),
    "empty_spares": ("tokenless",),
    "sized": lambda count: (max(count // 32, 1), 4, 8),
    "large_shape": (31, 47, 71),
    "large": (
        Setup("many-rows", (12_007, 3, 3)),
        Setup("long-rows", (2, 3, 17_011)),
        Setup("one-sequence", (1, 33_017, 3)),
    ),
}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    names = ("self", "grad_output", "input")
    return {**dict.fromkeys(names, base), **dict.fromkeys(PAIR, (base[0], base[2]))}


def of(*names: str) -> Any:
    """The shapes of these inputs."""
    return lambda base, given: {n: s for n, s in shapes(base, given).items() if n in names}


def rows(k: Arguments, name: str) -> Any:
    """What each sequence has, (B, D)."""
    return k[name].reshape(k[name].shape[0], k[name].shape[-1])


def no_tokens(name: str, *like: str, blames: str = "scale") -> Invalid:
    """One sequence has tokens no more, what it is scaled with is as it was."""
    changes: dict[str, Any] = {each: {"shape": (2, 0, 4)} for each in like}
    if blames == "shift":
        changes["scale"] = {"shape": (2, 0)}
    return Invalid(name, changes, (blames,), ShapeError)


def loops(k: Arguments) -> Any:
    scale, shift = (rows(k, name).tolist() for name in PAIR)
    return [
        [
            [x * (1 + scale[b][d]) + shift[b][d] for d, x in enumerate(token)]
            for token in sequence
        ]
        for b, sequence in enumerate(k["self"].tolist())
    ]  # fmt: skip


def arrays(k: Arguments) -> Terms:
    x = k["self"]
    scale, shift = (rows(k, name)[:, np.newaxis] for name in PAIR)
    return Terms(x * (1 + scale) + shift, np.abs(x) * (1 + np.abs(scale)) + np.abs(shift))


MODULATE = Statement(
    "aclnnModulate",
    prototype=(
        "const aclTensor* self, const aclTensor* scaleOptional, const aclTensor* shiftOptional, "
        "aclTensor* out"
    ),
    inputs=(In("self", normal()), In("scale", normal()), In("shift", normal())),
    outputs=(Out("out", "self", "self"),),
    loops=lambda k: np.reshape(loops(k), k["self"].shape),
    arrays=arrays,
    shapes=of("self", *PAIR),
    kernel=dtype_of("self"),
    torch=lambda k, torch: k["self"] * (1 + torch.as_tensor(rows(k, "scale")).unsqueeze(1))
    + torch.as_tensor(rows(k, "shift")).unsqueeze(1),
    **COMMON,
    broadcast=(
        Setup("three-dimensions", (2, 4, 6), shapes=dict.fromkeys(PAIR, (2, 1, 6))),
        Setup("one-of-three", (1, 4, 6), shapes={"shift": (1, 1, 6)}),
    ),
    edges=(
        Setup("numbers", (1, 2, 4), values={
            "self": [[[1.0, INF, 0, 3], [NAN, 2, -1, 6e4]]], "scale": [[-1.0, 1, INF, 1]],
            "shift": [[0.5, -INF, 1, 6e4]]}),
    ),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out", "scale", found=DOUBLE),
        *defects.dtypes("scale", found=FLOAT16),
        *defects.dtypes("shift", found=INT32),
        *defects.dtypes("shift", "out", found=FLOAT16),
        *(Invalid(f"no-{n}", {n: None}, (n,), ArgumentMissingError) for n in PAIR),
        *defects.shapes("self", (3, 4), (2, 3, 1, 4)),
        *defects.ranks("self"),
        no_tokens("tokenless", "self"),
        no_tokens("tokenless-shift", "self", blames="shift"),
        *defects.shapes("out", (2, 4, 3), (3, 4)),
        *(
            row
            for name in PAIR
            for row in (
                *defects.shapes(name, (4,), (2, 1, 1, 4)),
                *defects.ranks(name),
                *defects.shapes(name, (2, 3), (3, 4), (2, 3, 4), (1, 1, 4)),
            )
        ),
    ),
)  # fmt: skip


def gradient_loops(k: Arguments) -> dict[str, Any]:
    scale, x, upstream = k["scale"].tolist(), k["input"].tolist(), k["grad_output"].tolist()
    found: dict[str, Any] = {name: [] for name in ("grad_input", *SUMS)}
    for b, sequence in enumerate(upstream):
        found["grad_input"].append(
            [[g * s for g, s in zip(token, scale[b], strict=True)] for token in sequence]
        )
        width = range(k["scale"].shape[1])
        for name, factors in (("grad_scale", x[b]), ("grad_shift", None)):
            columns = [
                [token[d] * (factors[i][d] if factors else 1) for i, token in enumerate(sequence)]
                for d in width
            ]
            found[name].append([reals.total(column) for column in columns])
    of_tokens = np.reshape(found.pop("grad_input"), k["input"].shape)
    return {"grad_input": of_tokens, **{n: np.reshape(found[n], k["scale"].shape) for n in found}}


def gradient_arrays(k: Arguments) -> dict[str, Terms]:
    grad, products = k["grad_output"], k["grad_output"] * k["input"]
    tokens = grad.shape[1]
    return {
        "grad_input": Terms(grad * k["scale"][:, np.newaxis]),
        "grad_scale": Terms(products.sum(1), np.abs(products).sum(1), summed=tokens),
        "grad_shift": Terms(grad.sum(1), np.abs(grad).sum(1), summed=tokens),
    }


def torch_gradient(k: Arguments, torch: Any) -> Any:
    del torch
    of_scale = (k["grad_output"] * k["input"]).sum(1)
    return {
        "grad_input": k["grad_output"] * k["scale"].unsqueeze(1),
        "grad_scale": of_scale,
        "grad_shift": k["grad_output"].sum(1),
    }


MODULATE_BACKWARD = Statement(
    "aclnnModulateBackward",
    prototype=(
        "const aclTensor* grad_output, const aclTensor* input, const aclTensor* scale, "
        "const aclTensor* shift, const aclTensor* grad_input, const aclTensor* grad_scale, "
        "const aclTensor* grad_shift"
    ),
    inputs=(
        In("grad_output", normal()),
        In("input", normal()),
        In("scale", normal()),
        In("shift", normal(), read=False),
    ),
    outputs=(
        Out("grad_input", "input", "grad_output"),
        *(Out(name, "scale", "grad_output", optional=True) for name in SUMS),
    ),
    loops=gradient_loops,
    arrays=gradient_arrays,
    shapes=of("grad_output", "input", *PAIR),
    kernel=dtype_of("grad_output"),
    torch=torch_gradient,
    **COMMON,
    edges=(
        Setup("numbers", (1, 2, 4), values={
            "grad_output": [[[1.0, INF, 0, 3], [NAN, 2, -1, 6e4]]], "scale": [[0.0, 1, INF, 2]],
            "input": [[[1.0, 2, INF, -3], [1, -INF, 1, 6e4]]]}),
        Setup("equal", (1, 2003, 3), values={
            "grad_output": [[[0.7, 0.1, 0.3]] * 2003], "input": [[[0.1, 1 / 3, 2]] * 2003]}),
    ),
    invalid=(
        *defects.nulls("grad_output", "input", "grad_input", *PAIR),
        *defects.dtypes("grad_output", "input", *PAIR, *SUMS, "grad_input", found=DOUBLE),
        *defects.dtypes("input", *PAIR, *SUMS, "grad_input", found=FLOAT16),
        *defects.shapes("grad_output", (3, 4)),
        *defects.ranks("grad_output"),
        *defects.shapes("input", (3, 4)),
        *defects.ranks("input"),
        no_tokens("tokenless", "grad_output", "input"),
        no_tokens("tokenless-input", "input"),
        no_tokens("tokenless-shift", "grad_output", "input", blames="shift"),
        *(
            row
            for name in PAIR
            for row in (
                *defects.shapes(name, (4,), (2, 1, 4)),
                *defects.shapes(name, (2, 3), (3, 4)),
            )
        ),
        *defects.shapes("input", (2, 4, 4), (2, 3, 1)),
        *defects.shapes("grad_input", (2, 4, 3), (24,)),
        *(row for name in SUMS for row in defects.shapes(name, (4,), (2, 3), (2, 1, 4))),
    ),
)  # fmt: skip
