"""Slices of a tensor, by their places along a dimension, filled with a number."""

from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.declare.twins import in_place
from npucall.dtypes import (
    BOOL,
    DOUBLE,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.errors import AttributeValueError
from npucall.operators import _indexing as shared
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

FEW = (*FLOATS, INT32, INT64, BOOL)
SELF = Input("self", "the tensor")
VALUE = Attribute("value", Kind.SCALAR, "the number", dtype="self")
OUT = Output("out", "self with the number in these slices", shape="self", dtype="self")


def self_has_elements(draft: Draft) -> bool:
    """Whether shapes are compared."""
    return 0 not in draft.shape("self")


def of_self(*each: rules.Rule) -> tuple[rules.Rule, ...]:
    """Rules that hold where self has elements."""
    return tuple(rules.when(self_has_elements, rule, "if self has elements") for rule in each)


def inside(draft: Draft) -> bool:
    """Whether each index is a place."""
    (extent,) = shared.along(draft)
    return all(-extent <= place < extent for place in draft.attribute("index"))


COMMON: dict[str, Any] = {
    "products": {
        **dict.fromkeys((A2, A3), FEW),
        ASCEND_950: (*FEW, INT8, UINT8, INT16, DOUBLE),
    },
    "kernel_dtype": rules.dtype_of("self"),
    "over": at_once(widen=False, holds=lambda facts, _: sum(facts.shapes["self"])),
    "area": "indexing",
    "torch": "index_fill",
}


@operator(
    "aclnnIndexFill",
    SELF,
    shared.DIM,
    Input("index", "places along dim", as_is=True),
    VALUE,
    OUT,
    checks=(
        rules.present("self", "index", "value", "out"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        shared.INDEX,
        *of_self(
            rules.rank_at_most(8, "self"), rules.same_shape("out", "self"), rules.dim_of("self")
        ),
        rules.real("value"),
        rules.succeed_if_empty("self"),
    ),
    sample=Sample({"index": (1,)}, {"index": INT64}, {"dim": 0, "value": 2}),
    source="ops-nn index/index_fill_d: page aclnnIndexFill, order of checks in its source",
    **COMMON,
)
def index_fill(facts: Facts, self: Array, dim: int, index: Array, value: float) -> AnyArray:
    """``self`` with a number in the slices whose places along ``dim`` ``index`` names.

    ``value`` is converted to the dtype of self; a complex one is refused. Negative places count
    from the end, and one that is none is left out, on devices too.

    As ``index_fill`` in torch, which refuses a place that is none.
    """
    extent = shared.as_shape(self.shape)[dim]
    chosen = np.zeros(extent, np.bool_)
    for block in facts.blocks(index.shape):
        places = facts.read(index, block)
        chosen[places[(places >= -extent) & (places < extent)]] = True
    return filled(facts, self, dim, chosen, value)


@operator(
    "aclnnIndexFillTensor",
    SELF,
    shared.DIM,
    Attribute("index", Kind.INT_ARRAY, "places along dim"),
    VALUE,
    OUT,
    checks=(
        rules.present("self", "index", "value", "out"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        *of_self(
            rules.same_shape("out", "self"),
            rules.rank_at_most(8, "self"),
            rules.dim_of("self"),
            rules.requires(
                "places along dim of self",
                "index",
                holds=inside,
                found=lambda draft: f"{draft.attribute('index')} for {draft.shape('self')}",
                error=AttributeValueError,
            ),
        ),
        rules.real("value"),
        rules.succeed_if_empty("self"),
    ),
    sample=Sample(attributes={"dim": 0, "index": (1,), "value": 2}),
    source="ops-nn index/index_fill_d: page aclnnIndexFillTensor, order of checks in its source",
    **COMMON,
)
def index_fill_tensor(
    facts: Facts, self: Array, dim: int, index: tuple[int, ...], value: float
) -> AnyArray:
    """``self`` with a number in the slices whose places along ``dim`` are in ``index``.

    ``value`` is converted to the dtype of self; a complex one is refused. Atlas A2 and A3 convert
    it to FLOAT before that, which a large integer does not survive. Negative places count from the
    end.

    As ``index_fill`` in torch.
    """
    chosen = np.zeros(shared.as_shape(self.shape)[dim], np.bool_)
    chosen[list(index)] = True
    return filled(facts, self, dim, chosen, value)


def filled(facts: Facts, self: Array, dim: int, chosen: AnyArray, value: float) -> AnyArray:
    """With the number in the slices that are chosen."""
    shape: Shape = shared.as_shape(self.shape)
    axis, out = dim % len(shape), facts.output("out", self.shape)

    def fill(block: tuple[slice, ...]) -> None:
        places = chosen[block[axis]].reshape(-1, *(1 for _ in shape[axis + 1 :]))
        found = np.where(places, facts.dtype.type(value), shared.part(facts, self, block))
        out[block if self.shape else ()] = found.reshape(found.shape if self.shape else ())

    facts.each(cut(shape, BLOCK), fill)
    return out


inplace_index_fill = in_place(index_fill)
inplace_index_fill_tensor = in_place(index_fill_tensor)
