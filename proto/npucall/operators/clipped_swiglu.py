"""The gated linear unit with SiLU of numbers that are clipped, and its gradient."""

from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import FLOATS, INT64, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._glu import halved
from npucall.operators._norms import no_zero
from npucall.operators._numerics import gated, numbered
from npucall.operators.swish import slope
from npucall.products import A2, A3, ASCEND_950

X = Input("x", "halves along dim, or neighbours: what is activated, and what it is multiplied by")
ATTRIBUTES = (
    Input(
        "group_index", "rows of each group; those behind all of them are 0", optional=True,
        as_is=True, c_name="groupIndexOptional",
    ),
    Attribute("dim", Kind.INT64, "the dimension that is halved; rows are the dimensions before it"),
    Attribute("alpha", Kind.DOUBLE, "factor in the exponent"),
    Attribute("limit", Kind.DOUBLE, "where numbers are clipped"),
    Attribute("bias", Kind.DOUBLE, "is added to what is multiplied"),
    Attribute("interleaved", Kind.BOOL, "neighbours belong together, not halves"),
)  # fmt: skip
TAIL = (
    rules.value_fits("more than 0", "limit", lambda limit: limit > 0),
    *halved("x"),
    *no_zero("x"),
    rules.rank_is("group_index", 1),
)
of_groups = rules.dtype_in("group_index", INT64)


@operator(
    "aclnnClippedSwiglu",
    X,
    *ATTRIBUTES,
    Output("out", "the product", shape="half", dtype="x", const=True),
    products=dict.fromkeys((A2, A3), FLOATS),
    legacy={ASCEND_950: FLOATS},
    checks=(
        rules.present("x", "out"),
        rules.supported("x"),
        of_groups,
        rules.same_dtype("out", as_="x"),
        *rules.with_status(
            TILING_ERROR,
            *TAIL,
            rules.same_shape("out", "half", "that of x with half its extent along dim"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(),
    sample=Sample({"x": (2, 6), "group_index": (2,)}, {"group_index": INT64}),
    area="activations",
    source="ops-nn page aclnnClippedSwiglu; order of checks assumed as that of its gradient",
)
def clipped_swiglu(
    facts: Facts,
    x: Array,
    group_index: Array | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,  # in the order of C
) -> AnyArray:
    """``a * sigmoid(alpha * a) * (b + bias)`` of pairs that are clipped.

    Each row, which is all dimensions from ``dim`` on, has pairs (a, b): neighbours if
    ``interleaved``, else an element of its first half and the one at that place of its second::

        a = min(a, limit)      b = min(max(b, -limit), limit)
        out = a * sigmoid(alpha * a) * (b + bias)

    Rows from the sum of ``group_index`` on are 0. Computed in float32 and rounded once. Tensors
    without elements are refused (561002).

    As the expression in torch. This is the activation of gpt-oss.
    """
    shape, pairs = facts.shapes["half"], Pairs(facts, x, dim, interleaved=interleaved)
    out, kept = facts.output("out", shape), last_row(facts, group_index)

    def compute(index: tuple[slice, ...]) -> None:
        row, place = np.divmod(numbers(shape, index), pairs.length)
        a, b = pairs.read(row, place)
        a = np.minimum(a, a.dtype.type(limit))
        found = gated(a, a * a.dtype.type(alpha)) * (np.clip(b, -limit, limit) + b.dtype.type(bias))
        out[index] = np.where(row < kept, found, 0).astype(facts.dtype)

    facts.each(cut(shape, BLOCK // 4), compute)
    return out


@operator(
    "aclnnClippedSwigluGrad",
    Input("grad_y", "gradient of the product"),
    X,
    *ATTRIBUTES,
    Output("grad_x_out", "gradient of x", shape="x", dtype="x", const=True),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=(
        rules.present("grad_y", "x", "grad_x_out"),
        rules.supported("grad_y"),
        rules.same_dtype("x", as_="grad_y"),
        of_groups,
        rules.same_dtype("grad_x_out", as_="x"),
        *rules.with_status(
            TILING_ERROR,
            *TAIL,
            rules.same_shape("grad_y", "half", "that of x with half its extent along dim"),
            rules.same_shape("grad_x_out", "x"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(),
    sample=Sample({"x": (2, 6), "group_index": (2,)}, {"group_index": INT64}),
    area="activations",
    source="ops-nn activation/clipped_swiglu_grad: page aclnnClippedSwigluGrad, its tiling",
)
def clipped_swiglu_grad(  # in the order of C
    facts: Facts,
    grad_y: Array,
    x: Array,
    group_index: Array | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
) -> AnyArray:
    """Gradient of ``clipped_swiglu`` with respect to ``x``.

    With the pairs (a, b) and what they are clipped to, (a', b'), and s = sigmoid(alpha * a')::

        of a:  grad_y * (b' + bias) * s * (1 + alpha * a' * (1 - s))    where a <= limit, else 0
        of b:  grad_y * a' * s                                          where |b| <= limit, else 0

    Rows from the sum of ``group_index`` on are 0. The slope is computed in float64, all is rounded
    once. Tensors without elements are refused (561002).

    As the gradient of the expression in torch.
    """
    pairs = Pairs(facts, x, dim, interleaved=interleaved)
    out, kept = facts.output("grad_x_out", x.shape), last_row(facts, group_index)

    def compute(index: tuple[slice, ...]) -> None:
        row, place, second = pairs.of(numbers(x.shape, index))
        a, b = pairs.read(row, place)
        g = numbered(facts, grad_y, row * pairs.length + place)
        low = np.minimum(a, a.dtype.type(limit))
        clipped = np.clip(b, -limit, limit) + b.dtype.type(bias)
        of_first = np.where(a <= limit, g * clipped * slope(low, alpha), 0)
        of_second = np.where(np.abs(b) <= limit, g * gated(low, low * low.dtype.type(alpha)), 0)
        found = np.where(second, of_second, of_first)
        out[index] = np.where(row < kept, found, 0).astype(facts.dtype)

    facts.each(cut(x.shape, BLOCK // 4), compute)
    return out


class Pairs:
    """The pairs of each row, by their places."""

    def __init__(self, facts: Facts, x: Array, dim: int, *, interleaved: bool) -> None:
        self._facts, self._x, self._neighbours = facts, x, interleaved
        axis = dim % len(x.shape)
        self.length = int(np.prod(x.shape[axis:])) // 2
        """How many a row has."""

    def read(self, row: AnyArray, place: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Both numbers of some pairs."""
        first = 2 * row * self.length + (2 * place if self._neighbours else place)
        second = first + (1 if self._neighbours else self.length)
        return tuple(numbered(self._facts, self._x, each) for each in (first, second))  # type: ignore[return-value]

    def of(self, number: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """The row and the place of an element's pair, and which of the two it is."""
        row, rest = np.divmod(number, 2 * self.length)
        if self._neighbours:
            return row, rest // 2, rest % 2 == 1
        return row, rest % self.length, rest >= self.length


def numbers(shape: tuple[int, ...], index: tuple[slice, ...]) -> AnyArray:
    """The numbers of a block's elements in row-major order."""
    found: Any = np.zeros((1,) * len(shape), np.int64)
    for extent, places in zip(shape, np.ogrid[index], strict=True):
        found = found * extent + places
    return np.asarray(found)


def last_row(facts: Facts, group_index: Array | None) -> float:
    """The first row that no group has."""
    if group_index is None:
        return float("inf")
    blocks = facts.blocks(group_index.shape)
    return sum(int(np.sum(facts.read(group_index, index))) for index in blocks)
