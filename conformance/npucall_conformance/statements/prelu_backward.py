"""aclnnPreluBackward [src:prelu]: two outputs."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall.tensors import Shape
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import gradient
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import mixed, normal, uniform
from npucall_conformance.stating.npu import autograd
from npucall_conformance.stating.parts import HALFWAY, Attributes, In, Out, Setup, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self", "weight")
OUTPUTS = ("grad_input", "grad_weight")
NAN, INF = reals.NAN, reals.INFINITY


def channels(shape: Shape) -> int:
    return shape[1] if len(shape) > 1 else 1


def slopes_shape(k: Arguments) -> Shape:
    """One element keeps its shape; more of them are a list."""
    count = int(k["weight"].size)
    return k["weight"].shape if count == 1 else (count,)


def loops(k: Arguments) -> dict[str, Any]:
    shape = k["self"].shape
    upstream = np.broadcast_to(k["grad_output"], shape).reshape(-1).tolist()
    inputs, slopes = k["self"].reshape(-1).tolist(), k["weight"].reshape(-1).tolist()
    behind = prod(shape[2:])
    grad_input: list[float] = []
    terms: list[list[float]] = [[] for _ in slopes]
    for position, (g, x) in enumerate(zip(upstream, inputs, strict=True)):
        channel = 0 if len(slopes) == 1 else position // behind % len(slopes)
        grad_input.append(g if x > 0 else g * slopes[channel])
        if not x > 0:
            terms[channel].append(g * x)
    sums = [reals.total(each) for each in terms]
    return {
        "grad_input": np.reshape(grad_input, shape),
        "grad_weight": np.reshape(sums, slopes_shape(k)),
    }


def arrays(k: Arguments) -> dict[str, Terms]:
    x = k["self"]
    shape, count = x.shape, k["weight"].size
    table = (shape[0] if shape else 1, channels(shape), prod(shape[2:]))
    x = x.reshape(table)
    g = np.broadcast_to(k["grad_output"], shape).reshape(table)
    slopes = np.where(x > 0, 1.0, k["weight"].reshape(1, -1, 1))
    grad_input = np.where(x > 0, g, g * slopes).reshape(shape)
    products = g * x
    products[x > 0] = 0
    axes = (0, 1, 2) if count == 1 else (0, 2)
    summed = max(prod(shape) // max(count, 1), 1)
    sums, sizes = (part.sum(axes).reshape(slopes_shape(k)) for part in (products, abs(products)))
    return {"grad_input": Terms(grad_input), "grad_weight": Terms(sums, sizes, summed)}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"grad_output": base, "self": base, "weight": (channels(base),)}


def torch_says(k: Arguments, torch: Any) -> Any:
    if k["weight"].ndim != 1:
        return None
    prelu, x, w, g = torch.nn.functional.prelu, k["self"], k["weight"], k["grad_output"]
    return {
        "grad_input": gradient(torch, lambda at: prelu(at, w), x, g),
        "grad_weight": gradient(torch, lambda at: prelu(x, at), w, g),
    }


G_EDGES = (1.0, 0.0, -2.0, 300.0, INF, NAN)
X_EDGES = (0.0, -0.0, 1.5, -1.5, -300.0, 1e-4, INF, -INF, NAN)
W_EDGES = (0.25, 0.0, -1.0, INF, NAN)
EDGES = tuple(zip(*product(G_EDGES, X_EDGES, W_EDGES), strict=True))
"""Each in a channel of its own, so that no sum mixes them."""

SMALLER = {"scalar": (), "one": (1,), "row": (4,), "column": (3, 1), "flat": (1, 4)}
"""Shapes of gradients that broadcast to (3, 4)."""

PRELU_BACKWARD = Statement(
    "aclnnPreluBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* weight, "
        "aclTensor* gradInput, aclTensor* gradWeight"
    ),
    takes=FLOATS_EVERYWHERE,
    kernel_said=dtype_of("self"),
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(
        In("grad_output", normal()),
        In("self", normal()),
        In("weight", mixed(uniform(0.1, 0.5), normal())),
    ),
    outputs=(
        Out("grad_input", shape="self", dtype="self"),
        Out("grad_weight", shape=slopes_shape, dtype="self"),
    ),
    loops=loops,
    arrays=arrays,
    cost=0,
    shapes=shapes,
    npu=autograd(_npu.prelu, ("self", "weight"), "grad_output"),
    torch=torch_says,
    large_shape=(331, 7, 47),
    large=(Setup("many-rows", (50_021, 2)), Setup("many-channels", (2, 50_021)),
           Setup("one-channel", (50_021, 1, 2)), Setup("no-channel", (100_003,)),
           Setup("dimensions", (7, 11, 37, 41)),
           Setup("grad_output-row", (331, 307), {"grad_output": (307,)}),
           Setup("grad_output-column", (331, 307), {"grad_output": (331, 1)}),
           Setup("grad_output-scalar", (331, 307), {"grad_output": ()})),
    sized=lambda count: (max(count // 12, 1), 4, 3),
    broadcast=(
        *(
            Setup(f"grad_output-{note}", (3, 4), {"grad_output": shape})
            for note, shape in SMALLER.items()
        ),
        *(
            Setup(f"one-weight-{len(shape)}", base, {"weight": shape})
            for base in ((3, 4), (2, 3, 5), (6,), ())
            for shape in ((), (1,), (1, 1))
        ),
        Setup("weight-column", (2, 4, 3), {"weight": (4, 1)}),
        Setup("weight-square", (2, 4, 3), {"weight": (2, 2)}),
        Setup("long-sum", (33, 2, 65), {"grad_output": (1, 2, 1)}),
        Setup("longer-sum", (33, 2, 65), {"weight": (1,)}),
    ),
    edges=(
        Setup(
            base=(1, len(EDGES[0])),
            values={
                "grad_output": np.array([EDGES[0]]), "self": np.array([EDGES[1]]),
                "weight": np.array(EDGES[2]),
            },
        ),
        Setup(
            "opposite-infinities",
            base=(2, 1),
            values={"grad_output": [[1.0], [-1.0]], "self": [[-INF], [-INF]], "weight": [0.5]},
        ),
    ),
    halfway=halfway({"grad_output": HALFWAY, "self": -1.0, "weight": np.array([1.5])}),
    invalid=(
        *defects.nulls(*INPUTS, *OUTPUTS),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("grad_output", "weight", *OUTPUTS, found=FLOAT16),
        *defects.ranks(*INPUTS, *OUTPUTS),
        *defects.shapes("grad_input", (4, 3), (4,), (1, 3, 4)),
        *defects.shapes("weight", (3,), (0,), (2, 4), blames=("weight", "self")),
        *defects.shapes("grad_weight", (1,), (3,), (4, 1), ()),
        *defects.shapes("grad_output", (5, 3), (3,), (2, 3, 4)),
    ),
)  # fmt: skip
