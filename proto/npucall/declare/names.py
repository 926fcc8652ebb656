"""The names of arguments, as Python and as C spell them, and what is wrong with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from npucall.declare.parameters import Output, c_name
from npucall.texts import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.declare.declaration import Operator

T = TypeVar("T")


def python_name(operator: Operator[Any, Any], name: str) -> str:
    """The name of a parameter, given that or its name in C; another name is left as it is."""
    if name in operator.by_name:
        return name
    return next((p.name for p in operator.parameters if c_name(p) == name), name)


def in_python(operator: Operator[Any, Any], given: Mapping[str, T]) -> dict[str, T]:
    """The same by the names of Python. Raises TypeError where one is given by both its names."""
    named: dict[str, T] = {}
    for name, value in given.items():
        own = python_name(operator, name)
        if own in named:
            raise TypeError(
                f"{operator.name}: got {own} and {c_name(operator.by_name[own])}, which are the "
                "names of one argument in Python and in C; give one of them"
            )
        named[own] = value
    return named


def misfit(
    operator: Operator[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TypeError:
    """What is wrong with arguments that do not fit.

    Without a formula there is no signature: C has names that one refuses, such as ``from``.
    """
    known = [p.name for p in operator.parameters if not isinstance(p, Output)]
    if operator.formula is None and args:
        return TypeError(
            f"{operator.name}: expected arguments by name, found {len(args)} by position"
        )
    for name in kwargs:
        if name not in known:
            return TypeError(
                f"{operator.name}: got an unexpected keyword argument {name!r}; it has "
                f"{', '.join(known)}{did_you_mean(name, known)}"
            )
    if operator.formula is not None:
        try:
            operator.signature.bind(*args, **kwargs)
        except TypeError as error:
            return error
    missing = ", ".join(name for name in known if name in operator.required - kwargs.keys())
    return TypeError(f"{operator.name}: missing a required argument: {missing}")
