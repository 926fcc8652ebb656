"""The simulated device's arithmetic: what a launch computes, told as one JSON text.

``libnnopbase.so`` of the simulator calls ``run`` on the thread of a stream, inside the process
under test. The text is an object::

    {"call": {...}, "soc": "Ascend910B2", "saturates": false, "addresses": [140000000000000, ...]}

``call`` is what ``npucall_exec.launches`` reads, ``addresses`` has the readable and writable
mapping of the storage of each tensor in it, in their order. ``saturates``: a result that is
infinite becomes the largest number, and NaN 0, as on a stream without INFNAN.

What raises here is the kernel's failure. The module has a sibling that it imports relatively, so
it is loaded as part of a package: a module object ``npucall_simulator`` with this folder as its
``__path__``, then ``importlib.import_module("npucall_simulator.kernels")``.
"""

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.compute.evaluate import evaluate
from npucall.declare.call import Call, tensors_of
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Scalar, c_name
from npucall.declare.prepare import prepare
from npucall.dtypes import AnyArray, DType
from npucall.operators import CATALOGUE
from npucall.products import taken_for
from npucall.tensors import TensorSpec, view
from npucall_exec.launches import VARIANTS, CallOfC, call_of, each, saturate

from .generic_kernels import FORMULAS


@dataclass(frozen=True)
class Tensor:
    """A tensor of a launch: what its descriptor says, and its elements."""

    spec: TensorSpec
    array: AnyArray


def run(description: str) -> None:
    """Computes one launch, into the memory that its description names."""
    launch = json.loads(description)
    call, addresses = call_of(launch["call"]), iter(launch["addresses"])
    given = call.with_tensors(lambda spec: _tensor(spec, next(addresses)))
    _compute(call, launch["soc"], given)
    if launch["saturates"]:
        for output in each(given[name] for name in call.outputs):
            saturate(output.array)


def _compute(call: CallOfC, soc: str, given: Mapping[str, Any]) -> None:
    name = call.operator
    if CATALOGUE.of_name(name):
        _run_declared(CATALOGUE.find(name, default=VARIANTS[call.package]), soc, given)
        return
    if name not in FORMULAS:
        raise NotImplementedError(f"{name}: expected an operator with a formula here")
    with np.errstate(all="ignore"):
        FORMULAS[name](*map(_plain, given.values()))


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


def _tensor(spec: TensorSpec, address: int) -> Tensor:
    storage = (ctypes.c_char * (spec.storage_bytes if address else 0)).from_address(address)
    return Tensor(spec, view(spec, memoryview(storage).cast("B")))
