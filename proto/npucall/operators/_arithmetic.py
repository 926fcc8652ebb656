"""What arithmetic operators have in common: the dtypes that they take, and the products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npucall.declare import Input, Output, rules
from npucall.declare.draft import Draft
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    Array,
    DType,
    can_cast,
    promote,
)
from npucall.errors import DTypeError
from npucall.products import A2, A3, ASCEND_950, Product

INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
OLDER = (FLOAT, FLOAT16, DOUBLE, BOOL, *INTEGERS, COMPLEX64, COMPLEX128)
"""On products without BF16."""
NEWER = (*OLDER, BF16)
PAIR = ("self", "other")


def on(
    *older: Product, newer: tuple[DType, ...] = NEWER, without_bf16: tuple[DType, ...] = OLDER
) -> Mapping[Product, tuple[DType, ...]]:
    """The dtypes on the products that have BF16, and on these older ones."""
    with_bf16 = dict.fromkeys((A2, A3, ASCEND_950), newer)
    return {**with_bf16, **dict.fromkeys(older, without_bf16)}


def before(
    *products: Product, dtypes: tuple[DType, ...] = OLDER
) -> Mapping[Product, tuple[DType, ...]]:
    """The dtypes on older products that current documents do not list."""
    return dict.fromkeys(products, dtypes)


def result(description: str) -> Output:
    """The output of an operator of two tensors."""
    return Output("out", description, shape="common", dtype="promotion")


FIRST, SECOND = Input("self", "the first operand"), Input("other", "the second operand")
BROADCAST = (
    rules.rank_at_most(8, *PAIR),
    rules.broadcast(*PAIR, into="common"),
    rules.same_shape("out", "common", "what the inputs broadcast to"),
)
"""The checks of the shapes of two operands."""


def takes(draft: Draft, name: str) -> bool:
    """Whether the promoted dtype can be made of that of an aclScalar."""
    given, promotion = draft.scalar(name), draft.dtype("promotion")
    if given is None:
        return True
    if promotion is BOOL:
        return given.dtype.kind in ("int", "bool")
    return can_cast(given.dtype, promotion)


def beside_number(draft: Draft) -> DType:
    """The dtype of what a tensor and a number make.

    That of self, unless the number has what it lacks: a fraction, an imaginary part. A truth value
    times an integer is one.
    """
    own, given = draft.dtype("self"), draft.dtype("other")
    ranks = ("bool", "int", "other", "float", "complex")  # a float of 8 bits has a fraction
    if ranks.index(given.kind) <= ranks.index(own.kind):
        return own
    out = draft.tensor("out")
    if given is DOUBLE and out is not None and out.dtype is FLOAT:
        return FLOAT
    return promote(own, given) or own


SCALED_SUM = (
    rules.present(*PAIR, "alpha", "out"),
    rules.supported(*PAIR),
    rules.promoted(*PAIR, into="promotion"),
    rules.requires(
        "a number that can be cast to the dtype of self and other",
        "alpha",
        holds=lambda draft: takes(draft, "alpha"),
        found=lambda draft: f"{draft.dtype('alpha')} for {draft.dtype('promotion')}",
        error=DTypeError,
    ),
    rules.castable("promotion", to="out"),
    *BROADCAST,
    rules.succeed_if_empty(*PAIR),
)
"""The checks of a sum or difference."""


def scaled(other: Array, alpha: float) -> Any:
    """The second summand; 1 times an infinite complex number would be NaN."""
    return other if alpha == 1 else other * alpha


def dtype_asked_for(draft: Draft) -> DType:
    """What the attribute ``dtype`` says."""
    dtype: DType = draft.attribute("dtype")
    return dtype


ASKED = rules.dtype_from("dtype", into="asked", make=dtype_asked_for)
"""Finds what the attribute ``dtype`` says as ``asked``."""
