"""aclnnRotaryPositionEmbeddingGrad [src:rotary]."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from npucall.errors import ShapeError
from npucall_conformance.statements import _rotary as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.npu import InexpressibleError, TorchArguments
from npucall_conformance.stating.parts import In, Invalid, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

OUTPUTS = ("dx_out", "dcos_out", "dsin_out")


def summed(k: Arguments, terms: Any) -> Any:
    """Over the dimensions in which cos has 1."""
    axes = tuple(n for n, extent in enumerate(k["cos"].shape[:-1]) if extent == 1)
    return terms.sum(axes, keepdims=True)


def loops(k: Arguments) -> dict[str, Any]:
    dy, mode = k["dy"], k["mode"]
    number = np.arange(dy.shape[-1]) + 1.0
    own, other = shared.ordered(number, mode), shared.partners(number, mode)
    shape = k["cos"].shape
    found = {"dx_out": np.zeros(dy.shape), "dcos_out": np.zeros(shape), "dsin_out": np.zeros(shape)}
    for *row, j in np.ndindex(dy.shape):
        angle = (*(0 if e == 1 else n for e, n in zip(shape, row, strict=False)), j)
        g, a = float(dy[(*row, j)]), int(own[j]) - 1
        b, sign = int(abs(other[j])) - 1, float(np.sign(other[j]))
        found["dx_out"][(*row, a)] += g * float(k["cos"][angle])
        found["dx_out"][(*row, b)] += g * sign * float(k["sin"][angle])
        if k["x"] is not None:
            found["dcos_out"][angle] += g * float(k["x"][(*row, a)])
            found["dsin_out"][angle] += g * sign * float(k["x"][(*row, b)])
    return found


def arrays(k: Arguments) -> dict[str, Terms]:
    mode, dy = k["mode"], k["dy"]
    number = np.arange(dy.shape[-1]) + 1.0
    own, other = shared.ordered(number, mode), shared.partners(number, mode)
    one = (dy * k["cos"])[..., np.argsort(own)]
    two = (dy * k["sin"] * np.sign(other))[..., np.argsort(np.abs(other))]
    x = np.zeros(dy.shape) if k["x"] is None else k["x"]
    cos, sin = dy * shared.ordered(x, mode), dy * shared.partners(x, mode)
    return {
        "dx_out": Terms(one + two, np.abs(one) + np.abs(two)),
        "dcos_out": Terms(summed(k, cos), summed(k, np.abs(cos))),
        "dsin_out": Terms(summed(k, sin), summed(k, np.abs(sin))),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    """Autograd of the halves' expression."""
    if k["mode"] or k["x"] is None:
        return None
    x, cos, sin = (k[name].clone().requires_grad_() for name in ("x", "cos", "sin"))
    a, b = x.chunk(2, -1)
    result = x * cos + torch.cat([-b, a], -1) * sin
    return dict(zip(OUTPUTS, torch.autograd.grad(result, (x, cos, sin), k["dy"]), strict=True))


def npu(given: TorchArguments) -> Any:
    if given["x"] is None:
        raise InexpressibleError("npu_rotary_mul_backward needs x")
    names, mode = ("dy", "x", "cos", "sin"), shared.word_of(given["mode"])
    return given.npu.npu_rotary_mul_backward(*(given[name] for name in names), mode)


def asks(k: Arguments) -> bool:
    return k["x"] is not None


ROTARY_POSITION_EMBEDDING_GRAD = Statement(
    "aclnnRotaryPositionEmbeddingGrad",
    (
        In("dy", normal()),
        In("cos", uniform(-1, 1)),
        In("sin", uniform(-1, 1)),
        In("x", normal(), optional=True),
    ),
    (
        Out("dx_out", "dy", "dy"),
        Out("dcos_out", "cos", "dy", asked=asks),
        Out("dsin_out", "cos", "dy", asked=asks),
    ),
    loops,
    arrays,
    prototype=(
        "const aclTensor* dy, const aclTensor* cos, const aclTensor* sin, const aclTensor* x, "
        "int64_t mode, const aclTensor* dxOut, const aclTensor* dcosOut, const aclTensor* dsinOut"
    ),
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={"mode": 0},
    kernel=dtype_of("dy"),
    shapes=partial(shared.shapes, ("dy", "x")),
    torch=torch_says,
    npu=npu,
    **shared.SIZES,
    invalid=(
        *defects.nulls("dy", "cos", "sin", *OUTPUTS),
        *shared.wrong("dy", ("x", "dx_out"), ("dcos_out", "dsin_out")),
        Invalid(
            "1026-summed",
            {
                **{key: {"shape": (2, 513, 2, 4)} for key in ("dy", "x", "dx_out")},
                **{key: {"shape": (1, 1, 2, 4)} for key in ("cos", "sin", "dcos_out", "dsin_out")},
            },
            ("dy",), ShapeError, products=shared.OLDER, **shared.TILING,
        ),
        *defects.shapes("x", (2, 3, 2, 6), **shared.TILING),
        *defects.shapes("dx_out", (2, 3, 2, 6), **shared.TILING),
        *defects.shapes("dcos_out", (2, 3, 2, 4), **shared.TILING),
        *defects.shapes("dsin_out", (1, 1, 2, 2), **shared.TILING),
    ),
)  # fmt: skip
