"""The simulated device's arithmetic: what a launch computes, told as one JSON text.

``libnnopbase.so`` of the simulator calls ``run`` on the thread of a stream, inside the process
under test. The text is an object::

    {"operator": "aclnnAdd", "package": "builtin" | "custom", "soc": "Ascend910B2",
     "saturates": false,
     "arguments": [{"name": "self", "kind": "Tensor", "output": false, "value": ...}, ...]}

``saturates``: a result that is infinite becomes the largest number, and NaN 0, as on a stream
without INFNAN. Arguments stand in C order, each ``kind`` is the name of a member of ``sim::Kind``,
and ``value`` is null for a null pointer, else by kind:

- Tensor: ``{"address", "bytes", "dtype", "shape", "strides", "offset", "storage_shape",
  "format"}``, where ``address`` and ``bytes`` are the readable and writable mapping of the storage;
- Scalar: ``{"dtype", "bytes"}``, the bytes in hexadecimal digits;
- TensorList and ScalarList: a list of those; IntArray, FloatArray, BoolArray: a list;
- Integer, Real (NaN and Infinity as Python's json writes them), Boolean, DataType, Text: the value.

What raises here is the kernel's failure. The module has a sibling that it imports relatively, so
it is loaded as part of a package: a module object ``npucall_simulator`` with this folder as its
``__path__``, then ``importlib.import_module("npucall_simulator.kernels")``.
"""

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from npucall.compute.evaluate import evaluate
from npucall.declare.call import Call, tensors_of
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Scalar, c_name
from npucall.declare.prepare import prepare
from npucall.dtypes import BF16, DTYPES, FLOAT, FLOAT16, AnyArray, DType
from npucall.operators import CATALOGUE
from npucall.products import taken_for
from npucall.tensors import Format, TensorSpec, view

from .generic_kernels import FORMULAS

BY_ACL = {dtype.acl: dtype for dtype in DTYPES}
# The same C symbol, of two libraries.
_VARIANT_OF_PACKAGE = {"builtin": "builtin", "custom": "community"}
_SATURATED = (FLOAT, FLOAT16, BF16)


@dataclass(frozen=True)
class Tensor:
    """A tensor of a launch: what its descriptor says, and its elements."""

    spec: TensorSpec
    array: AnyArray


def run(description: str) -> None:
    """Computes one launch, into the memory that its description names."""
    launch = json.loads(description)
    name = launch["operator"]
    given = {a["name"]: _decode(a["kind"], a["value"]) for a in launch["arguments"]}
    _compute(launch, name, given)
    if launch.get("saturates"):
        for value in (given[a["name"]] for a in launch["arguments"] if a["output"]):
            for output in value if isinstance(value, list) else [value]:
                _saturate(output)


def _compute(launch: Mapping[str, Any], name: str, given: Mapping[str, Any]) -> None:
    if CATALOGUE.of_name(name):
        variant = _VARIANT_OF_PACKAGE[launch["package"]]
        _run_declared(CATALOGUE.find(name, default=variant), launch["soc"], given)
        return
    if name not in FORMULAS:
        raise NotImplementedError(f"{name}: expected an operator with a formula here")
    with np.errstate(all="ignore"):
        FORMULAS[name](*map(_plain, given.values()))


def _saturate(output: Any) -> None:
    if isinstance(output, Tensor) and output.spec.dtype in _SATURATED:
        array = output.array
        largest = ml_dtypes.finfo(array.dtype).max
        array[np.isnan(array)] = 0
        np.clip(array, -largest, largest, out=array)


def _run_declared(operator: Operator[Any, Any], soc: str, given: Mapping[str, Any]) -> None:
    """Evaluates an operator of the catalogue, by the rules of the SoC's product.

    Of an output of which a device leaves elements as they were, it leaves as many as it can.
    """
    values = {p.name: given[c_name(p)] for p in operator.parameters}
    listed = ((n, tuple(v) if isinstance(v, list) else v) for n, v in values.items())
    places = (each for name, value in listed for each in tensors_of(name, value))
    tensors = {place: value for place, value in places if isinstance(value, Tensor)}
    arguments = {name: _argument(value) for name, value in values.items()}
    prepared = prepare(Call(operator, arguments, tuple(tensors)), taken_for(soc).product, CATALOGUE)
    if prepared.done and not prepared.fills:
        return  # a device leaves the outputs as they were
    outputs = {
        name: np.empty(spec.shape, spec.dtype.numpy)
        if name in prepared.unwritten or name not in tensors
        else tensors[name].array
        for name, spec in prepared.outputs.items()
        if name in prepared.asked
    }
    read = {*prepared.inputs, *prepared.read}
    evaluate(prepared, {n: np.copy(tensors[n].array) for n in read}, outputs)
    for name, left in prepared.unwritten.items():
        if name in tensors:
            found = outputs[name]
            np.copyto(tensors[name].array, found, where=np.not_equal(found, left))


def _argument(value: Any) -> Any:
    """What a call of npucall holds for a decoded value."""
    if isinstance(value, Tensor):
        return value.spec
    return tuple(map(_argument, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """What a formula takes for a decoded value: arrays, numbers and dtypes of NumPy."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, Scalar):
        return value.dtype.numpy.type(value.value)
    if isinstance(value, DType):
        return value.numpy
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _decode(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in ("TensorList", "ScalarList"):
        return [_decode(kind.removesuffix("List"), item) for item in value]
    if kind == "Tensor":
        return _tensor(value)
    if kind == "Scalar":
        dtype = BY_ACL[value["dtype"]]
        return Scalar(dtype, np.frombuffer(bytes.fromhex(value["bytes"]), dtype.numpy, 1)[0].item())
    return BY_ACL[value] if kind == "DataType" else value


def _tensor(value: Mapping[str, Any]) -> Tensor:
    spec = TensorSpec(
        BY_ACL[value["dtype"]],
        tuple(value["shape"]),
        tuple(value["strides"]),
        value["offset"],
        tuple(value["storage_shape"]),
        Format(value["format"]),
    )
    if spec.storage_bytes > value["bytes"]:
        raise ValueError(f"expected {spec.storage_bytes} bytes of storage, found {value['bytes']}")
    storage = (ctypes.c_char * spec.storage_bytes).from_address(value["address"] or 0)
    return Tensor(spec, view(spec, memoryview(storage).cast("B")))
