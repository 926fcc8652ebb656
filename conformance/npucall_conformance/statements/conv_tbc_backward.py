"""aclnnConvTbcBackward [src:conv-tbc]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16, FLOATS, INT32
from npucall.tensors import Format, Shape
from npucall_conformance.statements import _convolution as shared
from npucall_conformance.statements._convolution import wrong
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, on

GIVEN = ("self", "input", "weight")
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
CHANNELS = 3
"""Of the result."""


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """Base is that of the input; weights have three steps, if that is not too many."""
    time, items, channels = base
    free = time + 2 * attributes["pad"]
    kernel = min(3, free)
    return {
        "self": (free + 1 - kernel, items, CHANNELS),
        "input": base,
        "weight": (kernel, channels, CHANNELS),
        "bias": (CHANNELS,),
    }


def loops(k: Arguments) -> dict[str, Any]:
    """Each step of the result with each step of the weights, number by number."""
    g, x, w = (k[name] for name in GIVEN)
    of_x, of_w, of_bias = (np.zeros(k[name].shape) for name in ("input", "weight", "bias"))
    for t, b, o in product(*map(range, g.shape)):
        one = float(g[t, b, o])
        of_bias[o] += one
        for step, c in product(*map(range, w.shape[:2])):
            at = t + step - k["pad"]
            if 0 <= at < len(x):
                of_x[at, b, c] += one * float(w[step, c, o])
                of_w[step, c, o] += one * float(x[at, b, c])
    return dict(zip(OUTPUTS, (of_x, of_w, of_bias), strict=True))


def arrays(k: Arguments) -> dict[str, Terms]:
    pad, time = k["pad"], len(k["input"])

    def of(g: Any, x: Any, w: Any) -> tuple[Any, ...]:
        wide = np.pad(x, ((pad, pad), (0, 0), (0, 0)))
        of_wide, of_w = np.zeros(wide.shape), np.zeros(w.shape)
        for step, here in enumerate(w):
            seen = slice(step, step + len(g))
            of_wide[seen] += g @ here.T
            of_w[step] = np.tensordot(wide[seen], g, ((0, 1), (0, 1)))
        return of_wide[pad : pad + time], of_w, g.sum((0, 1))

    given = [k[name] for name in GIVEN]
    pairs = zip(of(*given), of(*map(np.abs, given)), strict=True)
    return {name: Terms(*pair) for name, pair in zip(OUTPUTS, pairs, strict=True)}


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    found = torch.ops.aten.conv_tbc_backward(
        *(k[name] for name in GIVEN), k["bias"].double(), k["pad"]
    )
    return dict(zip(OUTPUTS, found, strict=True))


CONV_TBC_BACKWARD = Statement(
    "aclnnConvTbcBackward",
    (
        *(In(name, normal()) for name in GIVEN),
        In("bias", normal(), read=False),
    ),
    (
        Out("grad_input", "input", "input"),
        Out("grad_weight", "weight", "weight", own=True),
        Out("grad_bias", "bias", "bias", own=True),
    ),
    loops,
    arrays,
    sprinkled=False,
    prototype=(
        "const aclTensor* self, const aclTensor* input, const aclTensor* weight, "
        "const aclTensor* bias, int64_t pad, int8_t cubeMathType, aclTensor* gradInput, "
        "aclTensor* gradWeight, aclTensor* gradBias"
    ),
    takes={**on(WITH_BFLOAT16, *FLOATS), **on(("Ascend910",), FLOAT, FLOAT16)},
    legacy=(),
    defaults={"pad": 0, "cube_math_type": 0},
    defaulted=Setup(only=(FLOAT16,)),
    attributes={"pad": (1, 0, 2), "cube_math_type": (1,)},
    kernel=promotion(*GIVEN),
    kernels=dict.fromkeys(("Ascend910",), shared.lowered(*GIVEN)),
    shapes=shapes,
    torch=torch_says,
    npu=aten("conv_tbc_backward", *GIVEN, "bias", "pad"),
    base_shapes=((4, 2, 3), (1, 3, 2), (7, 1, 1)),
    layout_shape=(5, 2, 4),
    rank_shapes=((2, 3, 1),),
    empty_shapes=(),
    large_shape=(307, 11, 31),
    large=(
        Setup("many-items", (3, 9_001, 4)),
        Setup("many-steps", (20_011, 2, 3)),
        Setup("many-channels", (5, 7, 3_001)),
    ),
    sized=lambda count: (max(count // 16, 1), 4, 4),
    mixed=tuple(
        Setup(dtypes={**dict.fromkeys(GIVEN, FLOAT16), name: dtype})
        for name in GIVEN
        for dtype in (FLOAT, BF16)
    ),
    empty=(
        Setup("no-channels", (4, 2, 0)),
        Setup("no-steps", (0, 2, 3), attributes={"pad": 2}),
        Setup("no-weights", (4, 2, 3),
              {"weight": (0, 3, CHANNELS), "self": (7, 2, CHANNELS)}, attributes={"pad": 1}),
    ),
    edges=(
        Setup("worked", values={
            "self": [[[1.0]], [[2.0]], [[3.0]], [[4.0]]], "input": [[[5.0]], [[6.0]], [[7.0]]],
            "weight": [[[8.0]], [[9.0]]], "bias": [0.0]}, attributes={"pad": 1}, exact=True),
        Setup("more-zeros-than-steps", (1, 2, 2), {"weight": (4, 2, CHANNELS),
              "self": (8, 2, CHANNELS)}, attributes={"pad": 5}),
    ),
    invalid=(
        *defects.nulls(*GIVEN, "bias", *OUTPUTS),
        *defects.dtypes(*GIVEN, found=INT32),
        *defects.no_bfloat16(*GIVEN),
        *defects.dtypes("bias", *OUTPUTS, found=INT32),
        *defects.no_bfloat16(*OUTPUTS),
        *defects.formats(*GIVEN, found=Format.NCHW),
        *defects.formats("bias", found=Format.NCL),
        *defects.formats(*OUTPUTS[:2], found=Format.NCHW),
        *defects.formats("grad_bias", found=Format.NCL),
        *defects.shapes("self", (0, 2, 3), (5, 0, 3), (5, 2, 0)),
        *defects.shapes("self", (10, 3)),
        *defects.shapes("input", (5, 8), (5, 2, 2, 2)),
        *defects.shapes("weight", (12, 3)),
        *defects.shapes("bias", (1, 3)),
        *defects.shapes("grad_bias", (1, 3)),
        *defects.shapes("grad_input", (10, 4)),
        *defects.shapes("grad_weight", (12, 3)),
        wrong("channels", {"input": (5, 2, 3), "grad_input": (5, 2, 3)}, "input", "weight"),
        wrong("channels-of-bias", {"bias": (2,), "grad_bias": (2,)}, "bias", "weight"),
        *defects.values("pad", -1),
        wrong("many-weights", {"weight": (9, 4, 3), "grad_weight": (9, 4, 3)}, "input", "weight"),
        *defects.shapes("self", (4, 2, 3), (5, 1, 3), (5, 2, 4)),
        *defects.shapes("grad_input", (5, 2, 3), (1, 2, 4)),
        *defects.shapes("grad_weight", (2, 4, 3), (3, 4, 1)),
        *defects.shapes("grad_bias", (2,), (1,)),
        *defects.values("cube_math_type", 4, -1),
        *defects.values("cube_math_type", 0, 3, products=("Ascend910",)),
        *defects.dtypes(*OUTPUTS, found=FLOAT16, products=ONLY_950),
    ),
)  # fmt: skip
