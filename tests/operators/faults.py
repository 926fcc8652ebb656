"""Defects of an otherwise valid call, listed in the order in which an operator has to find them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, product
from typing import TYPE_CHECKING, Any

from npucall.declare.call import Call
from npucall.declare.draft import Draft
from npucall.declare.parameters import Input, Output
from npucall.declare.prepare import prepare
from npucall.dtypes import FLOAT
from npucall.errors import (
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    NpucallError,
    ShapeError,
)
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.declare.declaration import Operator
    from npucall.declare.rules import Rule
    from npucall.dtypes import DType

NULL, INVALID = 161001, 161002
SHAPE = (2, 3)
NINE = (1,) * 8 + (3,)
"""Nine dimensions that would broadcast with (2, 3) if they were allowed."""

Answer = tuple[type[NpucallError], "int | None", tuple[str, ...]]
"""Class, aclnn status and blamed parameters of an error."""


@dataclass(frozen=True, eq=False)
class Fault:
    """One row, or one tensor of a row, of a list of checks."""

    changes: Mapping[str, Any]
    """By argument: None, the value of an attribute, or fields of a tensor's spec."""
    error: type[NpucallError]
    blamed: tuple[str, ...]
    status: int = INVALID

    def __str__(self) -> str:
        return f"{self.error.__name__} {'+'.join(self.changes)}"

    @property
    def answer(self) -> Answer:
        return self.error, self.status, self.blamed


def null(*names: str) -> list[Fault]:
    """Each of them alone is a null pointer."""
    return [Fault({name: None}, ArgumentMissingError, (name,), NULL) for name in names]


def dtype(wrong: DType, *names: str) -> list[Fault]:
    """Each of them alone has a dtype for which it is blamed."""
    return [Fault({name: {"dtype": wrong}}, DTypeError, (name,)) for name in names]


def dtypes(*wrong: DType, of: tuple[str, ...]) -> list[Fault]:
    """Each of them alone has each of these dtypes."""
    return [fault for name in of for each in wrong for fault in dtype(each, name)]


def shape(wrong: tuple[int, ...], *names: str) -> list[Fault]:
    """Each of them alone has a shape for which it is blamed."""
    return [Fault({name: {"shape": wrong}}, ShapeError, (name,)) for name in names]


def reductions_beyond_2() -> list[Fault]:
    """Reductions that no document knows."""
    codes = (3, -1, 7, 2**40, 2**32 + 1)
    return [Fault({"reduction": code}, AttributeValueError, ("reduction",)) for code in codes]


@dataclass(frozen=True)
class Table:
    """An operator's checks: what is wrong with a call, first things first."""

    operator: Operator[..., Any]
    attributes: Mapping[str, Any]
    """Valid values."""
    faults: Sequence[Fault]
    soc: str = "Ascend910B1"

    def __str__(self) -> str:
        return f"{self.operator.title} on {self.soc}"

    def refusal(self, *faults: Fault, soc: str | None = None) -> Answer | None:
        """What a call with these faults and no other is answered; None if it passes."""
        try:
            prepare(self.call(*faults), product_of(soc or self.soc), CATALOGUE)
        except NpucallError as error:
            return type(error), error.aclnn_status, error.parameters
        return None

    def call(self, *faults: Fault, left_out: tuple[str, ...] = ()) -> Call:
        """All tensors FLOAT of shape (2, 3), but for the faults."""
        tensors = [p for p in self.operator.parameters if isinstance(p, Input | Output)]
        values: dict[str, Any] = {p.name: {"dtype": FLOAT, "shape": SHAPE} for p in tensors}
        values |= self.attributes
        for name, change in (item for fault in faults for item in fault.changes.items()):
            values[name] = values[name] | change if isinstance(change, dict) else change
        arguments = {
            name: TensorSpec(**value) if isinstance(value, dict) else value
            for name, value in values.items()
            if name not in left_out
        }
        inputs = {p.name for p in self.operator.inputs}
        stored = (n for n, a in arguments.items() if n in inputs and isinstance(a, TensorSpec))
        return Call(self.operator, arguments, tuple(stored))

    def neighbours(self) -> list[tuple[Fault, Fault]]:
        """Neighbours in the list that fit into one call; the first must be the answer.

        Within what one check refuses, each with the next. Between checks, one pair of a check and
        the nearest later one, and of a check and the nearest earlier one, that tells their order:
        no two checks can change places unseen then.
        """
        groups = [list(group) for _, group in groupby(self.faults, self._first_of)]
        within = chain.from_iterable(_each_with_the_next(group) for group in groups)
        later = [self._nearest(g, groups[n + 1 :]) for n, g in enumerate(groups)]
        earlier = [self._nearest(g, groups[:n][::-1], backwards=True) for n, g in enumerate(groups)]
        return list(dict.fromkeys([*within, *filter(None, later), *filter(None, earlier)]))

    def _nearest(
        self, group: Sequence[Fault], others: Sequence[Sequence[Fault]], *, backwards: bool = False
    ) -> tuple[Fault, Fault] | None:
        """A fault of the group and one of the nearest other group that tell the order of both."""
        for other in others:
            pairs = product(other, group) if backwards else product(group, other)
            for pair in pairs:
                if self._tell_an_order(*pair):
                    return pair
        return None

    def _tell_an_order(self, first: Fault, second: Fault) -> bool:
        """Whether the second one would be the answer if its check came first."""
        if first.answer == second.answer or not _fit(first, second):
            return False
        wanted = self._first_of(second)
        draft = Draft(self.call(first, second), product_of(self.soc), CATALOGUE)
        for rule in self.operator.checks:
            if rule.description == wanted:
                with suppress(LookupError):
                    return _refuses(rule, draft)
                return False
            if rule.finds:
                with suppress(LookupError):
                    _refuses(rule, draft)
        return False

    def refusing(self) -> set[str]:
        """The checks that are the first to refuse one of the faults."""
        return {self._first_of(fault) for fault in self.faults}

    def may_refuse(self) -> set[str]:
        """The checks that refuse anything; floats that passed a list always promote."""
        refusing = {rule.description for rule in self.operator.checks if rule.status}
        return {text for text in refusing if "promote" not in text}

    def _first_of(self, fault: Fault) -> str:
        draft = Draft(self.call(fault), product_of(self.soc), CATALOGUE)
        for rule in self.operator.checks:
            try:
                rule.check(draft)
            except NpucallError:
                return rule.description
        return "none"


def _each_with_the_next(group: Sequence[Fault]) -> list[tuple[Fault, Fault]]:
    """Each with the next one that fits to it."""
    pairs = []
    for number, first in enumerate(group):
        second = next((other for other in group[number + 1 :] if _fit(first, other)), None)
        pairs += [(first, second)] if second else []
    return pairs


def _refuses(rule: Rule, draft: Draft) -> bool:
    try:
        rule.check(draft)
    except NpucallError:
        return True
    return False


def _fit(first: Fault, second: Fault) -> bool:
    """Whether the answers differ, or name one tensor each, and no field is changed by both."""
    if first.answer == second.answer and len(first.blamed) > 1:
        return False
    for name in first.changes.keys() & second.changes.keys():
        one, other = first.changes[name], second.changes[name]
        if not (isinstance(one, dict) and isinstance(other, dict)) or one.keys() & other.keys():
            return False
    return True
