"""``Statement``: an operator said a second time, and the cases that are worth running on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.dtypes import FLOAT, FLOAT16, FLOATS, DType, promote
from npucall.errors import PARAM_INVALID, NpucallError
from npucall.tensors import Shape
from npucall_client.conformance.given import Given, Terms

if TYPE_CHECKING:
    from npucall_client.conformance.domains import Domain

DTypes: TypeAlias = Mapping[str, DType]
"""Dtypes by parameter: of tensors, of numbers, and what an attribute of that type says."""
Attributes: TypeAlias = Mapping[str, Any]
Loops: TypeAlias = Callable[[Given], Any]
Arrays: TypeAlias = Callable[[Given], "Terms | Mapping[str, Terms]"]

BASE_SHAPES: tuple[Shape, ...] = ((4, 6), (3, 5, 7), (17,), (2, 3, 4, 5))
RANK_SHAPES: tuple[Shape, ...] = ((), (5,), (2, 1, 3, 1, 1, 2, 1, 2), (1,) * 8)
EMPTY_SHAPES: tuple[Shape, ...] = ((0,), (0, 3), (2, 0), (2, 0, 3), (0, 0))


@dataclass(frozen=True)
class In:
    """An input: where its numbers come from, and its dtypes if it does not have the case's."""

    name: str
    domain: Domain
    dtypes: tuple[DType, ...] = ()
    """Its own, taken in turn; empty: the dtype of the case."""
    optional: bool = False
    """Cases come with it and without it."""
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
    attributes: Attributes = field(default_factory=dict)
    dtypes: DTypes = field(default_factory=dict)
    """Of inputs, and of outputs, which are then given."""
    absent: tuple[str, ...] = ()
    """Optional inputs that are not given; None of the others is left out."""
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    only: tuple[DType, ...] = ()
    """Dtypes of cases that it is for; empty: all."""
    filled: float | None = None
    """What every element of the outputs is, whatever the statement says: nothing is computed."""


@dataclass(frozen=True)
class Invalid:
    """One row of the error table: a valid call with exactly one defect.

    ``changes`` by parameter: None (a null pointer); an attribute's value; or, for a tensor, a
    mapping of ``dtype``, ``shape``, ``format``, ``values``, of which the rest stay as they were.
    A statement lists them in the order in which they are checked; of two neighbours in one call the
    first must be found.
    """

    row: str
    changes: Mapping[str, Any]
    blames: tuple[str, ...]
    error: type[NpucallError]
    status: int = PARAM_INVALID
    block: str = "invalid"
    base: Setup = field(default_factory=Setup)
    """The valid call that it is put in."""
    products: tuple[str, ...] = ()
    alone: bool = False
    """Not put into one call with others, since they would mend or hide it."""


@dataclass(frozen=True)
class Refusal:
    """Expected: an error with this aclnn status."""

    status: int = PARAM_INVALID


@dataclass(frozen=True)
class Contradiction:
    """A row of operators.md 1.4, or of forwards.md 5: sources that differ, and who is right.

    ``sources``: by source, what the call answers if that source is right: a ``Refusal``, the only
    output's numbers, or ``...`` for any answer without an error. Numbers are compared to 1 %.
    """

    number: int | str
    """Rows of forwards.md are "F1" and so on."""
    topic: str
    setup: Setup
    sources: Mapping[str, Any]
    decided: str
    """The source that the reference follows."""
    status: int = 0


def always(dtype: DType) -> Callable[[DTypes], DType]:
    """Kernel dtype: this one."""
    return lambda _: dtype


