"""In-place twins: operators that write what another one makes of ``self`` into ``self``.

Their rules are those of the other with one tensor as both ``self`` and ``out``: what ``self`` and
other tensors broadcast to must have its shape, and the result's dtype must fit into its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from npucall.declare.call import Argument, Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator, Sample
from npucall.declare.domain import AtOnce, Domain, Elementwise
from npucall.declare.draft import Draft
from npucall.declare.facts import Facts
from npucall.declare.families import made
from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.rules.rule import Rule
from npucall.dtypes import INT64, DType, can_cast
from npucall.errors import NpucallError
from npucall.products import Product
from npucall.tensors import TensorSpec

_BOTH = ("self", "out")
_TWIN = "self_ref"
_NAMES = re.compile(r"\b(self|out)\b")
_SAYS_NOTHING = re.compile(
    rf"\w+ of {_TWIN} is that of {_TWIN}|{_TWIN}: the dtype of {_TWIN}"
    rf"|{_TWIN} can be cast to .* {_TWIN}"
)
"""Of rules that compare ``self`` with ``out``."""


def in_place(
    operator: Operator[Any, Any],
    source: str = "",
    *,
    first: tuple[Rule, ...] = (),
    const: bool = False,
) -> Operator[..., Any]:
    """``aclnnInplaceName`` of an operator ``aclnnName`` of ``self``, other inputs and ``out``.

    ``first``: rules that the twin makes right behind that of null pointers. ``const``: its C
    prototype says so of the tensor, although it is written.
    """
    assert operator.over is not None  # noqa: S101  # others have no twin
    assert operator.values is None  # noqa: S101
    own = [_of_twin(each, const=const) for each in operator.parameters if each.name != "out"]
    null, *others = operator.checks
    order = [null, *first, *(rule for rule in others if rule not in first)]
    rules = [_renamed(rule, operator) for rule in order]
    said = {rule.description: rule for rule in reversed(rules)}
    kept = [said.pop(rule.description) for rule in rules if rule.description in said]
    kernel: Any = operator.kernel_dtype
    products, legacy = (_held(operator, each) for each in (operator.products, operator.legacy))
    return replace(
        operator,
        name=operator.name.replace("aclnn", "aclnnInplace"),
        parameters=tuple(own),
        products=products,
        legacy=legacy,
        checks=tuple(rule for rule in kept if not _SAYS_NOTHING.search(rule.description)),
        kernel_dtype=lambda draft: kernel(_plain(operator, draft)),
        over=_over(operator.over),
        formula=_formula(operator),
        sample=_sample(operator.sample),
        source=source or operator.source,
    )


def _held(operator: Operator[Any, Any], on: Mapping[Product, Any]) -> dict[Product, Any]:
    """The dtypes of products whose results ``self`` can hold: those of integers may be floats."""
    result = operator.by_name["out"].dtype

    def holds(dtype: DType, product: Product) -> bool:
        given = {each.name: _of_dtype(each, dtype) for each in operator.parameters}
        draft = Draft(Call(operator, given, ()), product, Catalogue(()))
        return can_cast(draft.dtype(result), dtype)

    return {
        product: tuple(each for each in dtypes if holds(each, product))
        for product, dtypes in on.items()
    }


def _of_dtype(parameter: Any, dtype: DType) -> Argument:
    """A tensor of that dtype; a number without a fraction."""
    if not isinstance(parameter, Attribute):
        return TensorSpec(dtype, ())
    return Scalar(INT64, 1) if parameter.kind is Kind.SCALAR else None


def _of_twin(parameter: Any, *, const: bool) -> Any:
    if parameter.name != "self":
        return replace(parameter, dtype=_twin(parameter.dtype))
    assert isinstance(parameter, Input)  # noqa: S101
    description = parameter.description
    return Output(_TWIN, description, shape=_TWIN, dtype=_TWIN, in_place=True, const=const)


def _over(over: Domain) -> Domain:
    if isinstance(over, Elementwise):
        return replace(over, space=_TWIN if over.space == "self" else over.space)
    assert isinstance(over, AtOnce)  # noqa: S101  # rows have no twin
    holds, computes = map(_counting, (over.holds, over.computes))
    return replace(over, holds=holds, computes=computes)


def _counting(count: Any) -> Any:
    return count and (lambda facts, attributes: count(_plain_facts(facts), attributes))


def _plain_facts(facts: Facts) -> Facts:
    """The same facts, with the names of the operator itself."""
    outputs = facts.outputs and {"out": facts.outputs[_TWIN]}
    shapes = {**facts.shapes, **dict.fromkeys(_BOTH, facts.shapes[_TWIN])}
    return replace(facts, shapes=shapes, outputs=outputs)


def _sample(sample: Sample) -> Sample:
    """With the dtype of all others for ``self``, which so holds the result."""
    shapes = {_twin(name): each for name, each in sample.shapes.items()}
    dtypes = {name: each for name, each in sample.dtypes.items() if name != "self"}
    return replace(sample, shapes=shapes, dtypes=dtypes)


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
    return re.sub(rf"\b({_TWIN}\b.*), (\w+) and {_TWIN}\b", r"\1 and \2", named)


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_twin, names)))


def _formula(operator: Operator[Any, Any]) -> Callable[..., Any]:
    """The operator's, with the names and the signature of its twin."""
    plain: Any = operator.formula
    by_name = isinstance(operator.over, AtOnce)  # others ask facts for nothing by name

    def compute(facts: Facts, given: Mapping[str, Any]) -> Any:
        own = {"self" if name == _TWIN else name: value for name, value in given.items()}
        return plain(_plain_facts(facts) if by_name else facts, **own)

    signature = inspect.signature(plain)
    parameters = [
        each.replace(name=_TWIN) if each.name == "self" else each
        for each in signature.parameters.values()
    ]
    listed = ", ".join(each.name for each in parameters[1:])
    text = f"""``{operator.name}`` whose result is written into its input.

    ::

        {_TWIN} = {plain.__name__}({listed})

    All else is as in ``{operator.name}``: ``{_TWIN}`` is its ``self`` and its ``out``.
    """
    name = f"inplace_{plain.__name__}"
    return made(compute, signature.replace(parameters=parameters), name, plain.__module__, text)
