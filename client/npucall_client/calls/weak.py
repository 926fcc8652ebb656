"""Python numbers and nested lists as tensors: they take the dtype of the other inputs. Pure."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import BY_NUMPY
from npucall.errors import ArgumentError
from npucall_client.calls import arrays
from npucall_client.calls.tensors import HeldTensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall.declare.parameters import Parameter
    from npucall.dtypes import AnyArray

KINDS = (bool, int, float, list, tuple, range)
"""The types of such values."""


def tensor_of(parameter: Parameter, value: Any, others: Iterable[Any]) -> AnyArray:
    """The array that a value means beside the other arguments of its call.

    A truth is BOOL, an index INT64. Another number has the dtype of the first other input that can
    hold its kind; if there is none, a float is FLOAT and an integer INT64. Raises ArgumentError for
    lists of several lengths, and for what that dtype cannot hold.
    """
    name = parameter.name
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentError(
            f"{name}: expected lists of the same length, found several lengths", parameter=name
        ) from None
    kind = array.dtype.kind
    if kind == "O":
        raise ArgumentError(
            f"{name}: expected numbers of up to 64 bits, found {reprlib.repr(value)}",
            parameter=name,
        )
    if kind not in "iuf" or getattr(parameter, "as_is", False):
        return array
    is_whole = kind != "f"
    dtype = next((each for each in _dtypes(others) if is_whole or _is_float(each)), None)
    if dtype is None:
        return array if is_whole else array.astype(np.float32)
    found = array.astype(dtype)
    if not _is_float(dtype) and not np.array_equal(found, array):
        raise ArgumentError(
            f"{name}: expected numbers that {BY_NUMPY[dtype]} can hold, which other inputs have, "
            f"found {array.min()} to {array.max()}",
            parameter=name,
        )
    return found


def _dtypes(others: Iterable[Any]) -> Iterable[np.dtype[Any]]:
    for value in others:
        if isinstance(value, HeldTensor):
            yield value.tensor[0]
        elif arrays.is_torch(value):
            yield arrays.dtype_of_torch("input", value)
        elif getattr(value, "dtype", None) in BY_NUMPY:
            yield np.dtype(value.dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return BY_NUMPY[dtype].kind == "float"
