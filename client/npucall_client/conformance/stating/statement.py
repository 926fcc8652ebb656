"""``Statement``: an operator said a second time, and the cases that are worth running on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from npucall.dtypes import FLOAT, FLOATS, DType
from npucall.tensors import Shape
from npucall_client.conformance.stating.given import FLOAT_INSIDE, Given, Terms
from npucall_client.conformance.stating.kernels import never
from npucall_client.conformance.stating.parts import (
    Attributes,
    Contradiction,
    DTypes,
    In,
    Invalid,
    Out,
    Setup,
)
from npucall_client.conformance.stating.prototypes import Parameter, parameters_of
from npucall_client.conformance.stating.setups import LARGE
from npucall_client.conformance.stating.tables import Takes

Loops: TypeAlias = Callable[[Given], Any]


Arrays: TypeAlias = Callable[[Given], "Terms | Mapping[str, Terms]"]


BASE_SHAPES: tuple[Shape, ...] = ((4, 6), (3, 5, 7), (17,), (2, 3, 4, 5))


RANK_SHAPES: tuple[Shape, ...] = (
    *((), (5,), (2, 1, 3, 1, 1, 2, 1, 2), (1,) * 8),
    *((2, 1, 3, 1, 2), (1, 2, 1, 3, 1, 2), (2, 1, 1, 3, 1, 2, 1)),
)


EMPTY_SHAPES: tuple[Shape, ...] = ((0,), (0, 3), (2, 0), (2, 0, 3), (0, 0))


class _LeftOut(Enum):
    LEFT_OUT = "left out"


LEFT_OUT = _LeftOut.LEFT_OUT
"""What becomes of a parameter that a call does not mention."""


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
    prototype: str = field(kw_only=True)
    """The C parameter list of the first phase, without workspace size and executor."""
    takes: Takes = field(kw_only=True)
    """The dtypes that it takes, by product, exactly as a listing must have them."""
    legacy: tuple[str, ...] = ("Ascend310B",)
    """Products of ``takes`` that the software accepts and current documents do not list."""
    defaults: Attributes = field(default_factory=dict)
    """What attributes are if a call leaves them out; those without a default are not here."""
    unwarned: Attributes = field(default_factory=dict)
    """By attribute, the only values of which a reply does not warn."""
    in_kernel: tuple[str, ...] = ()
    """Numbers that are converted to the kernel's dtype; others are to FLOAT."""
    short_as_float: bool = False
    """Beside a kernel of FLOAT16 or BF16 those are converted to FLOAT as well."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What calls name parameters, by their C names, where these say something else."""
    variant: str = ""
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values to cross, by attribute. A value that is callable is called with the base shape."""
    dtypes: tuple[DType, ...] = FLOATS
    """Dtypes of the cases."""
    kernel: Callable[[DTypes], DType] = lambda _: FLOAT
    kernels: Mapping[str, Callable[[DTypes], DType]] = field(default_factory=dict)
    """Those of products, by short SoC name, that compute in another dtype."""
    kernel_said: Callable[[DTypes], DType] | None = None
    """What a reply says of it, where nothing is rounded to that before it is summed."""
    stepwise: Callable[[DType], bool] = never
    """Whether every step rounds to a kernel dtype, instead of to FLOAT."""
    cost: float | Callable[[Given], float] = FLOAT_INSIDE
    """What float32 inside costs, in units of 2^-24 of the terms' size; 0 where the formula is one
    operation, so that its result is rounded once. Sums always cost 32."""
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
    fitted: Callable[[Shape], Shape] = lambda base: base
    """The base shape that is nearest to any other of the same rank, if not all fit."""
    space: tuple[str, ...] = ()
    """Inputs that broadcast with each other; empty: shapes follow from the base shape alone."""
    expands: tuple[str, ...] = ()
    """Inputs that broadcast to that shape, not beyond it."""
    large_shape: Shape = (331, 307)
    """Base shape of the layouts of the block ``large``."""
    chunked: Shape | None = None
    """Base shape of more than 4 MiB of FLOAT; None: as ``sized`` has it."""
    large: tuple[Setup, ...] = LARGE
    """Its shapes; the last word of a note is the kind, of which not every dtype has all."""
    broadcast: tuple[Setup, ...] = ()
    mixed: tuple[Setup, ...] = ()
    empty: tuple[Setup, ...] = ()
    """Besides ``empty_shapes``."""
    empty_before: str = ""
    """The first row of ``invalid`` that is checked behind what ends the checks of an empty call;
    none: that comes last."""
    empty_spares: tuple[str, ...] = ()
    """How rows before it begin that are defects only of a call that has elements."""
    edges: tuple[Setup, ...] = ()
    """Run with every combination of attributes."""
    faint: Callable[[Given], tuple[str, ...]] = lambda _: ()
    """Outputs that are zero by right in a call of drawn numbers. Of others some element must be
    larger than the tolerance of devices, or zeros would do."""
    halfway: tuple[Setup, ...] = ()
    """Cases of the block ``edge`` whose results lie halfway between two numbers."""
    reductions: tuple[Setup, ...] = ()
    """Values of attributes outside the usual that are accepted."""
    invalid: tuple[Invalid, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    defaulted: Setup = Setup()  # noqa: RUF009  # frozen
    """What cases of the block ``defaults`` have besides attributes that are left out."""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of C."""
        return parameters_of(self.prototype, self.renamed)

    @property
    def title(self) -> str:
        """Name and variant, as ids begin."""
        return f"{self.operator}.{self.variant}" if self.variant else self.operator

    @property
    def unread(self) -> tuple[str, ...]:
        """Inputs whose values nobody reads, so that they need not be sent."""
        return tuple(each.name for each in self.inputs if not each.read)

    @cached_property
    def attribute_parameters(self) -> tuple[Parameter, ...]:
        """Those that are no tensors."""
        tensors = {each.name for each in self.inputs} | {each.name for each in self.outputs}
        return tuple(each for each in self.parameters if each.name not in tensors)

    def attribute(self, name: str) -> Parameter:
        """The attribute of that name; raises KeyError where there is none."""
        return {each.name: each for each in self.attribute_parameters}[name]

    def input_shapes(self, base: Shape, attributes: Attributes) -> dict[str, Shape]:
        """Shapes of the inputs for a base shape."""
        if self.shapes is None:
            return {each.name: base for each in self.inputs}
        return dict(self.shapes(base, attributes))

    def cost_in(self, given: Given) -> float:
        """What float32 inside costs in a call."""
        return self.cost(given) if callable(self.cost) else self.cost

    def terms(self, given: Given) -> dict[str, Terms]:
        """What ``arrays`` answers, by output."""
        answer = self.arrays(given)
        return {self.outputs[0].name: answer} if isinstance(answer, Terms) else dict(answer)


WITHOUT_BFLOAT16 = ("Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""Products that do not compute with BF16."""


BEFORE_950 = ("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""All others than Ascend 950."""
