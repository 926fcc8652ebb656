"""Tensors of a list put together: one behind the other, or along a new dimension."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault, refuses
from npucall.dtypes import BF16, COMPLEX128, UINT16, UINT32, UINT64, AnyArray, Array
from npucall.errors import AclnnStatus, AttributeValueError, ShapeError
from npucall.operators import _arithmetic as arithmetic
from npucall.operators._lists import NOT_EMPTY
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

UNSIGNED = (UINT16, UINT32, UINT64)
NEWER = tuple(each for each in arithmetic.NEWER if each is not COMPLEX128)
OLDER = tuple(each for each in NEWER if each is not BF16)
NOTHING: Shape = (0,)
"""The shape of a tensor that is no part of what is put together."""
TENSORS = Input("tensors", "what is put together", many=True)
COMMON: dict[str, Any] = {
    "kernel_dtype": rules.dtype_of("promotion"),
    "over": at_once(widen=False),
    "sample": Sample(attributes={"dim": 0}),
    "area": "indexing",
}
DTYPES = (
    rules.supported("tensors"),
    rules.supported("out"),
    rules.promoted("tensors", into="promotion"),
    rules.castable("promotion", to="out"),
)


def parts_of(draft: Draft) -> dict[str, Shape]:
    """Shapes of the tensors that are parts."""
    shapes = {name: spec.shape for name, spec in draft.tensors(("tensors",))}
    return {name: shape for name, shape in shapes.items() if shape != NOTHING} or shapes


def first(draft: Draft) -> Shape:
    """The shape with which the others are compared."""
    return next(iter(parts_of(draft).values()))


def others(draft: Draft) -> Iterator[Fault]:
    """Parts that differ from the first along other dimensions than the one."""
    like, dim = first(draft), draft.attribute("dim")
    axis = dim % len(like)
    for name, shape in parts_of(draft).items():
        fits = len(shape) == len(like) and (*shape[:axis], *shape[axis + 1 :]) == (
            *like[:axis], *like[axis + 1 :],
        )  # fmt: skip
        if not fits:
            yield name, f"a shape like {like}, but for dimension {dim}", shape


def together(draft: Draft) -> Shape:
    """The shape of all parts behind each other."""
    like, parts = first(draft), parts_of(draft).values()
    axis = draft.attribute("dim") % len(like)
    return (*like[:axis], sum(shape[axis] for shape in parts), *like[axis + 1 :])


def stacked(draft: Draft) -> Shape:
    """The shape of all tensors along a new dimension."""
    shape, count = draft.shape("tensors[0]"), len(draft.lists["tensors"])
    axis = draft.attribute("dim") % (len(shape) + 1)
    return (*shape[:axis], count, *shape[axis:])


def dim_within(text: str, more: int) -> rules.Rule:
    """Dim is one of so many dimensions more than the first tensor has."""

    def holds(draft: Draft) -> bool:
        rank = len(first(draft)) + more
        return bool(-rank <= draft.attribute("dim") < rank)

    return rules.requires(
        text,
        "dim",
        holds=holds,
        found=lambda draft: f"{draft.attribute('dim')} for {first(draft)}",
        error=AttributeValueError,
    )


def nothing_at_all(draft: Draft) -> None:
    """Ends the checks where no tensor is a part."""
    if draft.lists.get("tensors") and all(
        spec is not None and spec.shape == NOTHING
        for spec in map(draft.tensor, draft.lists["tensors"])
    ):
        raise rules.EndOfChecks


@operator(
    "aclnnCat",
    TENSORS,
    Attribute("dim", Kind.INT64, "the dimension along which they stand behind each other"),
    Output("out", "all of them", shape="result", dtype="promotion"),
    products={
        **dict.fromkeys((A2, A3), NEWER),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), OLDER),
        ASCEND_950: (*NEWER, *UNSIGNED),
    },
    checks=(
        rules.Rule("if all tensors have shape (0,), the call is done", (), 0, nothing_at_all),
        rules.present("tensors", "out"),
        NOT_EMPTY,
        *DTYPES,
        rules.public_format("tensors"),
        rules.same_format("tensors", "tensors[0]"),
        rules.same_format("out", "tensors[0]"),
        rules.rank_at_most(8, "tensors"),
        dim_within("a dimension of the first tensor", 0),
        refuses(ShapeError, "parts differ along dim alone", ("tensors",), others),
        rules.shape_of("tensors", into="result", make=together),
        rules.same_shape("out", "result", "all parts behind each other"),
    ),
    torch="cat",
    source="ops-math conversion/concat_d: page aclnnCat, order of checks in its source",
    **COMMON,
)
def cat(facts: Facts, tensors: Sequence[Array], dim: int) -> AnyArray:
    """Tensors one behind the other along ``dim``.

    Their dtypes are promoted to one, and nothing is computed, so every number keeps its bits but
    where its dtype changes. A tensor of shape (0,) is no part of them, whatever shape the others
    have; the software does not look at its dtype either. An empty list is refused: CANN writes
    nothing then. The software does not compare the shape of ``out`` before it runs; here it must
    fit. The page's floats of 8 bits for Ascend 950 are not taken.

    As ``cat`` in torch.
    """
    result = facts.shapes["result"]
    axis, out, start = dim % len(result), facts.output("out", result), 0
    parts = []
    for tensor in tensors:
        if tensor.shape != NOTHING or len(result) == 1:
            parts += [(tensor, start, block) for block in cut(tensor.shape, BLOCK)]
            start += tensor.shape[axis]

    def put(part: tuple[Any, int, tuple[slice, ...]]) -> None:
        tensor, before, block = part
        along = slice(block[axis].start + before, block[axis].stop + before)
        out[(*block[:axis], along, *block[axis + 1 :])] = facts.read(tensor, block)

    facts.each(parts, put)
    return out


@operator(
    "aclnnStack",
    TENSORS,
    Attribute("dim", Kind.INT64, "the place of the new dimension"),
    Output("out", "all of them", shape="result", dtype="promotion"),
    products=arithmetic.on(
        ASCEND_910,
        ASCEND_310P,
        newer=(*arithmetic.NEWER, *UNSIGNED),
        without_bf16=(*arithmetic.OLDER, *UNSIGNED),
    ),
    checks=(
        *rules.with_status(AclnnStatus.ACLNN_ERR_INNER_NULLPTR, rules.present("tensors", "out")),
        NOT_EMPTY,
        *DTYPES,
        rules.rank_at_most(8, "tensors[0]"),
        dim_within("a dimension of out", 1),
        rules.same_shape("tensors", "tensors[0]"),
        rules.succeed_if_empty("tensors"),
        rules.shape_of("tensors", into="result", make=stacked),
        rules.same_shape("out", "result", "that of each tensor with one more dimension"),
    ),
    torch="stack",
    source="ops-math conversion/pack: page aclnnStack, order of checks in its source",
    **COMMON,
)
def stack(facts: Facts, tensors: Sequence[Array], dim: int) -> AnyArray:
    """Tensors of one shape along a new dimension ``dim``.

    Their dtypes are promoted to one, and nothing is computed, so every number keeps its bits but
    where its dtype changes. Null pointers are 561103. An empty list is refused; CANN's software
    reads foreign memory then.

    As ``stack`` in torch.
    """
    result = facts.shapes["result"]
    axis, out = dim % len(result), facts.output("out", result)
    blocks = cut(result[:axis] + result[axis + 1 :], BLOCK)

    def put(part: tuple[int, tuple[slice, ...]]) -> None:
        number, block = part
        found = np.expand_dims(facts.read(tensors[number], block), axis)
        out[(*block[:axis], slice(number, number + 1), *block[axis:])] = found

    facts.each([(number, block) for number in range(len(tensors)) for block in blocks], put)
    return out
