"""What a statement consists of: inputs, outputs, special cases, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.dtypes import DType
from npucall.errors import PARAM_INVALID, NpucallError
from npucall.tensors import Shape
from npucall_client.conformance.stating.given import Given

if TYPE_CHECKING:
    from npucall_client.conformance.stating.domains import Domain

DTypes: TypeAlias = Mapping[str, DType]
"""Dtypes by parameter: of tensors, of numbers, and what an attribute of that type says."""


Attributes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class In:
    """An input: where its numbers come from, and its dtypes if it does not have the case's."""

    name: str
    domain: Domain
    dtypes: tuple[DType, ...] = ()
    """Its own, taken in turn; empty: the dtype of the case."""
    optional: bool = False
    """Cases come with it and without it."""
    read: bool = True
    """Its values matter, so that a call has to send them."""
    refused: bool = False
    """Optional, but the operator refuses it: only setups that say its shape or values have it."""


@dataclass(frozen=True)
class Out:
    """An output: its shape and dtype, named by an input or made from the call.

    The dtype is the one that a call gets which does not mention the output.
    """

    name: str
    shape: str | Callable[[Given], Shape]
    dtype: str | Callable[[DTypes], DType]

    def shape_in(self, given: Given) -> Shape:
        """Its shape in a call."""
        return given.shape(self.shape) if isinstance(self.shape, str) else self.shape(given)

    def dtype_in(self, dtypes: DTypes) -> DType:
        """Its dtype in a call that does not mention it."""
        return dtypes[self.dtype] if isinstance(self.dtype, str) else self.dtype(dtypes)


@dataclass(frozen=True)
class Setup:
    """What is special about a case; everything else is as usual.

    Shapes that it does not say follow from ``base``, attributes that it does not say are taken in
    turn from the statement's, dtypes that it does not say are the case's.
    """

    note: str = ""
    """Stands in the case's id: letters, digits and hyphens."""
    base: Shape | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers instead of drawn ones, by input; they also say its shape."""
    raw: Mapping[str, bytes] = field(default_factory=dict)
    """Bytes of inputs of BOOL instead of 0 and 1, repeated; any but 0 is true."""
    attributes: Attributes = field(default_factory=dict)
    dtypes: DTypes = field(default_factory=dict)
    """Of inputs, and of outputs, which are then given."""
    left_out: tuple[str, ...] = ()
    """Attributes that the call does not mention, so that they are what they are by default."""
    absent: tuple[str, ...] = ()
    """Optional inputs that are not given; None of the others is left out."""
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    only: tuple[DType, ...] = ()
    """Dtypes of cases that it is for; empty: all."""
    telling: bool = False
    """Quick runs have it besides their sample."""
    exact: bool = False
    """Its numbers are such that every step is exact in FLOAT, and only the last rounding is not."""
    filled: float | None = None
    """What every element of the outputs is, whatever the statement says: nothing is computed."""


@dataclass(frozen=True)
class Invalid:
    """One row of the error table: a valid call with exactly one defect.

    ``changes`` by parameter: None (a null pointer); LEFT_OUT; an attribute's value; or, for a
    tensor, a mapping of ``dtype``, ``shape``, ``format``, ``values``, of which the rest stay as
    they were. A statement lists them in the order in which they are checked; of two neighbours in
    one call the first must be found.
    """

    row: str
    changes: Mapping[str, Any]
    blames: tuple[str, ...]
    error: type[NpucallError]
    status: int | None = PARAM_INVALID
    """None: refused before anything of CANN is asked."""
    block: str = "invalid"
    base: Setup = field(default_factory=Setup)
    """The valid call that it is put in."""
    products: tuple[str, ...] = ()
    alone: bool = False
    """Not put into one call with others, since they would mend or hide it."""
    whoever: bool = False
    """Some of ``blames`` are to blame, not all of them."""


@dataclass(frozen=True)
class Refusal:
    """Expected: an error with this aclnn status."""

    status: int = PARAM_INVALID


@dataclass(frozen=True)
class Contradiction:
    """Sources that contradict each other, and which of them the reference follows.

    ``sources``: by source, what the call answers if that source is right: a ``Refusal``, the only
    output's numbers, or ``...`` for any answer without an error. Numbers are compared to 1 %.
    """

    number: int | str
    """Of its row in docs/conformance.md; those of forward operators begin with F."""
    topic: str
    setup: Setup
    sources: Mapping[str, Any]
    decided: str
    """The source that the reference follows."""
    status: int = 0
