"""Product of matrices."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import BF16, FLOAT, FLOAT16, FLOATS, HALF_AND_SINGLE, AnyArray, Array, DType
from npucall.errors import DTypeError
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape, broadcast

PAIR = ("self", "mat2")
KEEP, ALLOW_LOWER, USE_FLOAT16, USE_HF32, ADD_IN_FLOAT = range(5)
WITHOUT_FLOAT = (ASCEND_910, ASCEND_310P)
"""Products with a matrix unit for FLOAT16 only."""
ROWS, COLUMNS, INNER = 1024, 1024, 1024
"""Extents of the largest block of a product, and of what is multiplied for it at a time."""
MATRIX = 2
"""Dimensions of one."""


def sizes(first: Shape, second: Shape) -> tuple[int, int, int]:
    """Rows, inner extent and columns of a product; a vector is one row, or one column."""
    return (*first[-2:-1], 1)[0], first[-1], second[-1] if len(second) > 1 else 1


def inner_fits(draft: Draft) -> bool:
    """Whether a row of self is as long as a column of mat2."""
    second = draft.shape("mat2")
    return draft.shape("self")[-1] == (second[-2] if len(second) > 1 else second[0])


def batch_of(draft: Draft) -> Shape | None:
    """The leading dimensions of both, broadcast; None where they do not fit."""
    return broadcast(*(draft.shape(name)[:-2] for name in PAIR))


def product_shape(draft: Draft) -> Shape:
    """The shape of the product; a vector leaves no dimension."""
    first, second = (draft.shape(name) for name in PAIR)
    rows, _, columns = sizes(first, second)
    matrix = (rows,) * (len(first) > 1) + (columns,) * (len(second) > 1)
    return (*(batch_of(draft) or ()), *matrix)


def promotes(draft: Draft) -> bool:
    """Whether the device multiplies these dtypes: others than Ascend 950 mix no BF16."""
    both = {draft.dtype(name) for name in PAIR}
    return len(both) == 1 or BF16 not in both or draft.product is ASCEND_950


def multiplied_in(draft: Draft) -> DType:
    """The dtype of the factors: the promoted one, or FLOAT16 where that is asked for."""
    promotion, kind = draft.dtype("promotion"), draft.attribute("cube_math_type")
    lower = kind == USE_FLOAT16 or (kind == ALLOW_LOWER and draft.product in WITHOUT_FLOAT)
    return FLOAT16 if lower and promotion is FLOAT else promotion


def products(facts: Facts, _: Mapping[str, Any]) -> int:
    """Products of two numbers that are added up: what a call costs."""
    rows, inner, columns = sizes(facts.shapes["self"], facts.shapes["mat2"])
    batch = broadcast(facts.shapes["self"][:-2], facts.shapes["mat2"][:-2]) or ()
    return prod(batch) * rows * inner * columns


def held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Bytes of a block of the product and of what is added to it, in float32."""
    rows, _inner, columns = sizes(facts.shapes["self"], facts.shapes["mat2"])
    return 2 * FLOAT.itemsize * min(rows, ROWS) * min(columns, COLUMNS)


