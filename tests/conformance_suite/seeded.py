"""What a deliberate fault is, and how faults are put into ``local:``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from npucall.declare.declaration import Operator

from .judging import use_instead

if TYPE_CHECKING:
    from npucall.declare.rules import Rule

Seed: TypeAlias = Callable[[pytest.MonkeyPatch], None]
AnyOperator: TypeAlias = Operator[..., Any]


@dataclass(frozen=True)
class Fault:
    """Something wrong with an operator, or with the code that evaluates all of them."""

    title: str
    operator: str
    """Name and variant, as ids of cases begin."""
    found_in: frozenset[str]
    """Blocks that must report it."""
    spared: frozenset[str]
    """Blocks that cannot see it and report nothing, so that the suite needs the other blocks."""
    seed: Seed
    soc: str = "Ascend910B1"
    profile: str = "cpu-strict"

    def __str__(self) -> str:
        return self.title.replace(" ", "-")


def fault(  # a fault has as many parts
    title: str,
    operator: str,
    seed: Seed,
    *,
    found_in: str,
    spared: str = "",
    soc: str = "Ascend910B1",
    profile: str = "cpu-strict",
) -> Fault:
    """A fault; blocks are separated by spaces."""
    blocks = frozenset(found_in.split()), frozenset(spared.split())
    return Fault(title, operator, *blocks, seed, soc, profile)


def changed(operator: AnyOperator, **fields: Any) -> Seed:
    """``local:`` has the operator with other fields."""
    return lambda monkeypatch: use_instead(monkeypatch, replace(operator, **fields))


def rules_of(operator: AnyOperator, start: str) -> list[Rule]:
    """The checks whose descriptions start like that; there must be some."""
    found = [rule for rule in operator.checks if rule.description.startswith(start)]
    if not found:
        raise ValueError(f"{operator.title}: expected a check that starts with {start!r}")
    return found


def without(operator: AnyOperator, start: str) -> Seed:
    """A check is missing."""
    gone = rules_of(operator, start)
    return changed(operator, checks=tuple(rule for rule in operator.checks if rule not in gone))


def moved_last(operator: AnyOperator, start: str) -> Seed:
    """A check comes after all others."""
    late = rules_of(operator, start)
    rest = [rule for rule in operator.checks if rule not in late]
    return changed(operator, checks=(*rest, *late))


def exchanged(operator: AnyOperator, start: str, new: Callable[[Rule], Rule]) -> Seed:
    """A check is replaced by another one."""
    old = rules_of(operator, start)
    checks = (new(rule) if rule in old else rule for rule in operator.checks)
    return changed(operator, checks=tuple(checks))
