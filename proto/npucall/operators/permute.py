"""Dimensions of a tensor in another order."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import (
    COMPLEX128,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    UINT16,
    UINT32,
    UINT64,
    AnyArray,
    Array,
)
from npucall.errors import AttributeValueError
from npucall.operators import _arithmetic as arithmetic
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

UNSIGNED = (UINT16, UINT32, UINT64)
OLDER = tuple(each for each in arithmetic.OLDER if each is not COMPLEX128)


def axes_of(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions, none of them negative."""
    return tuple(dim % len(dims) for dim in dims)


def permuted(draft: Draft) -> Shape:
    """The extents in their new order."""
    shape = draft.shape("self")
    return tuple(shape[axis] for axis in axes_of(draft.attribute("dims")))


def has_all(dims: tuple[int, ...]) -> bool:
    """Whether it has each dimension once."""
    return all(-len(dims) <= dim < len(dims) for dim in dims) and len({*axes_of(dims)}) == len(dims)


@operator(
    "aclnnPermute",
    Input("self", "the tensor"),
    Attribute("dims", Kind.INT_ARRAY, "for each dimension of out, which one of self it is"),
    Output("out", "its dimensions in that order", shape="result", dtype="self"),
    products={
        **dict.fromkeys((A2, A3), (*arithmetic.NEWER, *UNSIGNED)),
        ASCEND_950: (*arithmetic.NEWER, *UNSIGNED, FLOAT8_E5M2, FLOAT8_E4M3FN),
        ASCEND_910: (*OLDER, *UNSIGNED),
    },
    legacy=dict.fromkeys((ASCEND_310P, ASCEND_310B), (*arithmetic.OLDER, *UNSIGNED)),
    checks=(
        rules.present("self", "dims", "out"),
        rules.supported("self"),
        rules.supported("out"),
        rules.same_dtype("out", as_="self"),
        rules.same_rank("out", as_="self"),
        rules.requires(
            "as many as self has",
            "dims",
            holds=lambda draft: len(draft.attribute("dims")) == len(draft.shape("self")),
            found=lambda draft: f"{len(draft.attribute('dims'))} for {draft.shape('self')}",
            error=AttributeValueError,
        ),
        rules.rank_at_most(8, "self"),
        rules.value_fits("each dimension of self once", "dims", has_all),
        rules.shape_of("self", into="result", make=permuted),
        rules.same_shape("out", "result", "that of self in the order of dims"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(widen=False),
    sample=Sample(attributes={"dims": (1, 0)}),
    area="indexing",
    torch="permute",
    source="ops-math conversion/transpose: page aclnnPermute, order of checks in its source",
)
def permute(facts: Facts, self: Array, dims: tuple[int, ...]) -> AnyArray:
    """The dimensions of ``self`` in the order ``dims``: out's dimension i is self's ``dims[i]``.

    Nothing is computed, so every number keeps its bits. Negative dimensions count from the end.
    The software compares only the number of dimensions of ``out``; here its shape must fit. The
    page's HIFLOAT8 is no dtype of this service.

    As ``permute`` in torch.
    """
    axes, result = axes_of(dims), facts.shapes["result"]
    out = facts.output("out", result)

    def turn(block: tuple[slice, ...]) -> None:
        there = dict(zip(axes, block, strict=True))
        piece = facts.read(self, tuple(there[axis] for axis in range(len(axes))))
        out[block] = piece.transpose(axes)

    facts.each(cut(result, BLOCK), turn)
    return out