CUBE = Attribute(
    "cube_math_type",
    Kind.INT8,
    "0 keep the dtype, 1 allow a lower one, 2 FLOAT16, 3 HF32, 4 add in FLOAT",
)
FACTORS = (
    rules.present(*PAIR, "out"),
    rules.supported(*PAIR, "out"),
    rules.requires(
        "one dtype, or FLOAT and FLOAT16",
        *PAIR,
        holds=promotes,
        found=lambda draft: " and ".join(str(draft.dtype(name)) for name in PAIR),
        error=DTypeError,
    ),
    rules.promoted(*PAIR, into="promotion"),
    rules.one_of("cube_math_type", *range(5)),
    rules.when(
        lambda draft: (
            draft.product in WITHOUT_FLOAT
            and draft.dtype("promotion") is FLOAT
            and not draft.absent("cube_math_type")
        ),
        rules.value_fits(
            "a lower precision than FLOAT, which the product does not multiply",
            "cube_math_type",
            lambda kind: kind not in (KEEP, USE_HF32),
        ),
        "for FLOAT on Ascend910 and Ascend310P",
    ),
)
OF_BATCHES = rules.requires(
    "leading dimensions that broadcast",
    *PAIR,
    holds=lambda draft: batch_of(draft) is not None,
    found=lambda draft: " and ".join(str(draft.shape(name)) for name in PAIR),
)
PUBLIC = rules.public_format("self", "out")
FITTING = (
    rules.requires(
        "rows of self as long as the columns of mat2",
        *PAIR,
        holds=inner_fits,
        found=lambda draft: " and ".join(str(draft.shape(name)) for name in PAIR),
    ),
    OF_BATCHES,
    rules.shape_of("self and mat2", into="product", make=product_shape),
    rules.same_shape("out", "product", "that of the product"),
    PUBLIC,
    rules.fill_if_empty(*PAIR, fill=lambda _: 0.0, meaning="0"),
)
COMMON: dict[str, Any] = {
    "products": {
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
    },
    "legacy": {ASCEND_310B: HALF_AND_SINGLE},
    "kernel_dtype": multiplied_in,
    "over": at_once(holds=held, computes=products),
    "area": "arithmetic",
}


@operator(
    "aclnnMatmul",
    Input("self", "the first factor: a vector, a matrix, or many"),
    Input("mat2", "the second factor", c_name="mat2"),
    Output("out", "the product", shape="product", dtype="promotion"),
    CUBE,
    checks=(
        *FACTORS,
        rules.rank_is("self", *range(1, 7)),
        rules.rank_is("mat2", *range(1, 7)),
        *FITTING,
    ),
    sample=Sample(shapes={"mat2": (3, 4)}, attributes={"cube_math_type": ALLOW_LOWER}),
    torch="matmul",
    source="ops-nn page aclnnMatmul",
    **COMMON,
)
def matmul(facts: Facts, self: Array, mat2: Array, cube_math_type: int = KEEP) -> AnyArray:
    """Product of the matrices ``self`` and ``mat2``.

    ::

        out[..., i, j] = sum over k of  self[..., i, k] * mat2[..., k, j]

    A ``self`` of rank 1 is a row, a ``mat2`` of rank 1 a column, and leaves no dimension in
    ``out``. Leading dimensions broadcast. Both are converted to their promoted dtype. FLOAT16 and
    BF16 are multiplied and added in float32, and sums are rounded once; without anything to add
    they are 0. The order of the additions is not defined.

    ``cube_math_type`` 2 rounds FLOAT to FLOAT16 first, and so does 1 on Ascend910 and Ascend310P,
    which refuse FLOAT with 0 and 3. On other products the reference always computes FLOAT in
    float32; devices may then round to HF32, with an error of 2^-10.

    With 0, as in torch, which has no mixed dtypes.
    """
    del cube_math_type
    return multiplied(facts, self, mat2)


@operator(
    "aclnnMm",
    Input("self", "the first factor, (N, K)"),
    Input("mat2", "the second factor, (K, M)", c_name="mat2"),
    Output("out", "the product, (N, M)", shape="product", dtype="promotion"),
    CUBE,
    checks=(
        rules.present("out", *PAIR),
        *FACTORS[1:],
        rules.rank_is("mat2", 2),
        rules.rank_is("self", 2),
        *(rule for rule in FITTING if rule not in (OF_BATCHES, PUBLIC)),
    ),
    sample=Sample(shapes={"mat2": (3, 4)}, attributes={"cube_math_type": ALLOW_LOWER}),
    torch="mm",
    source="ops-nn matmul/mat_mul_v3: page aclnnMm, order of checks in its source",
    **COMMON,
)
def mm(facts: Facts, self: Array, mat2: Array, cube_math_type: int = KEEP) -> AnyArray:
    """Product of the matrices ``self`` and ``mat2``.

    ::

        out[i, j] = sum over k of  self[i, k] * mat2[k, j]

    All tensors have two dimensions. All else is as in ``aclnnMatmul``.

    With 0, as in torch, which has no mixed dtypes.
    """
    del cube_math_type
    return multiplied(facts, self, mat2)


