"""Rules about the values of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.declare.rules.rule import Fault, Rule, listed, refuses, requires
from npucall.errors import AttributeValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.declare.draft import Draft


def dim_of(name: str, attribute: str = "dim") -> Rule:
    """The attribute names a dimension of the tensor; rank 0 counts as rank 1."""

    def faults(draft: Draft) -> Iterator[Fault]:
        rank = max(len(draft.shape(name)), 1)
        given = draft.attribute(attribute)
        if not -rank <= given < rank:
            yield attribute, f"{-rank} to {rank - 1}, a dimension of {name}", given

    text = f"{attribute} is a dimension of {name}"
    return refuses(AttributeValueError, text, (attribute,), faults)


def not_negative(name: str) -> Rule:
    """The number is 0 or more; NaN is not."""

    def faults(draft: Draft) -> Iterator[Fault]:
        if not draft.attribute(name) >= 0:
            yield name, "0 or more", draft.attribute(name)

    return refuses(AttributeValueError, f"{name} is 0 or more", (name,), faults)


def positive(name: str) -> Rule:
    """The integer is 1 or more."""
    return value_fits("1 or more", name, lambda value: value >= 1)


def value_fits(expected: str, name: str, fits: Callable[[Any], bool]) -> Rule:
    """The attribute has a value that fits."""
    return requires(
        expected,
        name,
        holds=lambda draft: fits(draft.attribute(name)),
        found=lambda draft: draft.attribute(name),
        error=AttributeValueError,
    )


def one_of(name: str, *values: int | str) -> Rule:
    """The attribute has one of these values; whether it may be absent is for others to say."""

    def faults(draft: Draft) -> Iterator[Fault]:
        if not draft.absent(name) and draft.attribute(name) not in values:
            yield name, f"one of {values}", draft.attribute(name)

    text = f"{name} is one of {listed(tuple(map(str, values)))}"
    return refuses(AttributeValueError, text, (name,), faults)


def warn_unless(name: str, *values: int, meaning: str) -> Rule:
    """Another value is allowed, and worth a warning that says what it means."""

    def check(draft: Draft) -> None:
        value = draft.attribute(name)
        if value not in values:
            draft.warnings.append((name, f"{name}: {value} is not one of {values}; {meaning}"))

    return Rule(f"warning unless {name} is one of {listed(tuple(map(str, values)))}", (), 0, check)
