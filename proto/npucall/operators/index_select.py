"""Slices of a tensor by their places along a dimension: looked up, added to, filled."""

from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import (
    BF16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT64,
    UINT16,
    UINT32,
    UINT64,
    AnyArray,
    Array,
    DType,
)
from npucall.errors import DTypeError
from npucall.operators import _arithmetic as arithmetic
from npucall.operators import _indexing as shared
from npucall.operators._scatter import HELD, OF_TARGET, Sorted
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

UNSIGNED = (UINT16, UINT32, UINT64)
REAL = (*FLOATS, DOUBLE, *arithmetic.INTEGERS, BOOL)


def selected(draft: Draft) -> Shape:
    """Self's shape with a slice for each index."""
    shape = draft.shape("self")
    axis = draft.attribute("dim") % max(len(shape), 1)
    count = prod(draft.shape("index"))
    return (*shape[:axis], count, *shape[axis + 1 :]) if shape else ()


def one_for_a_number(draft: Draft) -> bool:
    """Whether an index of a tensor of rank 0 has one element."""
    return bool(draft.shape("self")) or prod(draft.shape("index")) == 1


@operator(
    "aclnnIndexSelect",
    Input("self", "the slices"),
    shared.DIM,
    Input("index", "which of them: rank 0 or 1", as_is=True),
    Output("out", "a slice for each index", shape="result", dtype="self"),
    products=arithmetic.on(
        ASCEND_910,
        ASCEND_310P,
        newer=(*arithmetic.NEWER, *UNSIGNED),
        without_bf16=(*arithmetic.OLDER, *UNSIGNED),
    ),
    checks=(
        rules.present("self", "index", "out"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        shared.INDEX,
        rules.public_format("self", "index", "out"),
        rules.rank_at_most(8, "self"),
        rules.dim_of("self"),
        shared.OF_RANK_1,
        rules.requires(
            "one element, since self has rank 0",
            "index",
            holds=one_for_a_number,
            found=lambda draft: f"shape {draft.shape('index')}",
        ),
        shared.ALONG,
        rules.shape_of("self and index", into="result", make=selected),
        rules.same_shape("out", "result", "a slice for each index"),
        rules.succeed_if_empty("self", "index"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(widen=False),
    values=shared.PLACES,
    sample=Sample({"self": (3, 9), "index": (4,)}, {"index": INT64}, {"dim": 0}),
    area="indexing",
    torch="index_select",
    source="ops-nn index/gather_v2: page aclnnIndexSelect, order of checks in its source",
)
def index_select(facts: Facts, self: Array, dim: int, index: Array) -> AnyArray:
    """Slices of ``self`` by their places along ``dim``: ``out[i] = self[index[i]]`` for dim 0.

    Nothing is computed, so every number keeps its bits. A ``self`` of rank 0 has one slice, and
    index then one element. An index that is no place is refused (161002) when the call runs; a
    device would read foreign memory. The software does not compare the shape of ``out`` where
    nothing is selected; here it must fit.

    As ``index_select`` in torch.
    """
    shape = shared.as_shape(facts.shapes["result"])
    axis = dim % len(shape)
    out = facts.output("out", facts.shapes["result"])

    def look_up(block: tuple[slice, ...]) -> None:
        places = shared.places_of(facts, index, block[axis])
        found = shared.part(facts, self, (*block[:axis], places, *block[axis + 1 :]))
        out[block if self.shape else ()] = found if self.shape else found.reshape(())

    facts.each(cut(shape, BLOCK), look_up)
    return out


def factor(draft: Draft) -> DType:
    """The dtype of alpha: FLOAT where self is shorter than that."""
    found = draft.dtype("promotion")
    return FLOAT if found in (FLOAT16, BF16) else found


def others_equal(draft: Draft) -> bool:
    """Whether self and source differ along the dimension alone."""
    one, other = draft.shape("self"), draft.shape("source")
    axis = draft.attribute("dim") % max(len(one), 1)
    return len(one) == len(other) and all(
        a == b for n, (a, b) in enumerate(zip(one, other, strict=True)) if n != axis
    )


def one_for_each(draft: Draft) -> bool:
    """Whether there is an index for each slice of source."""
    return shared.as_shape(draft.shape("source"))[draft.attribute("dim")] == prod(
        draft.shape("index")
    )


def shapes_of(*names: str) -> Any:
    """What a message says of the shapes."""
    return lambda draft: " and ".join(str(draft.shape(name)) for name in names)


@operator(
    "aclnnIndexAdd",
    Input("self", "the slices that are added to"),
    shared.CONST_DIM,
    Input("index", "the place of each slice of source: rank 0 or 1", as_is=True),
    Input("source", "the slices that are added"),
    Attribute("alpha", Kind.SCALAR, "their factor", dtype="factor"),
    Output("out", "the sums", shape="self", dtype="self"),
    products=dict.fromkeys((A2, A3, ASCEND_950), REAL),
    checks=(
        rules.present("self", "index", "source", "alpha", "out"),
        rules.supported("self"),
        shared.INDEX,
        rules.supported("source"),
        rules.same_dtype("source", as_="self"),
        rules.same_dtype("out", as_="self"),
        rules.promoted("self", "source", into="promotion"),
        rules.dtype_from("self", into="factor", make=factor),
        rules.requires(
            "a number that can be cast to the dtype of self",
            "alpha",
            holds=lambda draft: arithmetic.takes(draft, "alpha"),
            found=lambda draft: f"{draft.dtype('alpha')} for {draft.dtype('promotion')}",
            error=DTypeError,
        ),
        rules.rank_at_most(8, "self", "source"),
        rules.dim_of("self"),
        shared.ALONG,
        rules.requires(
            "the shape of self but along dim",
            "source",
            holds=others_equal,
            found=shapes_of("source", "self"),
        ),
        shared.OF_RANK_1,
        rules.requires(
            "an index for each slice of source",
            "index",
            holds=one_for_each,
            found=shapes_of("index", "source"),
        ),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(
        holds=lambda facts, _: HELD * facts.count("index") + OF_TARGET * facts.first("along")
    ),
    values=shared.PLACES,
    sample=Sample(
        dtypes={"index": INT64}, shapes={"index": (2,)}, attributes={"dim": 0, "alpha": 2}
    ),
    area="indexing",
    torch="index_add",
    source="ops-nn index/inplace_scatter_add: page aclnnIndexAdd, order of checks in its source",
)
def index_add(
    facts: Facts, self: Array, dim: int, index: Array, source: Array, alpha: float
) -> AnyArray:
    """Slices of ``source`` added to those of ``self`` whose places along ``dim`` index names.

    For dim 0::

        out[w] = self[w] + sum of alpha * source[i] over all i with index[i] = w

    It is the gradient of ``aclnnIndexSelect``. Sums of FLOAT16 and BF16 are taken in float32, in
    the order of the indices, those of floats with 64 or more slices of one place in float64, and
    rounded once; Atlas A2 and A3 may round each sum. Integers wrap around, and BOOL is "or".
    ``alpha`` has the dtype of self, FLOAT where that is shorter. Where source is empty, out is
    self; a device leaves it as it was. An index that is no place is refused (161002) when the call
    runs.

    As ``index_add`` in torch.
    """
    shape = shared.as_shape(self.shape)
    axis = dim % len(shape)
    found = Sorted.of(shared.places_of(facts, index), shape[axis])
    out = facts.output("out", self.shape)

    def add_up(block: tuple[slice, ...]) -> None:
        rows, *rest = block

        def at(places: Any) -> tuple[Any, ...]:
            return (*rest[:axis], places, *rest[axis:])

        def read(numbers: AnyArray) -> AnyArray:
            slices = np.moveaxis(shared.part(facts, source, at(numbers)), axis, 0)
            return arithmetic.scaled(slices.reshape(len(numbers), -1), alpha)

        start = np.moveaxis(shared.part(facts, self, at(rows)), axis, 0)
        total = found.added(start.reshape(len(start), -1), read, rows)
        moved = np.moveaxis(total.reshape(start.shape), 0, axis)
        out[at(rows) if self.shape else ()] = moved if self.shape else moved.reshape(())

    facts.each(cut((shape[axis], *shape[:axis], *shape[axis + 1 :]), BLOCK), add_up)
    return out
