"""aclnnRotaryPositionEmbedding [src:rotary]."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from npucall_conformance.statements import _rotary as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import In, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16


def loops(k: Arguments) -> Any:
    x, mode = k["x"], k["mode"]
    cos, sin = (np.broadcast_to(k[name], x.shape) for name in ("cos", "sin"))
    found = np.empty(x.shape)
    width = x.shape[-1]
    for place in np.ndindex(x.shape):
        *row, j = place
        if mode == 1:
            own, other, sign = j, j + 1 - 2 * (j % 2), 2 * (j % 2) - 1
        else:
            part = width // 4 if mode == 2 else width // 2  # the page's number
            sign = 1 if j // part % 2 else -1
            own, other = j, j - sign * part
        if mode == 3:
            own, other = (2 * n if n < width // 2 else 2 * n - width + 1 for n in (own, other))
        turned, partner = float(x[(*row, own)]), sign * float(x[(*row, other)])
        found[place] = turned * float(cos[place]) + partner * float(sin[place])
    return found


def arrays(k: Arguments) -> Terms:
    one = shared.ordered(k["x"], k["mode"]) * k["cos"]
    other = shared.partners(k["x"], k["mode"]) * k["sin"]
    return Terms(one + other, np.abs(one) + np.abs(other))


def npu(given: TorchArguments) -> Any:
    mode = shared.word_of(given["mode"])
    return given.npu.npu_rotary_mul(given["x"], given["cos"], given["sin"], mode)


ROTARY_POSITION_EMBEDDING = Statement(
    "aclnnRotaryPositionEmbedding",
    (In("x", normal()), In("cos", uniform(-1, 1)), In("sin", uniform(-1, 1))),
    (Out("out", "x", "x"),),
    loops,
    arrays,
    prototype=(
        "const aclTensor* x, const aclTensor* cos, const aclTensor* sin, int64_t mode, "
        "aclTensor* out"
    ),
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={"mode": 0},
    kernel=dtype_of("x"),
    shapes=partial(shared.shapes, ("x",)),
    npu=npu,
    **shared.SIZES,
    invalid=(
        *defects.nulls("x", "cos", "sin", "out"),
        *shared.wrong("x", ("out",)),
        *defects.shapes("out", (2, 3, 2, 6), **shared.TILING),
    ),
)
