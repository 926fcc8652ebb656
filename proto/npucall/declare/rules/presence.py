"""Rules about what is given at all, and about tensors without elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.parameters import c_name
from npucall.declare.rules.rule import EndOfChecks, Fault, Rule, listed, refuses
from npucall.errors import PARAM_NULLPTR, ArgumentMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.declare.draft import Draft


def present(*names: str) -> Rule:
    """None of them is absent; the first that is gives 161001 [src:null-first].

    An output that the call does not ask for may be.
    """

    def faults(draft: Draft) -> Iterator[Fault]:
        for name in names:
            if draft.absent(name) and draft.asks(name):
                null = c_name(draft.operator.by_name[name])
                yield name, "a value", f"none (a null {null})"
            for member in draft.lists.get(name, ()):
                if draft.tensor(member) is None:
                    yield member, "a tensor", "none (a null member)"

    text = f"{listed(names)} must not be null"
    return refuses(ArgumentMissingError, text, names, faults, status=PARAM_NULLPTR)


def succeed_if_empty(*names: str) -> Rule:
    """If one of them is empty the call is done; its outputs are zeros [src:empty-tensors]."""

    def check(draft: Draft) -> None:
        if any(spec.elements == 0 for _, spec in draft.tensors(names)):
            raise EndOfChecks

    return Rule(f"if {listed(names, 'or')} is empty, the call is done", (), 0, check)


def succeed_if_all_empty(*names: str) -> Rule:
    """If the call gives all of them, and none has elements, it is done."""

    def check(draft: Draft) -> None:
        given = [spec for _, spec in draft.tensors(names)]
        if len(given) == len(draft.members(*names)) and not any(spec.elements for spec in given):
            raise EndOfChecks

    return Rule(f"if {listed(names)} are all empty, the call is done", (), 0, check)


def fill_if_empty(
    *names: str,
    fill: Callable[[Draft], float | None],
    meaning: str,
    outputs: tuple[str, ...] = (),
) -> Rule:
    """If one of them has no elements the call is done, and its outputs are filled with a number.

    ``fill``: that number; None where the operator writes nothing, so that outputs are zeros.
    ``meaning`` says to people what it is. ``outputs``: those that are filled, if not all; the
    others are zeros.
    """

    def check(draft: Draft) -> None:
        if any(spec.elements == 0 for _, spec in draft.tensors(names)):
            raise EndOfChecks(fill(draft), outputs)

    filled = f"{listed(outputs)} is" if outputs else "outputs are"
    text = f"if {listed(names, 'or')} is empty, the call is done, and {filled} {meaning}"
    return Rule(text, (), 0, check)
