"""An attribute's value from Python -> the value that its C type holds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from npucall.declare.parameters import Attribute, Kind, Scalar, Value
from npucall.dtypes import BOOL, BY_NUMPY, DOUBLE, INT64, DType
from npucall.errors import AttributeValueError

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_INT8 = range(-(2**7), 2**7)
_UINT64 = range(-(2**63), 2**64)  # C makes a large number of a negative one
_INTEGERS = frozenset({Kind.INT64, Kind.INT32, Kind.INT, Kind.INT8, Kind.UINT64})


def attribute_value(name: str, attribute: Attribute, given: Any) -> Value:
    """The value of an attribute.

    Integers and floats may be NumPy's. An aclScalar has the dtype of a NumPy number; Python's own
    float, int and bool become DOUBLE, INT64 and BOOL. An array is any sequence of its members; an
    aclDataType is anything that NumPy takes for a dtype. A word that the attribute declares stands
    for its integer. A negative number for an uint64_t becomes one of 2^63 or more, as in C: -1 is
    2^64 - 1. Raises AttributeValueError, without an aclnn status, for what the C type cannot
    hold.
    """
    expected, convert = _KINDS[attribute.kind]
    try:
        spelled = attribute.words and isinstance(given, str)
        value = attribute.words.index(given) if spelled else convert(given)
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None:
        words = f", or one of {', '.join(map(repr, attribute.words))}" if attribute.words else ""
        raise _unfit(name, f"{expected}{words}", repr(given))
    return value


def check_range(name: str, kind: Kind, number: int) -> None:
    """Raises AttributeValueError for an integer that the C type of its attribute cannot hold."""
    expected, convert = _KINDS[kind]
    if kind in _INTEGERS and convert(number) is None:
        raise _unfit(name, expected, str(number))


def _unfit(name: str, expected: str, found: str) -> AttributeValueError:
    return AttributeValueError(f"{name}: expected {expected}, found {found}", parameter=name)


def _bool(given: Any) -> bool | None:
    return bool(given) if isinstance(given, bool | np.bool_) else None


def _int64(given: Any) -> int | None:
    return _integer(given, _INT64)


def _integer(given: Any, numbers: range) -> int | None:
    if isinstance(given, np.bool_):  # older versions of NumPy would count with it
        return None
    number = operator.index(given)
    return number if number in numbers else None


def _uint64(given: Any) -> int | None:
    number = _integer(given, _UINT64)
    return None if number is None else number % 2**64


def _float(given: Any) -> float | None:
    return None if isinstance(given, str | bytes | bool | np.bool_) else float(given)


def _text(given: Any) -> str | None:
    return str.__str__(given) if isinstance(given, str) and "\0" not in given else None


def _within(numbers: range) -> Callable[[Any], int | None]:
    return lambda given: _integer(given, numbers)


def _dtype(given: Any) -> DType | None:
    if given is None:  # which is float64 to NumPy
        return None
    return given if isinstance(given, DType) else BY_NUMPY.get(np.dtype(given))


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The conversion of a sequence, from that of its members."""

    def convert_all(given: Any) -> tuple[Any, ...] | None:
        members = tuple(convert(member) for member in given)
        return None if any(member is None for member in members) else members

    return convert_all


def _scalar(given: Any) -> Scalar | None:
    if isinstance(given, Scalar):
        return given if _holds(given.dtype, given.value) else None
    if isinstance(given, np.generic | np.ndarray) and given.ndim == 0:
        return Scalar(BY_NUMPY[given.dtype], given.item()) if given.dtype in BY_NUMPY else None
    kinds: dict[type, DType] = {bool: BOOL, int: INT64, float: DOUBLE}
    if type(given) not in kinds or (type(given) is int and given not in _INT64):
        return None
    return Scalar(kinds[type(given)], given)


def _holds(dtype: DType, value: float) -> bool:
    """Whether a dtype has the number; floats round it, and truth values know no other."""
    if dtype.kind != "int":
        return True
    limits = np.iinfo(dtype.numpy)
    return limits.min <= operator.index(value) <= limits.max  # type: ignore[arg-type]


_KINDS: dict[Kind, tuple[str, Callable[[Any], Any]]] = {
    Kind.INT64: ("an integer of 64 bits", _int64),
    Kind.INT32: ("an integer of 32 bits", _within(_INT32)),
    Kind.INT: ("an integer of 32 bits", _within(_INT32)),
    Kind.INT8: ("an integer of 8 bits", _within(_INT8)),
    Kind.UINT64: ("an integer from -2^63 to 2^64 - 1", _uint64),
    Kind.BOOL: ("True or False", _bool),
    Kind.FLOAT: ("a number", _float),
    Kind.DOUBLE: ("a number", _float),
    Kind.DTYPE: ("an element type", _dtype),
    Kind.STRING: ("a text without a zero byte", _text),
    Kind.SCALAR: ("a number", _scalar),
    Kind.SCALAR_LIST: ("a sequence of numbers", _each(_scalar)),
    Kind.INT_ARRAY: ("a sequence of integers of 64 bits", _each(_int64)),
    Kind.FLOAT_ARRAY: ("a sequence of numbers", _each(_float)),
    Kind.BOOL_ARRAY: ("a sequence of True and False", _each(_bool)),
}
"""What is expected of each kind, and what makes its value of what is given; None: it cannot be."""
