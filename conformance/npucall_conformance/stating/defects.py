"""Rows of error tables that many operators share; each returns ``Invalid``s in signature order.

The valid call has tensors of FLOAT and of the statement's ``layout_shape``.
"""

from __future__ import annotations

from typing import Any

from npucall.dtypes import BF16, DOUBLE, INT32, DType
from npucall.errors import (
    PARAM_NULLPTR,
    ArgumentMissingError,
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    FormatError,
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


def nulls(*names: str) -> tuple[Invalid, ...]:
    """Each is a null pointer: status 161001, which is checked before anything else."""
    return tuple(
        Invalid(f"null-{n}", {n: None}, (n,), ArgumentMissingError, PARAM_NULLPTR) for n in names
    )


def dtypes(
    *names: str,
    found: DType = DOUBLE,
    blames: tuple[str, ...] = (),
    products: tuple[str, ...] = (),
    **more: Any,
) -> tuple[Invalid, ...]:
    """Each alone has a dtype that the operator does not take."""
    row = f"dtype-{found.name.lower()}"
    return tuple(
        Invalid(
            f"{row}-{n}", {n: {"dtype": found}}, blames or (n,), DTypeError, products=products,
            **more,
        )
        for n in names
    )  # fmt: skip


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
    return tuple(
        Invalid(f"rank-9-{n}", {n: {"shape": NINE}}, (n,), ShapeError, block="rank", **more)
        for n in names
    )


def rank_of_what_follows(name: str, output: str) -> tuple[Invalid, ...]:
    """The tensor has nine dimensions, and so has the output, which the call leaves out."""
    changes = {name: {"shape": NINE}, output: LEFT_OUT}
    return (
        Invalid(f"rank-9-{name}-of-no-output", changes, (name,), ShapeError, block="rank"),
    )  # fmt: skip


def shapes(
    name: str, *found: Shape, blames: tuple[str, ...] = (), **more: Any
) -> tuple[Invalid, ...]:
    """The tensor has a shape that does not fit."""
    return tuple(
        Invalid(
            f"shape-{name}-{'x'.join(map(str, shape)) or 'scalar'}", {name: {"shape": shape}},
            blames or (name,), ShapeError, **more,
        )
        for shape in found
    )  # fmt: skip


def values(attribute: str, *found: Any, block: str = "invalid", **more: Any) -> tuple[Invalid, ...]:
    """The attribute has a value that is refused."""
    return tuple(
        Invalid(
            f"{attribute}-{value}", {attribute: value}, (attribute,), AttributeValueError,
            block=block, **more,
        )
        for value in found
    )  # fmt: skip


def formats(*names: str, found: Format = Format.FRACTAL_NZ) -> tuple[Invalid, ...]:
    """The tensor has a format that is private to the device."""
    return tuple(Invalid(f"format-{n}", {n: {"format": found}}, (n,), FormatError) for n in names)
