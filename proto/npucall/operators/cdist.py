"""Distances of all pairs of two sets of points, by a p-norm; and their gradient."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf, prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape
from npucall.tensors import broadcast as common_shape

PAIR = ("x1", "x2")
FIVE = ("grad", *PAIR, "cdist", "out")
EUCLIDEAN = 2
ON: dict[str, Any] = {
    "products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    "area": "arithmetic",
    "torch": "cdist",
}
NEAR = 1e-6
"""How near to 2 ``p`` is 2 for the check of ``compute_mode``."""
_FEW = 1024
"""Elements of a block of gradients, of which each has a row of terms."""


def _batches(draft: Draft) -> Shape | None:
    """The shape that both batches of points broadcast to."""
    return common_shape(*(draft.shape(name)[:-2] for name in PAIR))


def _pairs(draft: Draft) -> Shape:
    first, second = (draft.shape(name)[-2] for name in PAIR)
    return (*(_batches(draft) or ()), first, second)


PAIRS = (
    rules.requires(
        "batches that broadcast with those of x2",
        *PAIR,
        holds=lambda draft: _batches(draft) is not None,
        found=lambda draft: f"{draft.shape('x1')} and {draft.shape('x2')}",
    ),
    rules.shape_of("x1", into="pairs", make=_pairs),
)
POINTS = rules.requires(
    "points of as many numbers as those of x1",
    "x2",
    holds=lambda draft: draft.shape("x1")[-1] == draft.shape("x2")[-1],
    found=lambda draft: f"shape {draft.shape('x2')}",
)


def _computed(facts: Facts, _: Any) -> int:
    return facts.count("pairs") * facts.shapes["x1"][-1]


def points(facts: Facts, array: Array, index: tuple[slice, ...], numbers: slice) -> AnyArray:
    """Points of a block of pairs, whose batch may be shorter: (..., points, numbers)."""
    *batch, some = index
    extents = array.shape[:-2]
    own = batch[len(batch) - len(extents) :]
    lead = (slice(0, 1) if n == 1 else place for n, place in zip(extents, own, strict=True))
    return facts.read(array, (*lead, some, numbers))


def pieces(count: int, length: int) -> Iterator[slice]:
    """Cuts a row of numbers."""
    return (slice(n, min(n + length, count)) for n in range(0, count, length))


@operator(
    "aclnnCdist",
    Input("x1", "points, (..., P, M)"),
    Input("x2", "points, (..., R, M)"),
    Attribute("p", Kind.FLOAT, "of the norm; 0 counts the numbers that differ"),
    Attribute("compute_mode", Kind.INT64, "2 if p is 2; has no effect", c_name="compute_mode"),
    Output("out", "the distance of each pair, (..., P, R)", "pairs", "x1"),
    checks=(
        rules.present("x1", "x2", "out"),
        rules.supported("x1", "x2", "out"),
        rules.same_dtype("out", "x2", as_="x1"),
        rules.rank_at_most(8, "x1", "x2", "out"),
        *(rules.rank_is(name, *range(2, 9)) for name in (*PAIR, "out")),
        POINTS,
        rules.not_negative("p"),
        rules.when(
            lambda draft: abs(draft.attribute("p") - EUCLIDEAN) < NEAR,
            rules.one_of("compute_mode", 2),
            "if p is 2",
        ),
        *PAIRS,
        rules.same_shape("out", "pairs", "(..., P, R)"),
        rules.succeed_if_empty("x1", "x2"),
    ),
    kernel_dtype=rules.dtype_of("x1"),
    over=at_once(computes=_computed),
    sample=Sample({"x1": (2, 3, 4), "x2": (2, 5, 4)}),
    source="ops-math math/cdist: page aclnnCdist, its checks [src:cdist]",
    **ON,
)
def cdist(facts: Facts, x1: Array, x2: Array, p: float = 2.0, compute_mode: int = 2) -> AnyArray:
    """Distances of each point of ``x1`` from each of ``x2``.

    With d = x1[i] - x2[j], over the M numbers of a point::

        out[i, j] = sum(|d|^p)^(1/p)
        out[i, j] = max(|d|)             if p is infinite
        out[i, j] = number of d != 0     if p is 0

    Batches in front of the points broadcast. All is computed in float64 and rounded once. Without
    numbers (M = 0) distances are 0. ``compute_mode`` must be 2 if ``p`` is 2.

    As ``torch.cdist``.
    """
    del compute_mode
    shape, count = facts.shapes["pairs"], x1.shape[-1]
    out = facts.output("out", shape)
    length = min(count, BLOCK)

    def compute(index: tuple[slice, ...]) -> None:
        *batch, first, second = index

        def apart() -> Iterator[AnyArray]:
            for numbers in pieces(count, length):
                one = points(facts, x1, (*batch, first), numbers)[..., :, np.newaxis, :]
                other = points(facts, x2, (*batch, second), numbers)[..., np.newaxis, :, :]
                yield np.abs(np.subtract(one, other, dtype=np.float64))

        out[index] = norm(apart, p)

    facts.each(cut(shape, max(BLOCK // max(length, 1), 1)), compute)
    return out


def norm(apart: Any, p: float) -> AnyArray:
    """The norm along the last axis of numbers, which come in pieces, as often as they are asked."""

    def total(of: Any) -> Any:
        return sum(np.add.reduce(of(each), -1) for each in apart())

    def largest() -> Any:
        found = None
        for each in apart():
            most = np.maximum.reduce(each, -1)
            found = most if found is None else np.maximum(found, most)
        return found

    if p == 0:
        return total(lambda d: np.not_equal(d, 0).astype(d.dtype))
    if p == 1:
        return total(lambda d: d)
    if p == EUCLIDEAN:
        return np.sqrt(total(np.square))
    most = largest()
    if isinf(p):
        return most
    unit = np.where((most > 0) & (most < np.inf), most, 1)
    parts = total(lambda d: (d / unit[..., np.newaxis]) ** p)
    return unit * parts ** (1 / p)


@operator(
    "aclnnCdistBackward",
    Input("grad", "gradient of the distances, (..., P, R)"),
    Input("x1", "points, (..., P, M)"),
    Input("x2", "points, (..., R, M)"),
    Input("cdist", "the distances, as Cdist gives them"),
    Attribute("p", Kind.FLOAT, "of the norm; -1 is infinity"),
    Output("out", "gradient of x1", "x1", "x1"),
    checks=(
        rules.present(*FIVE),
        rules.supported(*FIVE),
        rules.same_dtype(*FIVE[1:], as_="grad"),
        rules.rank_is("grad", *range(2, 8)),
        rules.same_rank(*FIVE[1:], as_="grad"),
        POINTS,
        *PAIRS,
        rules.requires(
            "the batch that both have: that of x2 may be shorter",
            *PAIR,
            holds=lambda draft: draft.shape("x1")[:-2] == draft.shape("pairs")[:-2],
            found=lambda draft: f"{draft.shape('x1')} and {draft.shape('x2')}",
        ),
        rules.same_shape("cdist", "pairs", "(..., P, R)"),
        rules.same_shape("grad", "cdist"),
        rules.same_shape("out", "x1"),
        rules.value_fits("0 or more, or -1", "p", lambda p: p >= 0 or p == -1),
        rules.succeed_if_empty("grad", "x1", "x2", "cdist"),
    ),
    kernel_dtype=rules.dtype_of("grad"),
    over=at_once(computes=_computed),
    sample=Sample({**dict.fromkeys(("grad", "cdist"), (2, 3, 5)),
                   "x1": (2, 3, 4), "x2": (2, 5, 4)}),
    source="ops-math math/cdist_grad: page aclnnCdistBackward, its checks and kernels [src:cdist]",
    **ON,
)  # fmt: skip
def cdist_backward(
    facts: Facts, grad: Array, x1: Array, x2: Array, cdist: Array, p: float = 2.0
) -> AnyArray:
    """Gradient of ``cdist`` with respect to ``x1``.

    With d = x1[i] - x2[j], over all points j of ``x2``::

        out[i] = sum of grad * sign(d) * (|d| / cdist)^(p - 1)
        out[i] = sum of grad * sign(d) where |d| = cdist          if p is -1 or infinite
        out[i] = 0                                                if p is 0

    Terms whose distance is 0 are 0, and so are those with d = 0. All is computed in float32, sums
    in float64, and rounded once; |d| and ``cdist`` are compared as they are, so of FLOAT16 and BF16
    those pairs count whose difference has no more digits. The gradient of ``x2`` is that with both
    sets exchanged, and ``grad`` and ``cdist`` transposed. A batch of ``x1`` that broadcasts is
    refused.

    As the gradient of ``torch.cdist``.
    """
    out = facts.output("out", x1.shape)
    count = x2.shape[-2]

    def compute(index: tuple[slice, ...]) -> None:
        *batch, first, numbers = index
        extents = tuple(piece.stop - piece.start for piece in index)
        total = np.zeros(extents)
        one = points(facts, x1, (*batch, first), numbers)[..., :, np.newaxis, :]
        for second in pieces(count, max(BLOCK // prod(extents), 1)):
            other = points(facts, x2, (*batch, second), numbers)[..., np.newaxis, :, :]
            pairs = (*batch, first, second)
            upstream, far = (facts.read(each, pairs)[..., np.newaxis] for each in (grad, cdist))
            total += np.add.reduce(upstream * slope(one - other, far, p), -2, np.float64)
        out[index] = total

    facts.each(cut(x1.shape, max(BLOCK // max(count, 1), _FEW)), compute)
    return out


def slope(d: AnyArray, far: AnyArray, p: float) -> AnyArray:
    """The derivative of a distance with respect to a number of the first point."""
    if p == 0:
        return np.zeros_like(d)
    sign = np.subtract(d > 0, d < 0, dtype=d.dtype)  # of NaN 0, as torch has it
    if p == 1:
        return sign
    if isinf(p) or p < 0:
        return np.where(np.abs(d) == far, sign, 0)
    apart = np.where(far == 0, 1, far)
    found = d / apart
    if p != EUCLIDEAN:
        found = sign * np.abs(found) ** d.dtype.type(p - 1)
    return np.where((far == 0) | (d == 0), 0, found)
