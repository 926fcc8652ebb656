"""What reductions have in common: the dimensions that they sum over, and what remains of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.dtypes import DType, can_cast
from npucall.errors import PARAM_INVALID, AttributeValueError, DTypeError
from npucall.tensors import Shape


def dims_of(attribute: str) -> rules.Rule:
    """Each dimension is one of self's, and named once; rank 0 counts as rank 1."""

    def check(draft: Draft) -> None:
        rank = max(len(draft.shape("self")), 1)
        dims = draft.attribute(attribute)
        for dim in dims:
            if not -rank <= dim < rank:
                raise _refused(attribute, f"{-rank} to {rank - 1}, dimensions of self", dims)
        if len({dim % rank for dim in dims}) < len(dims):
            raise _refused(attribute, "each dimension once", dims)

    text = f"{attribute} are dimensions of self, each of them once"
    return rules.Rule(text, (attribute,), PARAM_INVALID, check)


def reduced(attribute: str, keeps: str) -> tuple[rules.Rule, rules.Rule]:
    """Find ``kept``, self's shape with extent 1 along the dimensions, and ``result``, out's shape.

    No dimensions means all of them. ``keeps``: the attribute that makes out keep them.
    """

    def kept(draft: Draft) -> Shape:
        return _without(draft, attribute, keep=True)

    def result(draft: Draft) -> Shape:
        return _without(draft, attribute, keep=draft.attribute(keeps))

    return (
        rules.shape_of("self", into="kept", make=kept),
        rules.shape_of("self", into="result", make=result),
    )


def castable_to_dtype() -> rules.Rule:
    """Self can be cast to what the attribute ``dtype`` says."""
    return rules.requires(
        "a dtype that self can be cast to",
        "dtype",
        holds=lambda draft: can_cast(draft.dtype("self"), draft.dtype("asked")),
        found=lambda draft: f"{draft.dtype('asked')} for {draft.dtype('self')}",
        error=DTypeError,
    )


def real_if_empty() -> rules.Rule:
    """Nothing fills a complex output."""
    return rules.when(
        lambda draft: 0 in draft.shape("self"),
        rules.requires(
            "a real dtype, since self is empty",
            "out",
            holds=lambda draft: _of_out(draft).kind != "complex",
            found=_of_out,
            error=DTypeError,
        ),
        "if self is empty",
    )


def filled(number: float, meaning: str) -> rules.Rule:
    """Of nothing the result is this number; an integer is 0 where that is NaN."""

    def fill(draft: Draft) -> float:
        return number if _of_out(draft).kind == "float" else 0.0

    return rules.fill_if_empty("self", fill=fill, meaning=meaning)


def one_element_or(shape: str) -> Callable[[Draft], bool]:
    """Whether out has the shape found under that name; of one element any shape will do."""

    def holds(draft: Draft) -> bool:
        expected = draft.shape(shape)
        return all(
            spec.shape == expected or prod(spec.shape) == prod(expected) == 1
            for _, spec in draft.tensors(("out",))
        )

    return holds


def _without(draft: Draft, attribute: str, *, keep: bool) -> Shape:
    shape = draft.shape("self")
    dims = {dim % max(len(shape), 1) for dim in draft.attribute(attribute)} or {*range(len(shape))}
    kept = [1 if dim in dims else extent for dim, extent in enumerate(shape)]
    return tuple(extent for dim, extent in enumerate(kept) if keep or dim not in dims)


def _of_out(draft: Draft) -> DType:
    out = draft.tensor("out")
    return draft.dtype("asked") if out is None else out.dtype


def _refused(attribute: str, expected: str, found: object) -> AttributeValueError:
    return AttributeValueError(
        f"{attribute}: expected {expected}, found {found}",
        parameter=attribute,
        aclnn_status=PARAM_INVALID,
    )