@operator(
    "aclnnBatchMatMul",
    Input("self", "the first factors, (B or 1, N, K)"),
    Input("mat2", "the second factors, (B or 1, K, M)", c_name="mat2"),
    Output("out", "the products, (B, N, M)", shape="product", dtype="promotion"),
    CUBE,
    checks=(*FACTORS, *(rules.rank_is(name, 3) for name in (*PAIR, "out")), *FITTING),
    sample=Sample(
        shapes={"self": (2, 2, 3), "mat2": (2, 3, 4)},
        attributes={"cube_math_type": ALLOW_LOWER},
    ),
    torch="bmm",
    source="ops-nn page aclnnBatchMatMul, order of its checks",
    **COMMON,
)
def batch_mat_mul(facts: Facts, self: Array, mat2: Array, cube_math_type: int = KEEP) -> AnyArray:
    """Products of the matrices ``self`` and ``mat2``, one for each item.

    ::

        out[b, i, j] = sum over k of  self[b, i, k] * mat2[b, k, j]

    All tensors have three dimensions; a first extent of 1 is stretched. All else is as in
    ``aclnnMatmul``.

    With 0, as in torch, which has no mixed dtypes.
    """
    del cube_math_type
    return multiplied(facts, self, mat2)


def multiplied(facts: Facts, self: Array, mat2: Array) -> AnyArray:
    """The products, by blocks."""
    rows, inner, columns = sizes(self.shape, mat2.shape)
    out = facts.output("out", facts.shapes["product"])
    batch = facts.shapes["product"][: max(len(self.shape), len(mat2.shape), 2) - 2]
    many = BLOCK // max(1, rows * inner, inner * columns, rows * columns)
    for lead in cut(batch, max(many, 1)):
        for i in pieces(rows, ROWS):
            for j in pieces(columns, COLUMNS):
                place = (i,) * (len(self.shape) > 1) + (j,) * (len(mat2.shape) > 1)
                there = facts.place("out", (*lead, *place)) if len(place) == MATRIX else None
                total: Any = None
                for k in pieces(inner, INNER):
                    facts.pause()
                    first = matrices(facts, self, lead, (i, k), row=True)
                    second = matrices(facts, mat2, lead, (k, j), row=False)
                    if total is None:
                        total = np.matmul(first, second, out=there)
                    else:
                        np.add(total, np.matmul(first, second), out=total)
                if there is None:
                    shape = np.shape(total)[: len(lead)] + extents(place)
                    out[(*lead, *place)] = total.reshape(shape)
    return out


def pieces(extent: int, most: int) -> Iterator[slice]:
    """The pieces of an extent, of at most so many."""
    return (slice(start, min(start + most, extent)) for start in range(0, extent, most))


def extents(places: tuple[slice, ...]) -> Shape:
    """The shape of what slices of a matrix take."""
    return tuple(place.stop - place.start for place in places)


def matrices(
    facts: Facts, array: Array, lead: tuple[slice, ...], place: tuple[slice, slice], *, row: bool
) -> AnyArray:
    """A piece of some of the matrices; of a vector the only row, or column."""
    shape = array.shape
    if len(shape) == 1:
        vector = facts.read(array, place[row : row + 1])
        return vector[np.newaxis] if row else vector[:, np.newaxis]
    own = lead[len(lead) - (len(shape) - 2) :]
    leading = zip(shape, own, strict=False)
    index = tuple(slice(None) if extent == 1 else piece for extent, piece in leading)
    return facts.read(array, (*index, *place))
