"""Formulas of operators that a table declares: a row has the names, and all compute alike.

Type checkers see no arguments of such an operator; ``help`` and the checks of a call do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import Signature
from itertools import takewhile
from typing import Any, TypeAlias

from npucall.declare.facts import Facts
from npucall.declare.parameters import Input, Kind, Output, Parameter
from npucall.dtypes import Array

Compute: TypeAlias = "Callable[[Facts, Mapping[str, Any]], Any]"
"""Gets the facts of a call, and its arrays and attributes by name."""
_TYPES: Mapping[Kind, Any] = {
    Kind.BOOL: bool,
    Kind.DOUBLE: float,
    Kind.FLOAT: float,
    Kind.STRING: str,
    Kind.INT_ARRAY: tuple[int, ...],
    Kind.BOOL_ARRAY: tuple[bool, ...],
}
"""Of attributes; others are integers."""


def snake(name: str) -> str:
    """``aclnnUpsampleNearest2dBackward`` is ``upsample_nearest2d_backward`` in Python."""
    own = name.removeprefix("aclnn")
    own = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", own)
    return re.sub(r"(?<=\d)_(?=D\b|D_)", "", own).lower()


def formula_of(
    name: str,
    parameters: Sequence[Parameter],
    defaults: Mapping[str, Any],
    compute: Compute,
    text: str,
) -> Callable[..., Any]:
    """The formula of a row, under the operator's name in Python; ``text``: its docstring.

    ``compute`` belongs to the module that has the operator. Where an argument without a default is
    behind one that has it, callers name them.
    """
    given = [each for each in parameters if not isinstance(each, Output)]
    plain = len(list(takewhile(lambda each: each.name not in defaults, given)))
    mixed = any(each.name not in defaults for each in given[plain:])
    signature = Signature(
        [Argument("facts", Argument.POSITIONAL_OR_KEYWORD, annotation=Facts)]
        + [
            Argument(
                each.name,
                Argument.KEYWORD_ONLY
                if mixed and place >= plain
                else Argument.POSITIONAL_OR_KEYWORD,
                annotation=Array if isinstance(each, Input) else _TYPES.get(each.kind, int),
                default=defaults.get(each.name, Argument.empty),
            )
            for place, each in enumerate(given)
        ]
    )
    return made(compute, signature, snake(name), compute.__module__, text)


def made(
    compute: Compute, signature: Signature, name: str, module: str, text: str
) -> Callable[..., Any]:
    """A formula with that signature, as if a module had defined it."""

    def formula(facts: Facts, **given: Any) -> Any:
        return compute(facts, given)

    vars(formula)["__signature__"] = signature
    formula.__name__ = formula.__qualname__ = name
    formula.__module__, formula.__doc__ = module, text
    return formula
