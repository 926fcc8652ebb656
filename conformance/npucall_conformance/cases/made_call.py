"""Makes a call from a case and a seed: its bytes, and the facts that its truth is computed from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from npucall.declare.call import Argument
from npucall.declare.parameters import Scalar
from npucall.dtypes import FLOAT, AnyArray, DType
from npucall.tensors import Shape, TensorSpec
from npucall.wire.calls import encode
from npucall_client.calls.arguments import BoundCall
from npucall_conformance.cases.arrangements import DENSE, blank, put
from npucall_conformance.cases.case import Case
from npucall_conformance.stating.arguments import (
    OF_PLAIN,
    Arguments,
    Reals,
    parameter_of,
    wide,
)
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import In, Out
from npucall_conformance.stating.rounding import nearest
from npucall_conformance.stating.statement import LEFT_OUT, Statement


@dataclass(frozen=True)
class MadeCall:
    """One call: the arguments that are sent, and their meaning."""

    operator: str
    variant: str
    arguments: Mapping[str, Argument]
    """The tensors of a list one by one; the list itself only where it is empty, or null."""
    storages: Mapping[str, bytes | bytearray]
    """Storages of inputs, and of outputs whose layout is not dense."""
    given: Arguments
    """The arguments without their defects."""
    shapes: Mapping[str, Shape]
    """The right shapes of the outputs."""
    dtypes: Mapping[str, DType]
    """The right dtypes of the outputs."""
    valid: bool = True
    """Whether it is a call without defects, on which all sources agree."""
    exact: bool = False
    """Every step but the last is exact in FLOAT."""

    def request(self, unsent: Collection[str] = ()) -> BoundCall:
        """The call as transports take it, without the storages of the tensors in ``unsent``."""
        sent = {name: data for name, data in self.storages.items() if name not in unsent}
        stored = tuple(map(parameter_of, sent))
        call = encode(self.operator, self.variant, in_lists(self.arguments), stored)
        return BoundCall(self.operator, call, dict(sent))

    def __str__(self) -> str:
        """The arguments in words, tensors with dtype, shape and layout."""
        return "; ".join(f"{name} {_in_words(value)}" for name, value in self.arguments.items())


def in_lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as calls have them: tensors of a list under its name, in a tuple."""
    found: dict[str, Any] = {}
    for place, value in arguments.items():
        name = parameter_of(place)
        found[name] = value if name == place else (*found.get(name, ()), value)
    return found


def _in_words(value: Argument) -> str:
    if not isinstance(value, TensorSpec):
        return str(value)
    dense = f"{value.dtype.short} {list(value.shape)}"
    placed = f" with strides {list(value.strides)} from {value.offset}"
    return dense if value.row_major else f"{dense}{placed}"


def call_of(case: Case, seed: int, product: str = "Ascend910B") -> MadeCall:
    """The call of a case. The same seed and id always make the same bytes."""
    statement = case.statement
    arrays, storages, specs = _inputs(case, seed)
    attributes = attributes_of(statement, case.attributes)
    given = _given(case, arrays, attributes, product)
    lists = {parameter_of(each.name) for each in statement.inputs if "[" in each.name}
    there = {*map(parameter_of, specs)}
    empty: dict[str, Argument] = dict.fromkeys(lists - there, ())
    arguments: dict[str, Argument] = {**specs, **empty, **attributes}
    asked = [each for each in statement.outputs if each.asked_in(given)]
    shapes = {each.name: _shape(case, each, given) for each in asked}
    of_call = {**case.dtypes, **_dtypes_of({**statement.defaults, **attributes})}
    dtypes = {each.name: each.dtype_in(of_call) for each in statement.outputs}
    dtypes |= {name: dtype for name, dtype in case.dtypes.items() if name in dtypes}
    listed = {parameter_of(name) for name in case.outputs if "[" in name}
    members = {name: None for name in shapes if "[" in name and parameter_of(name) in listed}
    for name, dtype in {**members, **case.outputs}.items():
        if name not in shapes or name in specs:
            continue
        dtypes[name] = dtype or dtypes[name]
        layout = case.layouts.get(name, DENSE)
        dense = next(each.dense for each in statement.outputs if each.name == name)
        if dense or not layout.fits(shapes[name], output=True):
            layout = DENSE
        spec = layout.spec(dtypes[name], shapes[name])
        arguments[name] = spec
        if layout is not DENSE and name not in case.unsent:
            storages[name] = blank(spec, _fill(case, seed))
    sent = {parameter_of(name) for name in members if name in storages}
    for name in members:  # all of a list are sent, or none
        if parameter_of(name) in sent and name not in storages:
            storages[name] = blank(arguments[name], _fill(case, seed))  # type: ignore[arg-type]
    for defect in case.defects:
        for name, change in defect.changes.items():
            _spoil(statement, arguments, storages, name, change)
    places = {p.name: place for place, p in enumerate(statement.parameters)}
    order = sorted(arguments, key=lambda name: places.get(parameter_of(name), len(places)))
    variant = "" if case.unnamed else statement.variant
    return MadeCall(
        statement.operator, variant, {name: arguments[name] for name in order},
        {name: storages[name] for name in order if name in storages}, given, shapes, dtypes,
        valid=not case.defects and case.contradiction is None,
        exact=case.setup.exact,
    )  # fmt: skip


