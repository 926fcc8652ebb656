"""A case and a seed become the call's bytes, and what truth needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.declare.attributes import attribute_value
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute, Input, Kind, Scalar
from npucall.dtypes import FLOAT, DType
from npucall.operators import CATALOGUE
from npucall.tensors import TensorSpec
from npucall_client.conformance.arrangements import SENTINEL, Arrangement, put
from npucall_client.conformance.domains import Draw
from npucall_client.conformance.given import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.declare.call import Argument
    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape
    from npucall_client.conformance.cases import Case
    from npucall_client.conformance.statement import In, Out


@dataclass(frozen=True)
class MadeCall:
    """One call: what is sent, and what was meant by it."""

    operator: str
    variant: str
    arguments: Mapping[str, Argument]
    storages: Mapping[str, bytes | bytearray]
    """Of inputs, and of outputs whose layout is not dense."""
    given: Given
    """The arguments without their defects."""
    shapes: Mapping[str, Shape]
    """Of the outputs that are right."""
    dtypes: Mapping[str, DType]
    """Likewise."""


def call_of(case: Case, seed: int, product: str = "Ascend910B") -> MadeCall:
    """The call of a case. The same seed and id always make the same bytes."""
    statement = case.statement
    operator = CATALOGUE.find(statement.operator, statement.variant)
    arrays, storages, specs = _inputs(case, seed)
    attributes = _attributes(operator, case.attributes)
    given = _given(case, operator, arrays, attributes, product)
    arguments: dict[str, Argument] = {**specs, **attributes}
    shapes = {each.name: _shape(case, each, given) for each in statement.outputs}
    known = {**case.dtypes, **_dtypes_of(attributes)}
    dtypes = {each.name: each.dtype_in(known) for each in statement.outputs}
    for name, dtype in case.outputs.items():
        dtypes[name] = dtype or dtypes[name]
        layout = case.layouts.get(name, Arrangement.DENSE)
        if not layout.fits(shapes[name], output=True):
            layout = Arrangement.DENSE
        spec = layout.spec(dtypes[name], shapes[name])
        arguments[name] = spec
        if layout is not Arrangement.DENSE:
            storages[name] = bytearray([SENTINEL]) * spec.storage_bytes
    for defect in case.defects:
        for name, change in defect.changes.items():
            _spoil(operator, arguments, storages, name, change)
    order = [p.name for p in operator.parameters if p.name in arguments]
    return MadeCall(
        statement.operator, statement.variant, {name: arguments[name] for name in order},
        {name: storages[name] for name in order if name in storages}, given, shapes, dtypes,
    )  # fmt: skip


def _shape(case: Case, output: Out, given: Given) -> Shape:
    """An output's shape: what the case says, or what follows from the inputs."""
    said = case.setup.shapes.get(output.name)
    return output.shape_in(given) if said is None else said


def rounded(numbers: Any, dtype: DType) -> AnyArray:
    """Numbers in a dtype, to nearest even; for integers whole ones, and none below the least."""
    exact = np.asarray(numbers, np.float64)
    if dtype.kind == "int":
        exact = np.maximum(exact, np.iinfo(dtype.numpy).min)
    with np.errstate(all="ignore"):
        return exact.astype(dtype.numpy)


def _inputs(
    case: Case, seed: int
) -> tuple[dict[str, AnyArray], dict[str, bytes | bytearray], dict[str, Argument]]:
    """Arrays as the device sees them, their storages and specs."""
    digest = sha256(f"{seed}/{case.id}".encode()).digest()
    random = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16])))
    arrays: dict[str, AnyArray] = {}
    storages: dict[str, bytes | bytearray] = {}
    specs: dict[str, Argument] = {}
    seen: dict[str, Any] = dict(case.attributes)
    for each in case.statement.inputs:
        if each.name not in case.shapes:
            seen[each.name] = None
            continue
        array = _drawn(case, each, Draw(random, case.shapes[each.name], seen, case.shapes))
        layout = case.layouts.get(each.name, Arrangement.DENSE)
        if not layout.fits(array.shape, output=False):
            layout = Arrangement.DENSE
        spec = layout.spec(case.dtypes[each.name], array.shape)
        storages[each.name], arrays[each.name] = put(array, spec)
        specs[each.name] = spec
        seen[each.name] = arrays[each.name].astype(np.float64)
    return arrays, storages, specs


