"""``Statement``: a second description of an operator, and the cases that are worth running."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from npucall.dtypes import FLOAT, FLOATS, DType
from npucall.errors import PARAM_NULLPTR
from npucall.tensors import Shape
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments, Terms, parameter_of
from npucall_conformance.stating.npu import Way
from npucall_conformance.stating.parts import (
    LARGE,
    Attributes,
    Contradiction,
    DTypes,
    In,
    Invalid,
    Out,
    Setup,
)
from npucall_conformance.stating.promotion import never
from npucall_conformance.stating.tables import Takes
from npucall_conformance.stating.written import WrittenCall


@dataclass(frozen=True)
class Parameter:
    """One parameter of the C list of an operator's first phase."""

    name: str
    """The name in a call: ``grad_output``."""
    c_name: str
    """The name in C: ``gradOutput``."""
    c_type: str
    """``const aclTensor*``."""


def parameters_of(prototype: str, renamed: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Reads the parameters from C's list; ``renamed`` has unusual names in calls by C's names."""
    found = []
    for declared in prototype.split(", "):
        c_type, _, c_name = declared.rpartition(" ")
        found.append(Parameter(renamed.get(c_name) or _in_calls(c_name), c_name, c_type))
    return tuple(found)


def _in_calls(c_name: str) -> str:
    """``gradOutput`` becomes grad_output, ``weightOptional`` weight."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", c_name.removesuffix("Optional")).lower()


Loops: TypeAlias = Callable[[Arguments], Any]
Arrays: TypeAlias = Callable[[Arguments], "Terms | Mapping[str, Terms]"]
BASE_SHAPES: tuple[Shape, ...] = ((4, 6), (3, 5, 7), (17,), (2, 3, 4, 5))
RANK_SHAPES: tuple[Shape, ...] = (
    *((), (5,), (2, 1, 3, 1, 1, 2, 1, 2), (1,) * 8),
    *((2, 1, 3, 1, 2), (1, 2, 1, 3, 1, 2), (2, 1, 1, 3, 1, 2, 1)),
)
EMPTY_SHAPES: tuple[Shape, ...] = ((0,), (0, 3), (2, 0), (2, 0, 3), (0, 0))


class _LeftOut(Enum):
    LEFT_OUT = "left out"


LEFT_OUT = _LeftOut.LEFT_OUT
"""The change of an ``Invalid`` that takes a parameter out of the call."""