def _shape(case: Case, output: Out, given: Arguments) -> Shape:
    """An output's shape: the one that the case gives, or the one that follows from the inputs."""
    said = case.setup.shapes.get(output.name)
    return output.shape_in(given) if said is None else said


def rounded(numbers: Any, dtype: DType) -> AnyArray:
    """Numbers in a dtype, rounded to nearest, ties to even; integers are at least the smallest."""
    if isinstance(numbers, np.ndarray) and numbers.dtype == dtype.numpy:
        return numbers
    exact = wide(numbers)
    if dtype.kind == "int":
        exact = np.maximum(exact, np.iinfo(dtype.numpy).min)
    with np.errstate(all="ignore"):
        return exact.astype(dtype.numpy)


_FILL = 31
"""How many bytes are repeated in gaps; it is no multiple of any element's size."""


def _fill(case: Case, seed: int) -> bytes:
    """The bytes in the gaps of a case. Bytes that another call left there differ from them."""
    return sha256(f"{seed}/{case.id}/gaps".encode()).digest()[:_FILL]


def _inputs(
    case: Case, seed: int
) -> tuple[dict[str, AnyArray], dict[str, bytes | bytearray], dict[str, Argument]]:
    """The inputs as arrays that the device sees, with their storages and specs."""
    digest = sha256(f"{seed}/{case.data or case.id}".encode()).digest()
    random = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16])))
    arrays: dict[str, AnyArray] = {}
    storages: dict[str, bytes | bytearray] = {}
    specs: dict[str, Argument] = {}
    seen: dict[str, Any] = {**case.statement.defaults, **case.attributes}
    for each in case.statement.inputs:
        if each.name not in case.shapes:
            seen[each.name] = None
            continue
        array = _drawn(case, each, Draw(random, case.shapes[each.name], seen, case.shapes))
        layout = case.layouts.get(each.name, DENSE)
        if each.dense or not layout.fits(array.shape, output=each.updated or each.apart):
            layout = DENSE
        spec = layout.spec(case.dtypes[each.name], array.shape)
        storages[each.name], arrays[each.name] = put(array, spec, _fill(case, seed))
        if each.name in case.setup.raw:
            arrays[each.name] = _truths(arrays[each.name], case.setup.raw[each.name])
        specs[each.name] = spec
        seen[each.name] = wide(arrays[each.name])
    return arrays, storages, specs


def _truths(seen: AnyArray, raw: bytes) -> AnyArray:
    """Writes bytes into a tensor of BOOL; returns their meaning."""
    numbers = np.resize(np.frombuffer(raw, np.uint8), seen.shape)
    seen.view(np.uint8)[...] = numbers
    truths: AnyArray = numbers != 0
    return truths


def _drawn(case: Case, each: In, draw: Draw) -> AnyArray:
    numbers = case.setup.values.get(each.name)
    if numbers is None:
        with np.errstate(all="ignore"):  # what it depends on may be infinite
            numbers = each.domain(draw)
        numbers = case.marks[each.name].put(numbers) if each.name in case.marks else numbers
    return rounded(numbers, case.dtypes[each.name])


def attributes_of(statement: Statement, given: Mapping[str, Any]) -> dict[str, Argument]:
    """Attributes in the form that calls have."""
    return {name: argument_of(statement.attribute(name).c_type, v) for name, v in given.items()}


def argument_of(c_type: str, value: Any) -> Argument:
    """An attribute in the form that calls have; a number for an aclScalar gets the widest dtype."""
    if c_type == "const aclScalar*" and isinstance(value, bool | int | float):
        return Scalar(OF_PLAIN[type(value)], value)
    if isinstance(value, list | tuple):
        return tuple(value)
    return float(value) if c_type in ("float", "double") else value