def _drawn(case: Case, each: In, draw: Draw) -> AnyArray:
    numbers = case.setup.values.get(each.name)
    with np.errstate(all="ignore"):
        return rounded(each.domain(draw) if numbers is None else numbers, case.dtypes[each.name])


def _attributes(operator: Operator[Any, Any], given: Mapping[str, Any]) -> dict[str, Argument]:
    return {
        name: None if value is None else attribute_value(name, _attribute(operator, name), value)
        for name, value in given.items()
    }


def _attribute(operator: Operator[Any, Any], name: str) -> Attribute:
    parameter = operator.by_name[name]
    if not isinstance(parameter, Attribute):
        raise TypeError(f"{name}: expected an attribute of {operator.name}")
    return parameter


def _given(
    case: Case,
    operator: Operator[Any, Any],
    arrays: Mapping[str, AnyArray],
    attributes: Mapping[str, Argument],
    product: str,
) -> Given:
    of_outputs = {name: dtype for name, dtype in case.outputs.items() if dtype is not None}
    find = case.statement.kernels.get(product, case.statement.kernel)
    kernel = find({**case.dtypes, **_dtypes_of(attributes), **of_outputs})
    values: dict[str, Any] = {p.name: operator.default(p) for p in operator.attributes}
    values |= attributes
    for parameter in operator.attributes:
        value = values[parameter.name]
        number = _number(value) if isinstance(value, Scalar) else value
        narrow = number is not None and parameter.kind in (Kind.SCALAR, Kind.FLOAT)
        dtype = case.dtypes.get(parameter.dtype, kernel) if parameter.dtype else FLOAT
        values[parameter.name] = _held(number, dtype) if narrow else number
    for each in case.statement.inputs:
        array = arrays.get(each.name)
        if array is not None and not each.dtypes and array.dtype != kernel.numpy:
            with np.errstate(all="ignore"):
                array = array.astype(kernel.numpy)
        values[each.name] = None if array is None else array.astype(np.float64)
    return Given(values, case.dtypes, kernel, case.statement.stepwise(kernel), product)


def _dtypes_of(attributes: Mapping[str, Argument]) -> dict[str, DType]:
    """Those that attributes say: an aclDataType is one, and an aclScalar has one."""
    found = {n: v.dtype if isinstance(v, Scalar) else v for n, v in attributes.items()}
    return {name: value for name, value in found.items() if isinstance(value, DType)}


def _number(scalar: Scalar) -> float:
    """What an aclScalar holds: its number, rounded to its own dtype."""
    if scalar.dtype.kind != "float":
        return scalar.value
    return float(rounded(scalar.value, scalar.dtype))


def _held(number: float, dtype: DType) -> float:
    """A number in the dtype that the operator converts it to; integers lose the fraction."""
    return int(number) if dtype.kind == "int" else float(rounded(number, dtype))


def _spoil(
    operator: Operator[Any, Any],
    arguments: dict[str, Argument],
    storages: dict[str, bytes | bytearray],
    name: str,
    change: Any,
) -> None:
    """Puts a defect into one argument."""
    parameter = operator.by_name[name]
    if change is None:
        arguments[name] = None
        storages.pop(name, None)
        return
    if isinstance(parameter, Attribute):
        arguments[name] = attribute_value(name, parameter, change)
        return
    spec = arguments[name]
    if not isinstance(spec, TensorSpec):
        raise TypeError(f"{name}: expected a tensor in the valid call")
    numbers = change.get("values")
    shape = change.get("shape", spec.shape if numbers is None else np.shape(numbers))
    new = TensorSpec(
        change.get("dtype", spec.dtype), shape, format=change.get("format", spec.format)
    )
    arguments[name] = new
    if isinstance(parameter, Input) and (numbers is not None or new.bytes != spec.bytes):
        storages[name] = put(rounded(0 if numbers is None else numbers, new.dtype), new)[0]
