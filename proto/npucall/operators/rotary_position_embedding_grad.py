"""Gradients of rotary position embedding."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import DOUBLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _rotary as shared

OUTPUTS = ("dx_out", "dcos_out", "dsin_out")


def _holds(facts: Facts, _: Mapping[str, Any]) -> int:
    """Two sums for each cosine."""
    return 2 * DOUBLE.itemsize * facts.count("cos")


@operator(
    "aclnnRotaryPositionEmbeddingGrad",
    Input("dy", "gradient with respect to the turned rows"),
    Input("cos", "cosines, which broadcast to the rows"),
    Input("sin", "sines"),
    Input("x", "the rows; without them cos and sin have no gradient", optional=True),
    shared.MODE,
    Output("dx_out", "of the rows", "dy", "dy", const=True),
    Output(
        "dcos_out", "of the cosines", "cos", "dy", const=True, asked=lambda d: not d.absent("x")
    ),
    Output("dsin_out", "of the sines", "cos", "dy", const=True, asked=lambda d: not d.absent("x")),
    products=shared.PRODUCTS,
    checks=(
        rules.present("dy", "cos", "sin", *OUTPUTS),
        rules.supported("dy"),
        rules.same_dtype("cos", "sin", "x", *OUTPUTS, as_="dy"),
        *shared.checks("dy", summed=True),
        *rules.with_status(
            TILING_ERROR,
            rules.same_shape("x", "dy"),
            rules.same_shape("dx_out", "dy"),
            rules.same_shape("dcos_out", "cos"),
            rules.same_shape("dsin_out", "cos"),
        ),
    ),
    kernel_dtype=rules.dtype_of("dy"),
    over=at_once(holds=_holds),
    sample=Sample(
        dict.fromkeys(("dy", "x"), (2, 3, 2, 4)) | dict.fromkeys(("cos", "sin"), (1, 1, 2, 4))
    ),
    area="attention",
    source="ops-transformer page aclnnRotaryPositionEmbeddingGrad",
)
def rotary_position_embedding_grad(
    facts: Facts, dy: Array, cos: Array, sin: Array, x: Array | None = None, mode: int = 0
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``rotary_position_embedding``, of ``dy`` with respect to its result.

    ::

        dx = what ``turned`` and ``partner`` make of x, backwards: of dy * cos and of dy * sin
        dcos = sum of  dy * turned(x)       over the dimensions in which cos was stretched
        dsin = sum of  dy * partner(x)

    Without ``x`` the last two are not computed, and may be null. Everything is computed in float32,
    sums of blocks in float64, and rounded once. As torch's autograd of the expression.
    """
    order, partner, sign = shared.turning(mode, dy.shape[-1])
    signs = sign.astype(facts.dtype)
    out = facts.output("dx_out", dy.shape)
    axes = tuple(n for n, extent in enumerate(cos.shape[:-1]) if extent == 1)
    sums = np.zeros(cos.shape), np.zeros(cos.shape)

    def compute(index: tuple[slice, ...]) -> tuple[AnyArray, ...]:
        gradient, place = facts.read(dy, index), shared.within(cos.shape, index)
        cosines, sines = facts.read(cos, place), facts.read(sin, place) * signs
        there = facts.place("dx_out", index)
        turned = shared.put_back(gradient, order, cosines, there)
        turned += shared.put_back(gradient, partner, sines)
        if there is None:
            out[index] = turned
        if x is None:
            return ()
        row = facts.read(x, index)
        parts = (shared.picked(row, each, gradient) for each in (order, partner))
        of_cos, of_sin = (part.sum(axes, np.float64, keepdims=True) for part in parts)
        return of_cos, np.multiply(of_sin, sign, out=of_sin)

    def add(index: tuple[slice, ...], parts: tuple[AnyArray, ...]) -> None:
        for total, part in zip(sums, parts, strict=False):
            total[shared.within(cos.shape, index)] += part

    facts.each(shared.rows(dy.shape), compute, add)
    return (out, *sums) if x is not None else (out, None, None)
