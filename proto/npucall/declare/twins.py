"""In-place twins: operators that write what another one makes of ``self`` into ``self``.

Their rules are those of the other with one tensor as both ``self`` and ``out``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from npucall.declare.call import Call
from npucall.declare.declaration import Operator
from npucall.declare.domain import Elementwise
from npucall.declare.draft import Draft
from npucall.declare.facts import Facts
from npucall.declare.families import made
from npucall.declare.parameters import Input, Output
from npucall.declare.rules.rule import Rule
from npucall.errors import NpucallError
from npucall.products import Product

_BOTH = ("self", "out")
_TWIN = "self_ref"
_NAMES = re.compile(r"\b(self|out)\b")
_SAYS_NOTHING = re.compile(
    rf"\w+ of {_TWIN} is that of {_TWIN}|{_TWIN}: the dtype of {_TWIN}"
    rf"|{_TWIN} can be cast to .* {_TWIN}|result can be cast to .* {_TWIN}"
    rf"|{_TWIN}: a floating or complex dtype|dtype of {_TWIN} is FLOAT, FLOAT16, BF16, DOUBLE"
)
"""Of rules that compare ``self`` with ``out``."""


def in_place(operator: Operator[Any, Any], source: str = "") -> Operator[..., Any]:
    """``aclnnInplaceName`` of an elementwise operator ``aclnnName`` of ``self`` and ``out``."""
    over = operator.over
    assert isinstance(over, Elementwise)  # noqa: S101  # others have no twin
    products, legacy = (_held(operator, each) for each in (operator.products, operator.legacy))
    operator = replace(operator, products=products, legacy=legacy)  # by which its rules go, too
    own = [_of_twin(each) for each in operator.parameters if each.name != "out"]
    rules = [_renamed(rule, operator) for rule in operator.checks]
    said = {rule.description: rule for rule in reversed(rules)}
    kept = [said.pop(rule.description) for rule in rules if rule.description in said]
    kernel: Any = operator.kernel_dtype
    return replace(
        operator,
        name=operator.name.replace("aclnn", "aclnnInplace"),
        parameters=tuple(own),
        checks=tuple(rule for rule in kept if not _SAYS_NOTHING.search(rule.description)),
        kernel_dtype=lambda draft: kernel(_plain(operator, draft)),
        over=replace(over, space=_TWIN if over.space == "self" else over.space),
        formula=_formula(operator),
        source=source or operator.source,
    )


def _held(operator: Operator[Any, Any], on: Mapping[Product, Any]) -> dict[Product, Any]:
    """The dtypes of products whose results ``self`` can hold: those of integers may be floats."""
    if operator.by_name["out"].dtype == "self":
        return dict(on)
    return {
        product: tuple(each for each in dtypes if each.kind in ("float", "complex"))
        for product, dtypes in on.items()
    }


def _of_twin(parameter: Any) -> Any:
    if parameter.name != "self":
        return replace(parameter, dtype=_twin(parameter.dtype))
    assert isinstance(parameter, Input)  # noqa: S101
    return Output(_TWIN, parameter.description, shape=_TWIN, dtype=_TWIN, in_place=True)


def _plain(operator: Operator[Any, Any], draft: Draft) -> Draft:
    """The same call of the operator itself; what its rules find is found for both."""
    names = [each.name for each in draft.operator.parameters]
    given = {name: draft._arguments[name] for name in names if name in draft._arguments}  # noqa: SLF001
    own = given.pop(_TWIN, None)
    plain = Draft(
        Call(operator, {**dict.fromkeys(_BOTH, own), **given}, ()), draft.product, draft.catalogue
    )
    plain.found_shapes, plain.found_dtypes = draft.found_shapes, draft.found_dtypes
    plain.warnings = draft.warnings
    return plain


def _renamed(rule: Rule, operator: Operator[Any, Any]) -> Rule:
    def check(draft: Draft) -> None:
        try:
            rule.check(_plain(operator, draft))
        except NpucallError as error:
            error.args = (_twin(str(error)),)
            error.parameters = _once(error.parameters)
            raise

    return replace(
        rule, description=_twin(rule.description), blames=_once(rule.blames), check=check
    )


def _twin(text: str) -> str:
    """With the twin's name, once in a row of names."""
    named = _NAMES.sub(_TWIN, text)
    named = re.sub(rf"\b{_TWIN}(?:, | and | or ){_TWIN}\b", _TWIN, named)
    return re.sub(rf"^({_TWIN}.*), (\w+) and {_TWIN}\b", r"\1 and \2", named)


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_twin, names)))


def _formula(operator: Operator[Any, Any]) -> Callable[..., Any]:
    """The operator's, with the names and the signature of its twin."""
    plain: Any = operator.formula

    def compute(facts: Facts, given: Mapping[str, Any]) -> Any:
        own = {"self" if name == _TWIN else name: value for name, value in given.items()}
        return plain(facts, **own)

    signature = inspect.signature(plain)
    parameters = [
        each.replace(name=_TWIN) if each.name == "self" else each
        for each in signature.parameters.values()
    ]
    text = f"""``{operator.name}`` whose result is written into its input.

    ::

        {_TWIN} = {plain.__name__}({_TWIN})

    All else is as in ``{operator.name}``: ``{_TWIN}`` is its ``self`` and its ``out``.
    """
    name = f"inplace_{plain.__name__}"
    return made(compute, signature.replace(parameters=parameters), name, plain.__module__, text)
