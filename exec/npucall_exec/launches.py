"""What the runtime tells of a call, one JSON text, and what npucall makes of it.

The text is an object::

    {"operator": "aclnnAdd", "package": "builtin" | "custom",
     "arguments": [{"name": "self", "kind": "Tensor", "output": false, "value": ...}, ...]}

Arguments stand in C order, each ``kind`` is the name of a member of ``sim::Kind``, and ``value`` is
null for a null pointer, else by kind:

- Tensor: ``{"dtype", "shape", "strides", "offset", "storage_shape", "format"}``;
- Scalar: ``{"dtype", "bytes"}``, the bytes in hexadecimal digits;
- TensorList and ScalarList: a list of those; IntArray, FloatArray, BoolArray: a list;
- Integer, Real (NaN and Infinity as Python's json writes them), Boolean, DataType, Text: the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BY_NUMPY, DTYPES, FLOAT, FLOAT16, AnyArray
from npucall.errors import ArgumentError, DTypeError
from npucall.tensors import Format, TensorSpec

VARIANTS = {"builtin": "builtin", "custom": "community"}
"""The variants that have the same C symbol, by package."""
_BY_ACL = {dtype.acl: dtype for dtype in DTYPES}
SATURATED = {FLOAT.numpy, FLOAT16.numpy, BF16.numpy}


@dataclass(frozen=True)
class CallOfC:
    """A call as a program in C makes it."""

    operator: str
    package: str
    """"builtin" or "custom": which library has the operator."""
    values: Mapping[str, Any]
    """By name in C: a spec for a tensor, a list for a list, None for a null pointer."""
    outputs: frozenset[str]

    def with_tensors(self, make: Callable[[TensorSpec], Any]) -> dict[str, Any]:
        """The values, with what ``make`` makes of each tensor, in their order."""

        def made(value: Any) -> Any:
            if isinstance(value, TensorSpec):
                return make(value)
            return [made(item) for item in value] if isinstance(value, list) else value

        return {name: made(value) for name, value in self.values.items()}


def call_of(text: str | Mapping[str, Any]) -> CallOfC:
    """The call that a text tells. Raises the contract's errors for what cannot be."""
    told = json.loads(text) if isinstance(text, str) else text
    arguments = told["arguments"]
    return CallOfC(
        told["operator"],
        told["package"],
        {a["name"]: _decode(a["name"], a["kind"], a["value"]) for a in arguments},
        frozenset(a["name"] for a in arguments if a["output"]),
    )


def each(values: Iterable[Any]) -> Iterator[Any]:
    """Those of outputs that are no null pointers, the members of lists one by one."""
    for value in values:
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                yield one


def saturate(array: AnyArray) -> None:
    """Makes of infinities the largest number, and of NaN 0, as a stream without INFNAN does."""
    if array.dtype in SATURATED:
        largest = BY_NUMPY[array.dtype].largest
        array[np.isnan(array)] = 0
        np.clip(array, -largest, largest, out=array)


def _decode(name: str, kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in ("TensorList", "ScalarList"):
        return [_decode(name, kind.removesuffix("List"), item) for item in value]
    if kind == "Tensor":
        return _spec(name, value)
    if kind == "Scalar":
        dtype = _dtype(name, value["dtype"])
        return Scalar(dtype, np.frombuffer(bytes.fromhex(value["bytes"]), dtype.numpy, 1)[0].item())
    return _dtype(name, value) if kind == "DataType" else value


def _dtype(name: str, code: int) -> Any:
    if code not in _BY_ACL:
        raise DTypeError(f"{name}: expected an aclDataType, found {code}", parameter=name)
    return _BY_ACL[code]


def _spec(name: str, value: Mapping[str, Any]) -> TensorSpec:
    formats = {int(each) for each in Format}
    if value["format"] not in formats:
        raise ArgumentError(f"{name}: expected an aclFormat, found {value['format']}")
    return TensorSpec(
        _dtype(name, value["dtype"]),
        tuple(value["shape"]),
        tuple(value["strides"]),
        value["offset"],
        tuple(value["storage_shape"]),
        Format(value["format"]),
        name,
    )
