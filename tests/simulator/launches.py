"""Describes launches as the C side does, of NumPy arrays in place of device memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import BY_NUMPY

from .kernels import run
from .prototypes import Prototype, read_prototypes

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray

_KINDS = {
    "aclIntArray": "IntArray",
    "aclFloatArray": "FloatArray",
    "aclBoolArray": "BoolArray",
    "char": "Text",
    "bool": "Boolean",
    "float": "Real",
    "double": "Real",
}
PROTOTYPES = {p.name: p for p in read_prototypes()}


def launch(
    name: str,
    *arguments: Any,
    package: str = "builtin",
    soc: str = "Ascend910B2",
    saturates: bool = False,
) -> None:
    """Runs an operator's kernel on arrays, NumPy numbers, lists, dtypes and plain values."""
    described = _described(PROTOTYPES[name], arguments)
    launched = {"operator": name, "package": package, "soc": soc, "arguments": described}
    run(json.dumps(launched | {"saturates": saturates}))


def _described(prototype: Prototype, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "kind": _kind(parameter.base_type),
            "output": parameter.output,
            "value": _value(value),
        }
        for parameter, value in zip(prototype.parameters, values, strict=True)
    ]


def _kind(base_type: str) -> str:
    if base_type in ("aclTensor", "aclTensorList", "aclScalar", "aclScalarList", "aclDataType"):
        return base_type.removeprefix("acl")
    return _KINDS.get(base_type, "Integer")


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, np.generic):
        return {"dtype": BY_NUMPY[value.dtype].acl, "bytes": value.tobytes().hex()}
    return BY_NUMPY[value].acl if isinstance(value, np.dtype) else value


def _tensor(array: AnyArray) -> dict[str, Any]:
    """A descriptor of the view, whose storage is that of the array which owns the memory."""
    owner = array if array.base is None else array.base
    offset = array.ctypes.data - owner.ctypes.data
    return {
        "address": owner.ctypes.data,
        "bytes": owner.nbytes,
        "dtype": BY_NUMPY[array.dtype].acl,
        "shape": array.shape,
        "strides": [step // array.itemsize for step in array.strides],
        "offset": offset // array.itemsize,
        "storage_shape": [owner.size],
        "format": 2,
    }
