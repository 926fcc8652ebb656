"""Rules about the values of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Rule, listed
from npucall.errors import PARAM_INVALID, AttributeValueError

if TYPE_CHECKING:
    from npucall.declare.draft import Draft


def dim_of(name: str, attribute: str = "dim") -> Rule:
    """The attribute names a dimension of the tensor; rank 0 counts as rank 1."""

    def check(draft: Draft) -> None:
        rank = max(len(draft.shape(name)), 1)
        if not -rank <= draft.attribute(attribute) < rank:
            raise AttributeValueError(
                f"{attribute}: expected {-rank} to {rank - 1}, a dimension of {name}, "
                f"found {draft.attribute(attribute)}",
                parameter=attribute,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{attribute} is a dimension of {name}", (attribute,), PARAM_INVALID, check)


def not_negative(name: str) -> Rule:
    """The number is 0 or more; NaN is not."""

    def check(draft: Draft) -> None:
        if not draft.attribute(name) >= 0:
            raise AttributeValueError(
                f"{name}: expected 0 or more, found {draft.attribute(name)}",
                parameter=name,
                aclnn_status=PARAM_INVALID,
            )

    return Rule(f"{name} is 0 or more", (name,), PARAM_INVALID, check)


def one_of(name: str, *values: int | str, status: int = PARAM_INVALID) -> Rule:
    """The attribute has one of these values; whether it may be absent is for others to say."""

    def check(draft: Draft) -> None:
        if not draft.absent(name) and draft.attribute(name) not in values:
            raise AttributeValueError(
                f"{name}: expected one of {values}, found {draft.attribute(name)}",
                parameter=name,
                aclnn_status=status,
            )

    return Rule(f"{name} is one of {listed(tuple(map(str, values)))}", (name,), status, check)


def warn_unless(name: str, *values: int, meaning: str) -> Rule:
    """Another value is allowed, and worth a warning that says what it means."""

    def check(draft: Draft) -> None:
        value = draft.attribute(name)
        if value not in values:
            draft.warnings.append((name, f"{name}: {value} is not one of {values}; {meaning}"))

    return Rule(f"warning unless {name} is one of {listed(tuple(map(str, values)))}", (), 0, check)
