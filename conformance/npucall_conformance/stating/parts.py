"""The parts of a statement: inputs, outputs, refused calls, and setups of special cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOATS, DType
from npucall.errors import PARAM_INVALID, NpucallError
from npucall.tensors import Shape
from npucall_conformance.stating.arguments import Arguments, parameter_of
from npucall_conformance.stating.domains import Domain

DTypes: TypeAlias = Mapping[str, DType]
"""Dtypes by parameter: of tensors, of aclScalars, and the value of an aclDataType attribute."""
Attributes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class In:
    """An input: where its numbers come from, and its dtypes if it does not have the case's."""

    name: str
    domain: Domain
    dtypes: tuple[DType, ...] = ()
    """Its own dtypes, taken in turn; empty: the dtype of the case."""
    optional: bool = False
    """Cases come with it and without it."""
    beside: str = ""
    """The optional input without which it may not be given, nor that one without it."""
    instead: str = ""
    """The optional input in whose place it is given: cases have one of the two."""
    read: bool = True
    """Its values matter, so that a call has to send them."""
    refused: bool = False
    """The operator refuses it, or with it wants other shapes, so it is optional: only setups that
    give its shape or values have it."""
    tiny: bool = True
    """Results for subnormal numbers are right. Not if digits of them are lost in a step."""
    own: bool = False
    """It is not converted to the kernel's dtype, though it has that of the case."""
    updated: bool = False
    """It is an output of the same name too, in whose storage it comes."""
    dense: bool = False
    """It is refused where it has gaps, or its numbers may not be repeated: no case lays it out."""
    apart: bool = False
    """None of its elements share memory, since their numbers follow from those of other inputs."""


@dataclass(frozen=True)
class Out:
    """An output: its shape and dtype, named by an input or made from the call.

    The dtype is the one that the output has if a call does not mention it.
    """

    name: str
    shape: str | Callable[[Arguments], Shape]
    dtype: str | Callable[[DTypes], DType]
    own: bool = False
    """It is rounded to its own dtype alone, not to the kernel's before."""
    optional: bool = False
    """It may be null, and is not computed then."""
    asked: Callable[[Arguments], bool] | None = None
    """Whether a call asks for it; if not, it is no result, and may be null."""
    dense: bool = False
    """It is refused where it has gaps."""

    def shape_in(self, given: Arguments) -> Shape:
        """The shape of the output in a call."""
        return given.shape(self.shape) if isinstance(self.shape, str) else self.shape(given)

    @property
    def nullable(self) -> bool:
        """Whether it may be null in a valid call."""
        return self.optional or self.asked is not None

    def asked_in(self, given: Arguments) -> bool:
        """Whether it is a result of a call."""
        return self.asked is None or self.asked(given)

    def dtype_in(self, dtypes: DTypes) -> DType:
        """The dtype of the output in a call that does not mention it."""
        return dtypes[self.dtype] if isinstance(self.dtype, str) else self.dtype(dtypes)


def masked(place: int) -> Callable[[Arguments], bool]:
    """``asked`` of the output at this place of the attribute ``output_mask``."""
    return lambda given: bool(given["output_mask"][place])


@dataclass(frozen=True)
class Setup:
    """How a case differs from the usual one.

    Shapes that it does not give follow from ``base``. Attributes that it does not give are taken in
    turn from the statement's. Dtypes that it does not give are the case's.
    """

    note: str = ""
    """A part of the case's id: letters, digits and hyphens."""
    base: Shape | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    """By input, numbers instead of drawn ones; they also give its shape."""
    raw: Mapping[str, bytes] = field(default_factory=dict)
    """By input of BOOL, bytes that are repeated instead of 0 and 1; any byte but 0 is true."""
    attributes: Attributes = field(default_factory=dict)
    dtypes: DTypes = field(default_factory=dict)
    """Dtypes of inputs and of outputs; the call gives these outputs."""
    left_out: tuple[str, ...] = ()
    """Attributes that the call does not mention, so that they have their defaults."""
    absent: tuple[str, ...] = ()
    """Optional inputs that are not given. If it names any, all others are given."""
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    only: tuple[DType, ...] = ()
    """Dtypes of cases that it is for; empty: all."""
    telling: bool = False
    """Quick runs have it in addition to their sample."""
    exact: bool = False
    """With its numbers every step is exact in FLOAT, except the last rounding."""
    filled: float | None = None
    """The value of every element of the outputs, since nothing is computed."""


@dataclass(frozen=True)
class Invalid:
    """One row of the error table: a valid call with exactly one defect.

    ``changes`` has by parameter: None (a null pointer); LEFT_OUT; () (a list without tensors); an
    attribute's value; or, for a tensor, a mapping of ``dtype``, ``shape``, ``strides``, ``format``,
    ``values``, ``overlaps`` (its elements share memory) or ``lacks`` (so many elements of its
    storage); those that it does not name stay as they were, but the strides of a tensor that
    changes are those without gaps. A statement lists the rows in the order in which they are
    checked. If a call has two neighbouring defects, the first must be found.
    """

    row: str
    changes: Mapping[str, Any]
    blames: tuple[str, ...]
    error: type[NpucallError]
    status: int | None = PARAM_INVALID
    """None: the call is refused before CANN is called."""
    block: str = "invalid"
    base: Setup = field(default_factory=Setup)
    """The valid call that it changes."""
    products: tuple[str, ...] = ()
    alone: bool = False
    """Not put into one call with other defects, since they would repair or hide it."""
    whoever: bool = False
    """The error may blame only some of ``blames``."""