def _given(
    case: Case,
    arrays: Mapping[str, AnyArray],
    attributes: Mapping[str, Argument],
    product: str,
) -> Arguments:
    statement = case.statement
    values: dict[str, Any] = {each.name: None for each in statement.attribute_parameters}
    values |= {**statement.defaults, **attributes}
    of_outputs = {name: dtype for name, dtype in case.outputs.items() if dtype is not None}
    find = statement.kernels.get(product, statement.kernel)
    kernel = find({**case.dtypes, **_dtypes_of(values), **of_outputs})
    for parameter in statement.attribute_parameters:
        value = values[parameter.name]
        number = _number(value) if isinstance(value, Scalar) else value
        narrow = number is not None and parameter.c_type in ("const aclScalar*", "float")
        short = statement.short_as_float and kernel.is_short
        dtype = kernel if parameter.name in statement.in_kernel and not short else FLOAT
        values[parameter.name] = _held(number, dtype) if narrow else number
    for each in case.statement.inputs:
        array = arrays.get(each.name)
        values[each.name] = None
        if array is not None:
            converts = not (each.dtypes or each.own) and array.dtype != kernel.numpy
            values[each.name] = _converted(array, kernel) if converts else wide(array)
    return Arguments(values, case.dtypes, kernel, statement.stepwise(kernel), product)


def _converted(array: AnyArray, kernel: DType) -> Reals:
    """A tensor's numbers, converted to the dtype of the kernel."""
    if kernel.kind == "float":
        return nearest(array.astype(np.float64), kernel)
    with np.errstate(all="ignore"):
        return wide(array.astype(kernel.numpy))


def _dtypes_of(attributes: Mapping[str, Argument]) -> dict[str, DType]:
    """The dtypes in attributes: an aclDataType is a dtype, and an aclScalar has a dtype."""
    found = {n: v.dtype if isinstance(v, Scalar) else v for n, v in attributes.items()}
    return {name: value for name, value in found.items() if isinstance(value, DType)}


def _number(scalar: Scalar) -> float:
    """The number of an aclScalar, rounded to the scalar's own dtype."""
    if scalar.dtype.kind != "float":
        return scalar.value
    return float(rounded(scalar.value, scalar.dtype))


def _held(number: float, dtype: DType) -> float:
    """A number in the dtype to which the operator converts it; integers drop the fraction."""
    return int(number) if dtype.kind == "int" else wide(rounded(number, dtype)).item()


def without(arguments: dict[str, Argument], name: str, change: Any) -> list[str]:
    """Takes an argument away, of a list all tensors; answers their names.

    What is there instead: a null pointer, an empty list, or nothing.
    """
    gone = [each for each in arguments if name in (each, parameter_of(each))]
    for each in gone:
        del arguments[each]
    if change is not LEFT_OUT:
        arguments[name] = change
    return gone


def _spoil(
    statement: Statement,
    arguments: dict[str, Argument],
    storages: dict[str, bytes | bytearray],
    name: str,
    change: Any,
) -> None:
    """Puts a defect into one argument."""
    if change is None or change is LEFT_OUT or change == ():
        for each in without(arguments, name, change):
            storages.pop(each, None)
        return
    if parameter_of(name) not in {each.name for each in statement.parameters}:
        arguments[name] = change  # no operator has it
        return
    if name in {each.name for each in statement.attribute_parameters}:
        arguments[name] = argument_of(statement.attribute(name).c_type, change)
        return
    spec = arguments[name]
    if not isinstance(spec, TensorSpec):
        raise TypeError(f"{name}: expected a tensor in the valid call")
    if "lacks" in change:
        storages[name] = storages[name][: -change["lacks"] * spec.dtype.itemsize]
        return
    if "overlaps" in change:
        arguments[name] = TensorSpec(spec.dtype, spec.shape, (0,) * len(spec.shape), 0, (1,))
        storages[name] = bytearray(spec.dtype.itemsize)
        return
    numbers = change.get("values")
    shape = change.get("shape", spec.shape if numbers is None else np.shape(numbers))
    new = TensorSpec(
        change.get("dtype", spec.dtype),
        shape,
        change.get("strides"),
        format=change.get("format", spec.format),
    )
    arguments[name] = new
    if name not in {each.name for each in statement.inputs}:
        return
    fits = new.bytes == spec.bytes and new.storage_bytes <= len(storages[name])
    if numbers is not None or not fits:
        storages[name] = put(rounded(0 if numbers is None else numbers, new.dtype), new)[0]
