"""The gated linear unit with SiTU, whose numbers go through tanh; and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._glu import halved
from npucall.operators._numerics import gated, sigmoid
from npucall.products import A2, A3, ASCEND_950

X = Input("x", "along dim a half that is activated, and one that is multiplied")
ATTRIBUTES = (
    Attribute("dim", Kind.INT64, "the dimension that is halved"),
    Attribute("beta", Kind.DOUBLE, "how large an activated number can be"),
    Attribute("linear_beta", Kind.DOUBLE, "how large the other one can be; 0 or less: no limit"),
    Attribute("activate_left", Kind.BOOL, "whether the first half is activated"),
)
HALF = "that of x with half its extent along dim"
COMMON: dict[str, Any] = {
    "products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    "kernel_dtype": rules.dtype_of("x"),
    "area": "activations",
}


def limited(x: AnyArray, limit: float) -> tuple[AnyArray, AnyArray | int]:
    """``limit * tanh(x / limit)`` and its slope; the number itself for a limit of 0 or less."""
    if not limit > 0:
        return x, 1
    part = x / x.dtype.type(limit)
    return np.tanh(part) * x.dtype.type(limit), 1 / np.cosh(part) ** 2


def parted(halves: Array, left: bool) -> tuple[AnyArray, AnyArray]:
    """What is activated, and what it is multiplied by."""
    first, second = np.asarray(halves)
    return (first, second) if left else (second, first)


@operator(
    "aclnnSituGlu",
    X,
    *ATTRIBUTES,
    Output("out", "the product", shape="half", dtype="x", const=True),
    checks=(
        rules.present("x", "out"),
        rules.supported("x"),
        rules.same_dtype("out", as_="x"),
        *rules.with_status(TILING_ERROR, *halved("x"), rules.same_shape("out", "half", HALF)),
        rules.succeed_if_empty("x"),
    ),
    over=rows("dim", halves=("x",)),
    sample=Sample({"x": (2, 6)}),
    source="ops-nn activation/situ_glu: page aclnnSituGlu, its tiling [src:situ-glu]",
    **COMMON,
)
def situ_glu(
    facts: Facts,
    x: Array,
    dim: int = -1,
    beta: float = 1.0,
    linear_beta: float = 0.0,
    activate_left: bool = True,  # in the order of C
) -> AnyArray:
    """``beta * tanh(a / beta) * sigmoid(a) * b`` of the halves of ``x`` along ``dim``.

    a is the first half and b the second; without ``activate_left`` a is the second::

        b'  = linear_beta * tanh(b / linear_beta)    where linear_beta > 0, else b
        out = beta * tanh(a / beta) * sigmoid(a) * b'

    All is computed in float32, and rounded once. With a ``beta`` of 0 the result is 0, and NaN
    where a is 0. An odd extent, and a tensor without dimensions, are refused (561002).

    As the expression in torch.
    """
    a, b = parted(x, activate_left)
    factor = a.dtype.type(beta)
    return np.multiply(
        gated(np.tanh(a / factor) * factor, a), limited(b, linear_beta)[0], out=facts.out
    )


@operator(
    "aclnnSituGluGrad",
    Input("grad_y", "gradient of the product"),
    X,
    *ATTRIBUTES,
    Output("out", "gradient of x", shape="x", dtype="x", const=True),
    checks=(
        rules.present("grad_y", "x", "out"),
        rules.supported("grad_y"),
        rules.same_dtype("x", "out", as_="grad_y"),
        *rules.with_status(
            TILING_ERROR,
            *halved("x"),
            rules.same_shape("grad_y", "half", HALF),
            rules.same_shape("out", "x"),
        ),
        rules.succeed_if_empty("x"),
    ),
    over=rows("dim", halves=("x", "out")),
    sample=Sample({"x": (2, 6)}),
    source="ops-nn activation/situ_glu_grad: page aclnnSituGluGrad, its tiling [src:situ-glu]",
    **COMMON,
)
def situ_glu_grad(
    facts: Facts,
    grad_y: Array,
    x: Array,
    dim: int = -1,
    beta: float = 1.0,
    linear_beta: float = 0.0,
    activate_left: bool = True,  # in the order of C
) -> AnyArray:
    """Gradient of ``situ_glu`` with respect to ``x``.

    With a, b and b' as there, t = tanh(a / beta) and s = sigmoid(a)::

        of a:  grad_y * b' * s * (1 - t^2 + beta * t * (1 - s))
        of b:  grad_y * beta * t * s * (1 - tanh(b / linear_beta)^2)    if linear_beta > 0
        of b:  grad_y * beta * t * s                                    otherwise

    All is computed in float32, and rounded once. The shape of ``grad_y`` is compared with that of
    ``x`` along every dimension; the operator looks at ``dim`` alone.

    As the gradient of the expression in torch.
    """
    a, b = parted(x, activate_left)
    factor = a.dtype.type(beta)
    t = np.tanh(a / factor)
    value, slope = limited(b, linear_beta)
    of_a = grad_y * value * gated((1 - t) * (1 + t) + factor * t * sigmoid(-a), a)
    of_b = grad_y * gated(factor * t, a) * slope
    return np.stack([of_a, of_b] if activate_left else [of_b, of_a])