def collide(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no call can have both changes: of the same field, or of a list and of its tensor."""
    for members, names in ((one, other), (other, one)):
        if ({*map(parameter_of, members)} - members.keys()) & names.keys():
            return True
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        if not (isinstance(a, dict) and isinstance(b, dict)) or a.keys() & b.keys():
            return True
    return False


@dataclass(frozen=True)
class Refusal:
    """Expected: an error with this aclnn status."""

    status: int = PARAM_INVALID


@dataclass(frozen=True)
class Contradiction:
    """Sources that contradict each other, and which of them the reference follows.

    ``sources``: by source, the answer of the call if that source is right: a ``Refusal``, the
    numbers of the only output, or ``...`` for any answer without an error. Numbers may differ by
    1 %.
    """

    number: int | str
    """The number of its row in docs/conformance.md; for forward operators it begins with F."""
    topic: str
    setup: Setup
    sources: Mapping[str, Any]
    decided: str
    """The source that the reference follows."""


LARGE = (
    Setup("many-rows", (50_021, 2)),
    Setup("long-rows", (2, 50_021)),
    Setup("dimensions", (7, 11, 37, 41)),
)
"""Shapes of tensors that are all alike."""
PAIRS_OF_FLOATS = tuple((a, b) for a in FLOATS for b in FLOATS if a is not b)


def mixed_floats(*inputs: str, output: str = "") -> tuple[Setup, ...]:
    """In turn each input has another float dtype than the rest; then narrower and wider outputs."""
    setups = [
        Setup(dtypes={**dict.fromkeys(inputs, rest), alone: one})
        for alone in inputs
        for one, rest in PAIRS_OF_FLOATS
        if len(inputs) > 1
    ]
    if output:
        setups += [
            Setup(dtypes={**dict.fromkeys(inputs, one), output: other})
            for one, other in PAIRS_OF_FLOATS
        ]
    return tuple(setups)


def crossed(values: Mapping[str, tuple[float, ...]], **more: Any) -> Setup:
    """One call of rank 1 with every combination of the edge values of several parameters."""
    names = list(values)
    rows: list[tuple[float, ...]] = [()]
    for name in names:
        rows = [(*row, value) for row in rows for value in values[name]]
    columns = {name: tuple(row[i] for row in rows) for i, name in enumerate(names)}
    return Setup(base=(len(rows),), values=columns, **more)


def of_reductions(*codes: int) -> tuple[Setup, ...]:
    """Codes of reductions that are accepted, whatever they mean [src:reductions]."""
    return tuple(Setup(attributes={"reduction": code}) for code in codes)


def immense(numbers: Mapping[str, float], *, alone: bool = False, **attributes: Any) -> Setup:
    """A thousand elements whose products are beyond FLOAT, while a thousandth of them is not.

    ``alone``: all elements but the first are 0.
    """
    values = {n: (x,) + ((0.0 if alone else x),) * 999 for n, x in numbers.items()}
    return Setup(
        "immense", (1000,), values=values, attributes={"reduction": 1, **attributes},
        only=(FLOAT, BF16),
    )  # fmt: skip


HALFWAY = (
    *(129 / 128, 131 / 128, 1025 / 1024, 1027 / 1024),
    *(-129 / 128, -131 / 128, -1025 / 1024, -1027 / 1024),
)
"""Numbers of BF16 and of FLOAT16. Multiplied by 1.5, each lies halfway between two numbers. Either
the upper or the lower of the two is even."""
EVEN = (256.0, 258.0, 2048.0, 2050.0, -256.0, -258.0, -2048.0, -2050.0)
SIGNS = (1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0)
"""Added to the same numbers, these also bring them halfway."""
SQUARES = (
    *(136 / 128, 152 / 128, 168 / 128, -152 / 128),
    *(1504 / 1024, 1568 / 1024, 1632 / 1024, -1632 / 1024),
)
"""Numbers whose squares lie halfway."""


def halfway(
    values: Mapping[str, Any],
    shape: Shape = (8,),
    *,
    more: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> tuple[Setup, ...]:
    """A call in which every step is exact, and results lie halfway between two numbers.

    ``values``: by input one number, all numbers of the shape, or an array of another shape.
    ``more`` are fields of the setup.
    """
    filled = {
        name: value if isinstance(value, np.ndarray) else np.resize(value, shape)
        for name, value in values.items()
    }
    return (
        Setup(
            "halfway",
            shape,
            values=filled,
            attributes=attributes,
            exact=True,
            telling=True,
            **(more or {}),
        ),
    )
