"""Cases that follow from the products, types and defaults in a statement.

They are the blocks ``listing``, ``products`` and ``defaults``. What the server lists does not
change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from npucall.declare.parameters import Scalar
from npucall.dtypes import DTYPES, UINT8, DType
from npucall.errors import ArgumentMissingError, AttributeValueError, DTypeError
from npucall.tensors import Shape
from npucall_conformance.cases.case import Case, Maker
from npucall_conformance.stating.arguments import parameter_of
from npucall_conformance.stating.defects import all_of
from npucall_conformance.stating.parts import Invalid, Setup
from npucall_conformance.stating.statement import LEFT_OUT, Statement
from npucall_conformance.stating.tables import SOCS

LISTING, PRODUCTS_BLOCK = "listing", "products"


def listing(make: Maker) -> Iterator[Case]:
    """What the server lists of the operator: products, dtypes, parameters, rules."""
    statement = make.statement
    name = f"{statement.title}/{LISTING}/entry"
    yield Case(name, statement, LISTING, statement.dtypes[0], {}, {}, {})


def products(make: Maker) -> Iterator[Case]:
    """Dtypes that the product does not take, and operators that it has not: refused."""
    statement = make.statement
    inputs = tuple(each.name for each in statement.inputs if not each.refused)
    of_any = tuple(each.name for each in statement.inputs if not (each.refused or each.dtypes))
    blames = (*inputs, *make.outputs)
    without = tuple(soc for soc in SOCS if soc not in statement.takes)
    row = Invalid("operator-not-there", {}, blames, DTypeError, whoever=True)
    yield make.wrong(row.row, row, outputs=False, products=without)
    for dtype in DTYPES:
        refusing = tuple(soc for soc in statement.takes if _refuses(statement, soc, dtype))
        if refusing:
            name, changes = f"takes-no-{dtype.name.lower()}", all_of(dtype, *(of_any or inputs))
            row = Invalid(name, changes, blames, DTypeError, whoever=True)
            yield make.wrong(name, row, outputs=False, products=refusing)


def _refuses(statement: Statement, soc: str, dtype: DType) -> bool:
    # Ascend 950 has floats of 8 bits, but the sources of these statements say nothing about them.
    if dtype.kind == "other" and soc == "Ascend950":
        return False
    return dtype not in statement.takes[soc]


def defaults(make: Maker) -> Iterator[Case]:
    """Attributes that are left out."""
    statement = make.statement
    names, only = tuple(statement.defaults), statement.defaulted.only
    dtypes = tuple(each for each in statement.dtypes if not only or each in only)
    if statement.variant:
        yield make.case(dtypes[0], note="variant-left-out", unnamed=True)
    for name in names:
        for _ in range(2):
            yield _left_out(make, dtypes[0], f"without-{name}", (name,))
    for dtype in dtypes if names else ():
        yield _left_out(make, dtype, "without-all", names)
    for row in _required(statement):
        yield make.wrong(row.row, row, outputs=False)


def _left_out(make: Maker, dtype: DType, note: str, names: tuple[str, ...]) -> Case:
    return make.case(dtype, replace(make.statement.defaulted, note=note, left_out=names))


def _required(statement: Statement) -> Iterator[Invalid]:
    """Required parameters that are left out: a pointer is then null, a number has no value."""
    optional = {each.name for each in statement.inputs if each.optional}
    outputs = {parameter_of(each.name) for each in statement.outputs}
    nulls = {name: row.status for row in statement.invalid for name in row.changes
             if row.changes == {name: None}}  # fmt: skip
    for each in statement.parameters:
        if each.name in optional | outputs | statement.defaults.keys():
            continue
        changes, row = {each.name: LEFT_OUT}, f"without-{each.name}"
        if each.c_type.endswith("*"):
            status = nulls.get(each.name, statement.null)
            yield Invalid(row, changes, (each.name,), ArgumentMissingError, status)
        else:
            yield Invalid(row, changes, (each.name,), AttributeValueError, None)


_BEYOND = 2**32
"""What is lost of an integer that is kept in 32 bits."""
_WHOLE = (3 * 2**31, -3)
_REALS = (3.7, 0.3, -0.3)
_DIGITS = (1 + 2.0**-30, -70_000.5)
"""Finer than FLOAT; beyond FLOAT16."""
_BEYOND_FLOAT = 1e39


def unusual(make: Maker) -> Iterator[Case]:
    """Values that tell more than usual ones, of each attribute by its type."""
    statement = make.statement
    base = max(statement.base_shapes, key=len)
    for turn, (name, value) in enumerate(unusual_values(statement)):
        dtypes = [each for each in statement.dtypes if _holds(each, value)]
        dtype = dtypes[turn % len(dtypes)]
        yield make.case(dtype, Setup(base=base, attributes={name: value}))


def unusual_values(statement: Statement) -> Iterator[tuple[str, Any]]:
    """Attributes with values that they must take; a value may be called with the base shape.

    No number of a sign of which the error table refuses one.
    """
    for each in statement.attribute_parameters:
        name, listed = each.name, statement.attributes.get(each.name, ())
        refusals = [row.changes for row in statement.invalid if row.error is AttributeValueError]
        refused = [changes[name] for changes in refusals if name in changes]
        bad = {number > 0 for number in refused if isinstance(number, int | float)}
        is_axis = name in ("dim", "dims")
        of_shapes = any(map(callable, listed)) and not is_axis
        if of_shapes or any(isinstance(one, Scalar) for one in refused):
            continue  # which numbers it takes depends on another attribute, or on shapes
        values: Iterable[Any] = ()
        if each.c_type == "const aclScalar*":
            more = (_BEYOND_FLOAT,) * (name in statement.in_kernel)
            values = [number for number in (*_WHOLE, *_DIGITS, *more) if (number > 0) not in bad]
        elif is_axis:
            values = [partial(_from_the_other_end, value) for value in listed if -1 not in refused]
        elif each.c_type in ("float", "double"):
            values = [number for number in _REALS if (number > 0) not in bad]
        elif each.c_type == "int64_t" and not bad and listed != (*range(len(listed)),):
            values = [listed[0] + _BEYOND]
        yield from ((name, value) for value in values)


def _holds(dtype: DType, value: Any) -> bool:
    """Whether it is a dtype of floats, or no number that an integer could not hold."""
    if dtype.kind == "int" and isinstance(value, int):
        return abs(value) < 2 ** (8 * dtype.itemsize - 1) and (value > 0 or dtype is not UINT8)
    return dtype.kind == "float" or callable(value)


def _from_the_other_end(value: Any, base: Shape) -> Any:
    """The same axis or axes, counted from the last on instead of the first, or the reverse."""
    found = value(base) if callable(value) else value
    if isinstance(found, int):
        return found - len(base) if found >= 0 else found + len(base)
    return tuple(_from_the_other_end(axis, base) for axis in found)