@dataclass(frozen=True, eq=False)
class Statement:
    """An operator, or a variant of one, stated independently of its declaration."""

    operator: str
    inputs: tuple[In, ...]
    outputs: tuple[Out, ...]
    loops: Loops
    """Scalar loops over Python's floats. It returns nested lists or an array of the output's shape;
    for several outputs it returns a mapping by name."""
    arrays: Arrays
    """The same on float64 arrays, with the size of the terms."""
    prototype: str = field(kw_only=True)
    """The C parameter list of the first phase, without workspace size and executor."""
    takes: Takes = field(kw_only=True)
    """The dtypes that it takes, by product, exactly as a listing must have them."""
    legacy: tuple[str, ...] = ("Ascend310B",)
    """Products of ``takes`` that the software accepts and current documents do not list."""
    formats_by_rank: bool = False
    """It looks at formats, which follow from ranks if a call gives none."""
    null: int = PARAM_NULLPTR
    """The status of a null pointer."""
    defaults: Attributes = field(default_factory=dict)
    """The values of attributes that a call leaves out; those without a default are not here."""
    sprinkled: bool = True
    """Drawn calls have special and extreme numbers in its inputs. Not if a step of the formula
    makes of them what the formula as a whole does not."""
    unwarned: Attributes = field(default_factory=dict)
    """By attribute, the only values for which a reply does not warn."""
    in_kernel: tuple[str, ...] = ()
    """Attributes that are converted to the kernel's dtype; others are converted to FLOAT."""
    short_as_float: bool = False
    """If the kernel dtype is FLOAT16 or BF16, those attributes are converted to FLOAT too."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """By C name, the parameters' names in calls, if these do not follow from the C names."""
    variant: str = ""
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values to cross, by attribute. A value that is callable is called with the base shape."""
    dtypes: tuple[DType, ...] = FLOATS
    """Dtypes of the cases."""
    kernel: Callable[[DTypes], DType] = lambda _: FLOAT
    kernels: Mapping[str, Callable[[DTypes], DType]] = field(default_factory=dict)
    """By short SoC name, the kernel dtypes of products that compute in another dtype."""
    kernel_said: Callable[[DTypes], DType] | None = None
    """The kernel dtype that a reply names, if nothing is rounded to it before the sum."""
    stepwise: Callable[[DType], bool] = never
    """Whether every step rounds to a kernel dtype, instead of to FLOAT."""
    cost: float | Callable[[Arguments], float] = FLOAT_INSIDE
    """The error that computing in float32 may cause, in units of 2^-24 of the terms' size. It is 0
    if the formula is one operation, whose result is rounded once. Sums always cost 32."""
    shapes: Callable[[Shape, Attributes], Mapping[str, Shape]] | None = None
    """Shapes of the inputs from a base shape and the attributes; None: all have the base shape."""
    torch: Callable[[Arguments, Any], Any] | None = None
    """A third opinion from torch: it takes tensors of float64 and returns a tensor (or a mapping),
    or None if it does not apply. The second argument is the module torch."""
    npu: Way | str = field(kw_only=True)
    """How torch_npu calls it; or why it cannot."""
    base_shapes: tuple[Shape, ...] = BASE_SHAPES
    layout_shape: Shape = (3, 4)
    rank_shapes: tuple[Shape, ...] = RANK_SHAPES
    empty_shapes: tuple[Shape, ...] = EMPTY_SHAPES
    sized: Callable[[int], Shape] = lambda count: (count,)
    """The base shape of about that many elements."""
    fitted: Callable[[Shape], Shape] = lambda base: base
    """For any shape, the nearest of the same rank that can be a base shape."""
    space: tuple[str, ...] = ()
    """Inputs that broadcast with each other; empty: shapes follow from the base shape alone."""
    expands: tuple[str, ...] = ()
    """Inputs that broadcast to that shape, not beyond it."""
    large_shape: Shape = (331, 307)
    """Base shape of the layouts of the block ``large``."""
    chunked: Shape | None = None
    """A base shape of more than 4 MiB of FLOAT; None: ``sized`` makes it."""
    large: tuple[Setup, ...] = LARGE
    """The shapes of that block. The last word of a note is the kind; only one dtype has all shapes
    of a kind."""
    broadcast: tuple[Setup, ...] = ()
    mixed: tuple[Setup, ...] = ()
    empty_on: tuple[str, ...] = ()
    """Products that take calls of these shapes; empty: all."""
    empty: tuple[Setup, ...] = ()
    """Empty calls in addition to those of ``empty_shapes``."""
    empty_before: str = ""
    """The first row of ``invalid`` that an empty call does not reach, since its checks end before
    it. Empty: the checks of an empty call end after all rows."""
    empty_spares: tuple[str, ...] = ()
    """The first words of rows before it that are defects only if a call has elements."""
    edges: tuple[Setup, ...] = ()
    """Run with every combination of attributes."""
    faint: Callable[[Arguments], tuple[str, ...]] = lambda _: ()
    """Outputs that are rightly zero in a call of drawn numbers. Every other output must have an
    element that is larger than the tolerance of devices, since otherwise zeros would pass."""
    halfway: tuple[Setup, ...] = ()
    """Cases of the block ``edge`` whose results lie halfway between two numbers."""
    written: tuple[WrittenCall, ...] = ()
    """Calls whose results are written out."""
    reductions: tuple[Setup, ...] = ()
    """Unusual values of attributes that the operator accepts."""
    invalid: tuple[Invalid, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    defaulted: Setup = Setup()  # noqa: RUF009  # frozen
    """The setup of the cases of the block ``defaults``, which also leave out attributes."""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of C."""
        return parameters_of(self.prototype, self.renamed)

    @property
    def title(self) -> str:
        """Name and variant; the ids of cases begin with it."""
        return f"{self.operator}.{self.variant}" if self.variant else self.operator

    @property
    def unread(self) -> tuple[str, ...]:
        """Inputs whose values the operator does not read, so that they need not be sent."""
        return tuple(each.name for each in self.inputs if not each.read)

    @cached_property
    def attribute_parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are not tensors."""
        names = [each.name for each in self.inputs] + [each.name for each in self.outputs]
        tensors = {*map(parameter_of, names)}
        return tuple(each for each in self.parameters if each.name not in tensors)

    def attribute(self, name: str) -> Parameter:
        """The attribute of that name; raises KeyError where there is none."""
        return {each.name: each for each in self.attribute_parameters}[name]

    def input_shapes(self, base: Shape, attributes: Attributes) -> dict[str, Shape]:
        """Shapes of the inputs for a base shape."""
        if self.shapes is None:
            return {each.name: base for each in self.inputs}
        return dict(self.shapes(base, attributes))

    def cost_in(self, given: Arguments) -> float:
        """``cost`` in a call."""
        return self.cost(given) if callable(self.cost) else self.cost

    def terms(self, given: Arguments) -> dict[str, Terms]:
        """The result of ``arrays``, by output."""
        answer = self.arrays(given)
        return {self.outputs[0].name: answer} if isinstance(answer, Terms) else dict(answer)


WITHOUT_BFLOAT16 = ("Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""Products that do not compute with BF16."""
BEFORE_950 = ("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P", "Ascend310B", "Ascend310")
"""All products other than Ascend 950."""
ONLY_950 = ("Ascend950",)
