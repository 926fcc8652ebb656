"""The catalogue: every declared operator, found by name and variant."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from npucall.declare.declaration import Operator
from npucall.errors import OperatorUnknownError
from npucall.products import Product
from npucall.texts import did_you_mean, plain


class Catalogue:
    """Operators by name and variant. Never changes once it exists.

    A function that finds them is called when somebody first asks: to import all takes time.
    """

    def __init__(
        self, operators: Iterable[Operator[Any, Any]] | Callable[[], Iterable[Operator[Any, Any]]]
    ) -> None:
        if callable(operators):
            self._find = operators
        else:
            self._operators = _by_name(operators)

    @cached_property
    def _operators(self) -> Mapping[str, Mapping[str, Operator[Any, Any]]]:
        return _by_name(self._find())

    @cached_property
    def _spelled(self) -> Mapping[str, str]:
        """Names by their plain spelling."""
        return {plain(name): name for name in self._operators}

    def __repr__(self) -> str:
        return (
            f"<catalogue of {len(self)} operators: print(CATALOGUE) lists them, "
            'CATALOGUE["aclnnKlDiv"] is one of them>'
        )

    def __str__(self) -> str:
        width = max((len(operator.title) for operator in self), default=0)
        return "\n".join(f"{each.title:{width}}  {each.summary}" for each in self)

    def __len__(self) -> int:
        return sum(map(len, self._operators.values()))

    def __getitem__(self, key: str | tuple[str, str]) -> Operator[Any, Any]:
        """An operator by its name, or by its name and variant. Raises OperatorUnknownError."""
        return self.find(key) if isinstance(key, str) else self.find(*key)

    def _ipython_key_completions_(self) -> list[str]:
        """What IPython offers after the bracket."""
        return list(self._operators)

    def __iter__(self) -> Iterator[Operator[Any, Any]]:
        """Every operator, by name, then variant."""
        for variants in self._operators.values():
            yield from variants.values()

    def c_name(self, name: str) -> str:
        """An operator's name in C; ``KlDivBackward`` and ``kl_div_backward`` mean the same one.

        ``AnyOther`` gets the prefix that nearly all of them have.
        """
        if name in self._operators or name.startswith("acl"):
            return name
        return self._spelled.get(plain(name), f"aclnn{name}" if name[:1].isupper() else name)

    def of_name(self, name: str) -> tuple[Operator[Any, Any], ...]:
        """The variants of an operator, or the only one there is; empty for an unknown name."""
        return tuple(self._operators.get(name, {}).values())

    def find(self, name: str, variant: str = "", default: str = "") -> Operator[Any, Any]:
        """The operator; ``default`` is the variant taken if none is named and there are several.

        Raises OperatorUnknownError.
        """
        variants = self._operators.get(name)
        if variants is None:
            raise OperatorUnknownError(
                f"operator: expected one that this server lists, found {name!r}"
                f"{did_you_mean(name, self._operators)}",
                operator=name,
            )
        wanted = variant or (default if "" not in variants else "")
        if wanted not in variants:
            raise OperatorUnknownError(
                f"variant: {name} has {', '.join(filter(None, variants)) or 'no variants'}, "
                f"found {wanted!r}",
                parameter="variant",
                operator=name,
                variant=wanted,
            )
        return variants[wanted]

    def runnable(self, name: str, variant: str = "", default: str = "") -> Operator[Any, Any]:
        """``find`` for an operator that shall run; refuses one that cannot run here."""
        return self.find(name, variant, default)

    def variants(self, product: Product | None = None) -> tuple[str, ...]:
        """Every variant among which a server has to choose; on a product, if one is given.

        Not those beside an operator without a variant: a call that names none means that one.
        """
        there = (each for each in self if product is None or each.dtypes_on(product))
        return tuple(
            sorted({each.variant for each in there if "" not in self._operators[each.name]})
        )

    def default_variant(self, product: Product, wanted: str) -> str:
        """The variant for calls that name none: the wanted one, if the product has it.

        Else its first one. A product without any variant keeps the wanted one, so that the rules
        refuse the call with that name; without a default the operator would seem unknown.
        """
        there = self.variants(product)
        return wanted if wanted in there or not there else there[0]

    def variants_on(self, name: str, product: Product) -> tuple[str, ...]:
        """The variants of an operator that a product has."""
        there = (operator for operator in self.of_name(name) if operator.dtypes_on(product))
        return tuple(operator.variant for operator in there if operator.variant)


def _by_name(
    operators: Iterable[Operator[Any, Any]],
) -> Mapping[str, Mapping[str, Operator[Any, Any]]]:
    """Operators by name, then variant. Raises ValueError if two have the same."""
    found: dict[str, dict[str, Operator[Any, Any]]] = {}
    for operator in sorted(operators, key=lambda operator: (operator.name, operator.variant)):
        variants = found.setdefault(operator.name, {})
        if variants.setdefault(operator.variant, operator) is not operator:
            raise ValueError(f"{operator.title} is declared twice")
    return found


def operators_of(package: str, path: Iterable[str]) -> Iterator[Operator[Any, Any]]:
    """The operators in the modules of a package, except modules that start with an underscore."""
    for module in pkgutil.iter_modules(path):
        if not module.name.startswith("_"):
            names = vars(importlib.import_module(f"{package}.{module.name}"))
            yield from (value for value in names.values() if isinstance(value, Operator))
