"""aclnnPrelu [src:prelu]."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import mixed, normal, uniform
from npucall_conformance.stating.parts import (
    HALFWAY,
    Attributes,
    In,
    Out,
    Setup,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

TENSORS = ("self", "weight", "out")
NAN, INF = reals.NAN, reals.INFINITY


def channels(shape: Shape) -> int:
    return shape[1] if len(shape) > 1 else 1


def loops(k: Arguments) -> Any:
    shape = k["self"].shape
    slopes, behind = k["weight"].reshape(-1).tolist(), prod(shape[2:])
    result = []
    for position, x in enumerate(k["self"].reshape(-1).tolist()):
        channel = 0 if len(slopes) == 1 else position // behind % len(slopes)
        result.append(x if x > 0 else slopes[channel] * x)
    return np.reshape(result, shape)


def arrays(k: Arguments) -> Terms:
    x = k["self"]
    table = x.reshape(x.shape[0] if x.ndim else 1, channels(x.shape), prod(x.shape[2:]))
    factors = np.where(table > 0, 1.0, k["weight"].reshape(1, -1, 1))
    return Terms((table * factors).reshape(x.shape))


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"self": base, "weight": (channels(base),)}


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.nn.functional.prelu(k["self"], k["weight"].reshape(-1))


EDGES = tuple(zip(*product(
    (0.0, -0.0, 1.5, -1.5, -300.0, 1e-4, INF, -INF, NAN), (0.25, 0.0, -1.0, INF, NAN)
), strict=True))  # fmt: skip
"""Each in a channel of its own."""

PRELU = Statement(
    "aclnnPrelu",
    prototype="const aclTensor* self, const aclTensor* weight, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("self", normal()), In("weight", mixed(uniform(0.1, 0.5), normal()))),
    outputs=(Out("out", shape="self", dtype=promotion("self", "weight")),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=promotion("self", "weight"),
    cost=0,
    npu=_npu.prelu,
    torch=torch_says,
    large_shape=(331, 7, 47),
    large=(
        Setup("many-rows", (50_021, 2)),
        Setup("many-channels", (2, 50_021)),
        Setup("one-channel", (50_021, 1, 2)),
        Setup("no-channel", (100_003,)),
        Setup("dimensions", (7, 11, 37, 41)),
    ),
    sized=lambda count: (max(count // 12, 1), 4, 3),
    broadcast=(
        *(
            Setup(f"one-weight-{len(shape)}", base, {"weight": shape})
            for base in ((3, 4), (2, 3, 5), (6,), ())
            for shape in ((), (1,), (1, 1))
        ),
        Setup("weight-column", (2, 4, 3), {"weight": (4, 1)}),
        Setup("weight-square", (2, 4, 3), {"weight": (2, 2)}),
    ),
    mixed=mixed_floats("self", "weight", output="out"),
    edges=(
        Setup(
            base=(1, len(EDGES[0])),
            values={"self": np.array([EDGES[0]]), "weight": np.array(EDGES[1])},
        ),
    ),
    halfway=halfway({"self": HALFWAY, "weight": np.array([1.5])}),
    written=written.PRELU,
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.dtypes(*TENSORS),
        *defects.no_bfloat16(*TENSORS),
        *defects.ranks(*TENSORS),
        # The step blames the tensor that it names first, self in both.
        *defects.shapes("out", (4, 3), (1, 3, 4), blames=("self",)),
        *defects.shapes("self", (4, 3)),
        *defects.shapes("weight", (3,), (0,), (2, 4), blames=("weight", "self")),
    ),
)
