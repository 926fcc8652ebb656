"""Rows of error tables that many operators share; each returns ``Invalid``s in signature order.

The valid call has tensors of FLOAT and of the statement's ``layout_shape``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npucall.dtypes import BF16, DOUBLE, INT32, DType
from npucall.errors import (
    PARAM_NULLPTR,
    TILING_ERROR,
    ArgumentMissingError,
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    FormatError,
    NpucallError,
    ShapeError,
    TensorLayoutError,
)
from npucall.tensors import Format, Shape
from npucall_conformance.stating.parts import Invalid
from npucall_conformance.stating.statement import LEFT_OUT, WITHOUT_BFLOAT16

NINE: Shape = (1,) * 9
"""One dimension more than any operator takes; broadcasts with everything."""


def of_every_operator(given: str, output: str) -> tuple[Invalid, ...]:
    """What every operator refuses before CANN is called: of an input, and of an output."""
    return (
        Invalid("unknown", {"nonsense": 1}, ("nonsense",), ArgumentUnknownError, None),
        Invalid(f"short-{given}", {given: {"lacks": 1}}, (given,), TensorLayoutError, None),
        Invalid(
            f"overlap-{output}", {output: {"overlaps": True}}, (output,), TensorLayoutError, None
        ),
    )


def late(*rows: Invalid) -> tuple[Invalid, ...]:
    """What the software finds when it cuts the work into tiles."""
    return tuple(replace(row, status=TILING_ERROR) for row in rows)


def _each(
    row: str,
    names: tuple[str, ...],
    change: Any,
    error: type[NpucallError],
    blames: tuple[str, ...] = (),
    **more: Any,
) -> tuple[Invalid, ...]:
    """The same defect in each parameter alone, which is blamed unless others are named."""
    return tuple(Invalid(f"{row}-{n}", {n: change}, blames or (n,), error, **more) for n in names)


def nulls(*names: str) -> tuple[Invalid, ...]:
    """Each is a null pointer: status 161001, which is checked before anything else."""
    return _each("null", names, None, ArgumentMissingError, status=PARAM_NULLPTR)


def dtypes(*names: str, found: DType = DOUBLE, **more: Any) -> tuple[Invalid, ...]:
    """Each alone has a dtype that the operator does not take."""
    return _each(f"dtype-{found.name.lower()}", names, {"dtype": found}, DTypeError, **more)


def all_dtypes(*names: str, found: DType = DOUBLE, **more: Any) -> tuple[Invalid, ...]:
    """All of them have a dtype that the operator does not take; the error must blame the first."""
    row = f"dtype-{found.name.lower()}-all"
    return (Invalid(row, {n: {"dtype": found} for n in names}, names[:1], DTypeError, **more),)


def all_of(dtype: DType, *names: str) -> dict[str, Any]:
    """The changes that give all of these parameters one dtype."""
    return {name: {"dtype": dtype} for name in names}


def no_bfloat16(*names: str) -> tuple[Invalid, ...]:
    """Tensors of BF16, on the products without BF16."""
    return dtypes(*names, found=BF16, products=WITHOUT_BFLOAT16)


def uncastable(output: str, dtype: DType = INT32) -> tuple[Invalid, ...]:
    """The output's dtype cannot hold what is computed."""
    change = {output: {"dtype": dtype}}
    return (Invalid(f"cast-{output}-{dtype.name.lower()}", change, (output,), DTypeError),)


def ranks(*names: str, **more: Any) -> tuple[Invalid, ...]:
    """The tensor has nine dimensions."""
    return _each("rank-9", names, {"shape": NINE}, ShapeError, block="rank", **more)


def rank_of_what_follows(name: str, output: str) -> tuple[Invalid, ...]:
    """The tensor has nine dimensions, and so has the output, which the call leaves out."""
    changes = {name: {"shape": NINE}, output: LEFT_OUT}
    return (
        Invalid(f"rank-9-{name}-of-no-output", changes, (name,), ShapeError, block="rank"),
    )  # fmt: skip


def shapes(name: str, *found: Shape, **more: Any) -> tuple[Invalid, ...]:
    """The tensor has a shape that does not fit."""
    rows = [
        (f"shape-{name}-{'x'.join(map(str, shape)) or 'scalar'}", {name: {"shape": shape}})
        for shape in found
    ]
    blames = more.pop("blames", (name,))
    return tuple(Invalid(row, changes, blames, ShapeError, **more) for row, changes in rows)


def values(attribute: str, *found: Any, block: str = "invalid", **more: Any) -> tuple[Invalid, ...]:
    """The attribute has a value that is refused."""
    return tuple(
        Invalid(
            f"{attribute}-{value}", {attribute: value}, (attribute,), AttributeValueError,
            block=block, **more,
        )
        for value in found
    )  # fmt: skip


def formats(*names: str, found: Format = Format.FRACTAL_NZ, **more: Any) -> tuple[Invalid, ...]:
    """The tensor has a format that is private to the device."""
    return _each("format", names, {"format": found}, FormatError, **more)
