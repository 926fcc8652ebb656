"""Where a rule holds: on some products, or if something is true of the call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Rule, listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.draft import Draft
    from npucall.products import Product


def on(products: tuple[Product, ...], rule: Rule) -> Rule:
    """The rule holds on these products only."""
    where = listed(tuple(product.soc for product in products))
    return when(lambda draft: draft.product in products, rule, f"on {where}")


def except_on(products: tuple[Product, ...], rule: Rule) -> Rule:
    """The rule holds on all products but these."""
    where = listed(tuple(product.soc for product in products))
    return when(lambda draft: draft.product not in products, rule, f"not on {where}")


def when(condition: Callable[[Draft], bool], rule: Rule, meaning: str) -> Rule:
    """The rule holds only if the condition does; ``meaning`` says it to people."""

    def check(draft: Draft) -> None:
        if condition(draft):
            rule.check(draft)

    return replace(rule, description=f"{meaning}: {rule.description}", check=check)


def not_empty(name: str) -> Callable[[Draft], bool]:
    """Condition for ``when``: the tensor has elements."""
    return lambda draft: 0 not in draft.shape(name)


def not_given(name: str) -> Callable[[Draft], bool]:
    """Condition for ``when``: the call leaves the output to the operator."""
    return lambda draft: draft.tensor(name) is None