def dtype_of(name: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: that of a parameter."""
    return lambda dtypes: dtypes[name]


def promotion(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: what these promote to, one after the other; absent ones do not count."""

    def kernel(dtypes: DTypes) -> DType:
        first, *rest = [dtypes[name] for name in names if name in dtypes]
        for dtype in rest:
            first = promote(first, dtype) or FLOAT
        return first

    return kernel


def float16_if_all(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: FLOAT16 if all of them are, otherwise FLOAT."""
    return lambda dtypes: FLOAT16 if all(dtypes[n] is FLOAT16 for n in names) else FLOAT


def never(_: DType) -> bool:
    """No kernel dtype makes every step round."""
    return False


@dataclass(frozen=True, eq=False)
class Statement:
    """An operator, or a variant of one, stated apart from its own file."""

    operator: str
    inputs: tuple[In, ...]
    outputs: tuple[Out, ...]
    loops: Loops
    """Scalar loops over Python's floats. Answers nested lists or an array of the output's shape;
    of several outputs a mapping by name."""
    arrays: Arrays
    """The same on float64 arrays, with the size of the terms."""
    variant: str = ""
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values to cross, by attribute. A value that is callable is called with the base shape."""
    dtypes: tuple[DType, ...] = FLOATS
    """Dtypes of the cases."""
    kernel: Callable[[DTypes], DType] = lambda _: FLOAT
    kernels: Mapping[str, Callable[[DTypes], DType]] = field(default_factory=dict)
    """Those of products, by short SoC name, that compute in another dtype."""
    stepwise: Callable[[DType], bool] = never
    """Whether every step rounds to a kernel dtype, instead of to FLOAT."""
    shapes: Callable[[Shape, Attributes], Mapping[str, Shape]] | None = None
    """Shapes of the inputs from a base shape and the attributes; None: all have the base shape."""
    torch: Callable[[Given, Any], Any] | None = None
    """A third opinion: tensors of float64 in, a tensor (or a mapping) out; None where it does not
    apply. The second argument is the module."""
    base_shapes: tuple[Shape, ...] = BASE_SHAPES
    layout_shape: Shape = (3, 4)
    rank_shapes: tuple[Shape, ...] = RANK_SHAPES
    empty_shapes: tuple[Shape, ...] = EMPTY_SHAPES
    sized: Callable[[int], Shape] = lambda count: (count,)
    """Base shape of about that many elements."""
    broadcast: tuple[Setup, ...] = ()
    mixed: tuple[Setup, ...] = ()
    empty: tuple[Setup, ...] = ()
    """Besides ``empty_shapes``."""
    edges: tuple[Setup, ...] = ()
    """Run with every combination of attributes."""
    reductions: tuple[Setup, ...] = ()
    """Values of attributes outside the usual that are accepted."""
    invalid: tuple[Invalid, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def title(self) -> str:
        """Name and variant, as ids begin."""
        return f"{self.operator}.{self.variant}" if self.variant else self.operator

    def input_shapes(self, base: Shape, attributes: Attributes) -> dict[str, Shape]:
        """Shapes of the inputs for a base shape."""
        if self.shapes is None:
            return {each.name: base for each in self.inputs}
        return dict(self.shapes(base, attributes))

    def terms(self, given: Given) -> dict[str, Terms]:
        """What ``arrays`` answers, by output."""
        answer = self.arrays(given)
        return {self.outputs[0].name: answer} if isinstance(answer, Terms) else dict(answer)


PAIRS_OF_FLOATS = tuple((a, b) for a in FLOATS for b in FLOATS if a is not b)


def mixed_floats(*inputs: str, output: str = "") -> tuple[Setup, ...]:
    """Every input alone of another float dtype than the rest, and outputs narrower and wider."""
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
    """Edge values of several parameters, every combination of them, in one call of rank 1."""
    names = list(values)
    rows: list[tuple[float, ...]] = [()]
    for name in names:
        rows = [(*row, value) for row in rows for value in values[name]]
    columns = {name: tuple(row[i] for row in rows) for i, name in enumerate(names)}
    return Setup(base=(len(rows),), values=columns, **more)


WITHOUT_BFLOAT16 = ("Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""Products that do not compute with BF16."""
BEFORE_950 = ("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""All others than Ascend 950."""
