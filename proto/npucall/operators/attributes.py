"""What Python callers give for an attribute -> the value that its C type holds."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, BY_NUMPY, DOUBLE, INT64, DType
from npucall.errors import AttributeValueError
from npucall.operators.spec import Attribute, Kind, Scalar, Value

_INT64 = range(-(2**63), 2**63)


def attribute_value(name: str, attribute: Attribute | None, given: Any) -> Value:
    """The value of an attribute.

    ``attribute`` is None for an operator that is not declared here: then the Python type decides.
    Integers and floats may be NumPy's. An aclScalar has the dtype of a NumPy number; Python's own
    float, int and bool become DOUBLE, INT64 and BOOL. An aclIntArray is any sequence of integers.
    Raises AttributeValueError, without an aclnn status, for what the C type cannot hold.
    """
    kind = attribute.kind if attribute else _kind_of(given)
    try:
        value = _CONVERSIONS[kind](given) if kind else None
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None:
        expected = _EXPECTED[kind] if kind else "an integer, a number, a text or integers"
        raise AttributeValueError(f"{name}: expected {expected}, found {given!r}", parameter=name)
    return value


def _kind_of(given: Any) -> Kind | None:
    types = {
        bool: Kind.BOOL,
        int: Kind.INT64,
        float: Kind.DOUBLE,
        str: Kind.STRING,
        Scalar: Kind.SCALAR,
    }
    return Kind.INT_ARRAY if isinstance(given, list | tuple) else types.get(type(given))


def _bool(given: Any) -> bool | None:
    return bool(given) if isinstance(given, bool | np.bool_) else None


def _int64(given: Any) -> int | None:
    if isinstance(given, np.bool_):  # older versions of NumPy would count with it
        return None
    number = operator.index(given)
    return number if number in _INT64 else None


def _float(given: Any) -> float | None:
    return None if isinstance(given, str | bytes | bool | np.bool_) else float(given)


def _text(given: Any) -> str | None:
    return str.__str__(given) if isinstance(given, str) and "\0" not in given else None


def _integers(given: Any) -> tuple[int, ...] | None:
    numbers = tuple(_int64(number) for number in given)
    return None if None in numbers else numbers  # type: ignore[return-value]


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


_CONVERSIONS = {
    Kind.INT64: _int64,
    Kind.BOOL: _bool,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.STRING: _text,
    Kind.SCALAR: _scalar,
    Kind.INT_ARRAY: _integers,
}
_EXPECTED = {
    Kind.INT64: "an integer of 64 bits",
    Kind.BOOL: "True or False",
    Kind.FLOAT: "a number",
    Kind.DOUBLE: "a number",
    Kind.STRING: "a text without a zero byte",
    Kind.SCALAR: "a number",
    Kind.INT_ARRAY: "a sequence of integers of 64 bits",
}
