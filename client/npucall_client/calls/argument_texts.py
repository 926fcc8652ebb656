"""From NAME=VALUE, as a user types it, to the arguments of a call."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npucall.declare.declaration import Operator
from npucall.declare.names import python_name
from npucall.declare.parameters import Attribute, Kind, Output, Parameter
from npucall.dtypes import dtype_named
from npucall.operators import CATALOGUE
from npucall.tensors import Shape
from npucall.texts import did_you_mean
from npucall_client.calls.tensors import Empty

_AS_TYPED = (Kind.STRING, Kind.DTYPE)
"""Attributes that are taken as they are typed; quotes are not needed."""

_SHAPE = r"(?:\d+(?:x\d+)*)?"
_EMPTY = re.compile(rf"([A-Za-z]\w*):({_SHAPE})")
"""A tensor without data: DTYPE:SHAPE."""
_JSON_WORDS = ("null", "true", "false")


def arguments_of(
    texts: Sequence[str], operator: Operator[Any, Any], dtype: str, written: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a call and its outputs, by name.

    ``dtype`` is that of tensors given as numbers; labels are always int64. An operator with a
    reference makes its outputs itself. For another operator the user gives each output, and
    ``written`` names the outputs that its listing takes for inputs.
    Raises ValueError for a text that cannot be read, and for an unknown name.
    """
    if operator.reference and written:
        raise ValueError(f"{written[0]}: {operator.name} knows its outputs itself")
    called = operator.with_roles(dict.fromkeys(written, Output))
    known = [p for p in called.parameters if not (operator.reference and isinstance(p, Output))]
    by_name = {parameter.name: parameter for parameter in known}
    for name in written:
        _check(name, name, by_name, "expected a name")
    declared = CATALOGUE.of_name(operator.name)
    own = {name: str(each.numpy) for of in declared for name, each in of.sample.dtypes.items()}
    worded = {parameter.name for of in declared for parameter in of.attributes if parameter.words}
    arguments: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for text in texts:
        typed, equals, value = text.partition("=")
        name = python_name(called, typed)
        _check(text, name if equals else "", by_name, "expected NAME=VALUE with a name")
        if name in arguments or name in outputs:
            raise ValueError(f"{text}: expected {name} once, found it twice")
        kind = outputs if isinstance(by_name[name], Output) else arguments
        word = _word(value) if name in worded else ""
        kind[name] = word or _value(by_name[name], value, own.get(name, dtype))
    return arguments, outputs


def shape_of(text: str) -> Shape:
    """The shape that is typed as 64x1000; of a scalar nothing. Raises ValueError."""
    if not re.fullmatch(_SHAPE, text):
        raise ValueError(f"shape: expected extents such as 64x1000, found {text!r}")
    return tuple(int(extent) for extent in text.split("x") if extent)


def _check(text: str, name: str, known: Collection[str], expected: str) -> None:
    """Raises ValueError for a name that no parameter has."""
    if name not in known:
        hint = did_you_mean(name, known)
        raise ValueError(f"{text}: {expected} among {', '.join(known)}{hint}")


def _word(text: str) -> str:
    """The word for a number; empty if the text is none."""
    text = text.strip('"')
    return text if text.isalpha() and text not in _JSON_WORDS else ""


def _value(parameter: Parameter, text: str, dtype: str) -> Any:
    if isinstance(parameter, Attribute) and parameter.kind in _AS_TYPED:
        return None if text == "null" else text.strip('"')
    many = not isinstance(parameter, Attribute) and parameter.many
    if text.endswith(".npy"):
        arrays = [_load(path, dtype) for path in (text.split(",") if many else [text])]
        return arrays if many else arrays[0]
    if found := _EMPTY.fullmatch(text):
        return Empty(shape_of(found[2]), dtype_named(found[1]).numpy)
    value = _read_json(parameter.name, text)
    if value is None or isinstance(parameter, Attribute):
        return value
    if not many:
        return np.array(value, dtype_named(dtype).numpy)
    if not isinstance(value, list):
        raise ValueError(  # noqa: TRY004  # what was typed is a text, whatever it means
            f"{parameter.name}: expected a list of arrays, found {text!r}"
        )
    return [np.array(member, dtype_named(dtype).numpy) for member in value]


def _read_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(
            f"{name}: expected a .npy file, DTYPE:SHAPE, or numbers, true, false or null, found "
            f"{text!r}"
        ) from None


def _load(path: str, dtype: str) -> Any:
    """The array in a file. NumPy writes types that it does not have itself without their names."""
    try:
        array = np.load(Path(path), allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path}: expected a file that numpy.save wrote, found another") from error
    except OSError as error:
        raise ValueError(f"{path}: expected a file that can be read: {error.strerror}") from error
    return array.view(dtype_named(dtype).numpy) if array.dtype.kind == "V" else array
