"""An operator as people meet it in a notebook: one line, and its page of help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from npucall.declare.parameters import Attribute, Input, Output, Parameter, c_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from npucall.declare.declaration import Operator


def in_short(operator: Operator[Any, Any]) -> str:
    """The operator on one line, with what a call gives it."""
    title = f"{operator.name}({', '.join(_given(operator))})"
    if operator.variant:
        title += f" of the variant {operator.variant}"
    return f"<operator {title}>" if operator.reference else f"<operator {title}, no reference>"


def page(operator: Operator[Any, Any]) -> str:
    """What ``help`` shows: the description, the parameters, dtypes of products, and the rules."""
    products = {**operator.products, **operator.legacy}
    sections = {
        f"Parameters of {operator.title}": [_parameter(operator, p) for p in _parameters(operator)],
        "Outputs": [_output(p) for p in operator.outputs],
        "Dtypes": [f"{product}: {', '.join(map(str, products[product]))}" for product in products],
        "Rules, in the order in which they are checked": [
            f"{rule.description}{f' ({rule.finds})' if rule.finds else ''}"
            for rule in operator.checks
        ],
        "To call it": [f"client.run({called(operator)}, ...)"],
    }
    texts = [operator.description, *(_section(*each) for each in sections.items() if each[1])]
    return "\n\n".join(texts)


def like_a_function(kind: type[Operator[Any, Any]]) -> None:
    """Gives the class what notebooks ask a function for.

    Type checkers do not see it: to them a call of an operator is an error.
    """
    attributes = {
        "__call__": _refuse_call,
        "__doc__": _OfObject(page, kind.__doc__),
        "__signature__": _OfObject(lambda operator: operator.signature),
        "__wrapped__": _OfObject(_formula_of),
    }
    for name, attribute in attributes.items():
        setattr(kind, name, attribute)


def called(operator: Operator[Any, Any]) -> str:
    """What a call names it by: the Python object, or in quotes the name in C."""
    return operator.formula.__name__ if operator.formula else f'"{operator.name}"'


def _given(operator: Operator[Any, Any]) -> Iterator[str]:
    """The inputs and attributes; after a star those that are given by name alone."""
    if operator.formula is None:
        yield "*"
    for parameter in _parameters(operator):
        required = parameter.name in operator.required
        yield parameter.name if required else f"{parameter.name}={_default(operator, parameter)}"


def _parameters(operator: Operator[Any, Any]) -> Iterator[Parameter]:
    """What calls give: all but outputs, except those that are updated."""
    given = operator.given
    return (p for p in operator.parameters if isinstance(p, Attribute) or p in given)


def _default(operator: Operator[Any, Any], parameter: Parameter) -> str:
    return repr(operator.default(parameter) if isinstance(parameter, Attribute) else None)


def _parameter(operator: Operator[Any, Any], parameter: Parameter) -> str:
    kind = parameter.c_type if isinstance(parameter, Attribute) else "tensor"
    if not isinstance(parameter, Attribute) and parameter.many:
        kind = "list of tensors"
    default = _default(operator, parameter)
    kind += "" if parameter.name in operator.required else f", {default} if not given"
    return f"{_named(parameter)}: {kind}. {_meaning(parameter)}".rstrip()


def _output(output: Output) -> str:
    derived = f"; shape: {output.shape}, dtype: {output.dtype}" if output.shape else ""
    null = "; may be null, and is not computed then" if output.nullable else ""
    return f"{_named(output)}: {output.description or 'tensor'}{derived}{null}"


def _named(parameter: Parameter) -> str:
    in_c = c_name(parameter)
    return parameter.name if in_c == parameter.name else f"{parameter.name} ({in_c} in C)"


def _meaning(parameter: Parameter) -> str:
    unread = isinstance(parameter, Input) and not parameter.read
    return parameter.description + ("; its values are not read" if unread else "")


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n    ".join([f"{title}:", *lines])


class _OfObject:
    """An attribute that each object computes for itself, while its class has another one.

    Python asks classes too for ``__doc__``, ``__signature__`` and ``__wrapped__``. ``of_class`` is
    what the class answers; without it the class does not have the attribute.
    """

    def __init__(self, found: Callable[[Any], Any], of_class: str | None = None) -> None:
        self._found = found
        self._of_class = of_class

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None:
            return self._found(instance)
        if self._of_class is None:
            raise AttributeError(f"{owner.__name__} has this of its objects alone")
        return self._of_class


def _refuse_call(operator: Operator[Any, Any], *_: object, **__: object) -> NoReturn:
    raise TypeError(
        f"{operator.name}: an operator is called through a client: "
        f"client.run({called(operator)}, ...)"
    )


def _formula_of(operator: Operator[Any, Any]) -> Any:
    """The source that ``??`` and ``inspect.getsource`` show."""
    if operator.formula is None:
        raise AttributeError(f"{operator.title} has no formula")
    return operator.formula
