"""An operator: parameters in C order, products, checks in order, formula.

An operator file holds one function under ``@operator(...)``. Everything that npucall knows about
the operator follows from that one declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
)

from npucall.declare import help_texts, names
from npucall.declare.parameters import (
    Attribute,
    Input,
    Output,
    Parameter,
    Value,
    c_name,
    parameter_of,
)

if TYPE_CHECKING:
    from npucall.declare.domain import Domain
    from npucall.declare.draft import Draft
    from npucall.declare.facts import Facts
    from npucall.declare.prepare import Prepared
    from npucall.declare.rules.rule import Rule
    from npucall.dtypes import AnyArray, DType
    from npucall.products import Product
    from npucall.tensors import Shape

P = ParamSpec("P")
R = TypeVar("R")
Area: TypeAlias = Literal[
    "losses",
    "activations",
    "normalisation",
    "attention",
    "convolution and pooling",
    "images",
    "indexing",
    "mixtures of experts",
    "recurrent networks",
    "arithmetic",
]
"""What an operator is for. Pages and lists have them in this order."""
Unwritten: TypeAlias = "Callable[[Prepared], AnyArray | float | None]"
"""The values of elements that a device does not write: a number, or one for each element of the
output, also for those that it writes. None if it writes all of them. The formula writes the
same."""


@dataclass(frozen=True)
class Values:
    """Checks of values, which rules do not see, for a kernel that would access wrong memory.

    The formula refuses the same.
    """

    reads: tuple[str, ...]
    """Inputs whose elements it reads; of other inputs it sees only the shape."""
    check: Callable[[Facts, Mapping[str, Any], Mapping[str, Any]], None]
    """Raises ArgumentError. Gets the facts, the inputs by name, to be read by ``facts.read`` as
    they are, and the attributes."""
    passes: Callable[[Facts], range]
    """Integers that are always valid: if all are in this range, no further check is needed."""


@dataclass(frozen=True)
class Sample:
    """What is special in the operator's small valid call: see ``samples``."""

    shapes: Mapping[str, Shape | tuple[Shape, ...]] = field(default_factory=dict)
    """Of inputs; all others have one shape. A list has as many tensors as it has shapes here, two
    if it is not named."""
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    """Of inputs that do not have the dtype of all others: labels."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """As a caller gives them; all others have their defaults."""
    follows: str = ""
    """The attribute that names the dtype of all others."""
    without: tuple[str, ...] = ()
    """Inputs that no valid call has, or with which others have other shapes."""
    kept: tuple[str, ...] = ()
    """Optional inputs that a call needs that has none of the others."""
    dense: tuple[str, ...] = ()
    """Tensors that must have no gaps."""
    least: float = 0.1
    """Numbers lie between this and 0.9, which are probabilities, and what has logarithms."""
    integers: range = range(2)
    """Those that tensors of integers have."""


@dataclass(frozen=True, eq=False, repr=False)
class Operator(Generic[P, R]):
    """A declared operator. ``P`` and ``R`` are its typed signature, for ``Client.run``.

    Without ``formula`` and ``over``, a client can call it and a device can run it, but the CPU
    reference cannot; its arguments are given by name.
    """

    name: str
    variant: str
    parameters: tuple[Parameter, ...]
    products: Mapping[Product, tuple[DType, ...]]
    """Products of the documents, with the types that the operator takes there."""
    legacy: Mapping[Product, tuple[DType, ...]]
    """Products that the software accepts and current documents do not list."""
    checks: tuple[Rule, ...]
    kernel_dtype: Callable[[Draft], DType] | None
    over: Domain | None
    source: str
    formula: Callable[Concatenate[Facts, P], R] | None
    reference: bool = True
    """Whether rules and formula are declared, here or on the server that lists it, so that results
    can be checked. False: only its C prototype is known, and every call must give its outputs."""
    values: Values | None = None
    """The checks of its inputs' values before a device runs it."""
    sample: Sample = field(default_factory=Sample)
    """What is special in its small valid call."""
    unwritten: Mapping[str, Unwritten] = field(default_factory=dict)
    """Outputs with elements that a device does not write, by name."""
    area: Area | None = None
    """None if only its C prototype is known."""
    torch: str = ""
    """What computes the same in PyTorch, or what it is the gradient of: ``nn.functional.gelu``."""
    formats_by_rank: bool = False
    """A tensor that is ND has the format of its rank, as torch_npu says it: NCL, NCHW, NCDHW."""

    def __post_init__(self) -> None:
        if self.formula is None:
            return
        for name in ("__module__", "__name__", "__qualname__"):  # it has the formula's place
            object.__setattr__(self, name, getattr(self.formula, name))
        declared = list(self._names)
        if declared != list(self.signature.parameters):
            raise TypeError(
                f"{self.name}: parameters {declared} are declared, "
                f"but the formula takes {list(self.signature.parameters)} after facts"
            )

    def __repr__(self) -> str:
        return help_texts.in_short(self)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name, as a function is pickled; known by its C prototype alone, by its parts."""
        if self.formula is not None:
            return self.formula.__qualname__
        parts = self.name, self.variant, self.parameters
        return Operator, (*parts, {}, {}, (), None, None, self.source, None, self.reference)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The formula's signature without ``facts``: inputs and attributes in C order."""
        if self.formula is None:
            raise TypeError(f"{self.title} has no formula")
        signature = inspect.signature(self.formula)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, as Python binds them; defaults are left out.

        Names in C work like those in Python. Raises TypeError for an argument that the formula's
        signature does not have; without a formula, for one that is no input or attribute, and for a
        missing one.
        """
        bound = self._fitting(args, kwargs)
        if bound is None:
            kwargs = names.in_python(self, kwargs)
            bound = self._fitting(args, kwargs)
        if bound is None:
            raise names.misfit(self, args, kwargs)
        return bound

    def _fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        bound = {**dict(zip(self._names, args, strict=False)), **kwargs}
        fits = len(bound) == len(args) + len(kwargs) and (self.formula is not None or not args)
        return bound if fits and self.required <= bound.keys() <= self._known else None

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters if isinstance(p, Attribute) or p in self.given)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._names)

    @cached_property
    def required(self) -> frozenset[str]:
        """Names of the inputs and attributes that every call must give.

        Without a formula: except those with a pointer type in C, which are null if left out.
        """
        if self.formula is not None:
            parameters = self.signature.parameters.values()
            given = {p.name for p in parameters if p.default is inspect.Parameter.empty}
            return frozenset(given - {p.name for p in self.inputs if p.optional})
        tensors = {p.name for p in self.inputs if not p.optional}
        values = {p.name for p in self.attributes if not p.kind.nullable and p.default is None}
        return frozenset(tensors | values)

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        """Parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs in C order."""
        return tuple(p for p in self.parameters if isinstance(p, Input))

    @cached_property
    def given(self) -> tuple[Input | Output, ...]:
        """The tensors that arguments of a call give, in C order: inputs, and outputs in place.

        Without a formula the latter are outputs like others, whose storage a call sends.
        """
        return tuple(
            p
            for p in self.parameters
            if isinstance(p, Input)
            or (isinstance(p, Output) and p.in_place and self.formula is not None)
        )

    @cached_property
    def as_is(self) -> frozenset[str]:
        """The inputs that the formula gets in their own dtype."""
        return frozenset(parameter.name for parameter in self.inputs if parameter.as_is)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs in C order."""
        return tuple(p for p in self.parameters if isinstance(p, Output))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes in C order."""
        return tuple(p for p in self.parameters if isinstance(p, Attribute))

    def default(self, attribute: Attribute) -> Value | None:
        """What an attribute is if a call does not mention it; None is absent."""
        if self.formula is None:
            return attribute.default
        value: Any = self.signature.parameters[attribute.name].default
        return None if value is inspect.Parameter.empty else value

    def dtypes_on(self, product: Product) -> tuple[DType, ...]:
        """The types that the operator takes on a product; empty if it is not there."""
        return self.products.get(product) or self.legacy.get(product, ())

    def product_near(self, usual: Product) -> Product:
        """``usual`` if the operator is there, else the first product that has it."""
        return usual if self.dtypes_on(usual) else next(iter(self.products), usual)

    def with_roles(self, roles: Mapping[str, type[Input | Output]]) -> Operator[P, R]:
        """The same with these roles of tensors; only for one without reference.

        A tensor that is read and written is an output, and the call sends its storage.
        """
        changed = [_as_role(p, roles[p.name]) if p.name in roles else p for p in self.parameters]
        return replace(self, parameters=tuple(changed))

    @property
    def title(self) -> str:
        """Name and variant for a message."""
        return f"{self.name} ({self.variant})" if self.variant else self.name

    @property
    def description(self) -> str:
        """The docstring: formula and peculiarities."""
        if not self.reference:
            return "Known by its C prototype alone: no reference, unvalidated."
        return (self.formula and inspect.getdoc(self.formula)) or ""

    @property
    def summary(self) -> str:
        """Its first line."""
        return self.description.partition("\n")[0]

    @property
    def prototype(self) -> str:
        """C declaration of phase one."""
        own = [f"{p.c_type} {c_name(p)}" for p in self.parameters]
        listed = ", ".join([*own, "uint64_t* workspaceSize", "aclOpExecutor** executor"])
        return f"aclnnStatus {self.name}GetWorkspaceSize({listed});"


help_texts.like_a_function(Operator)


def operator(  # noqa: PLR0913  # a declaration has as many parts as an operator
    name: str,
    *parameters: Parameter,
    products: Mapping[Product, tuple[DType, ...]],
    checks: tuple[Rule, ...],
    kernel_dtype: Callable[[Draft], DType],
    over: Domain,
    source: str,
    area: Area,
    torch: str = "",
    variant: str = "",
    legacy: Mapping[Product, tuple[DType, ...]] | None = None,
    values: Values | None = None,
    sample: Sample | None = None,
    unwritten: Mapping[str, Unwritten] | None = None,
    formats_by_rank: bool = False,
) -> Callable[[Callable[Concatenate[Facts, P], R]], Operator[P, R]]:
    """Declares an operator; decorates its formula.

    Raises TypeError, at import, if parameters and the formula's signature differ.
    """

    def declare(formula: Callable[Concatenate[Facts, P], R]) -> Operator[P, R]:
        return Operator(
            name, variant, parameters, products, legacy or {}, checks, kernel_dtype, over, source,
            formula, values=values, sample=sample or Sample(), unwritten=unwritten or {},
            area=area, torch=torch, formats_by_rank=formats_by_rank,
        )  # fmt: skip

    return declare


def prototype_only(name: str, parameters: tuple[Parameter, ...], source: str) -> Operator[Any, Any]:
    """An operator of which only the C prototype is known."""
    return Operator(name, "", parameters, {}, {}, (), None, None, source, None, reference=False)


def _as_role(parameter: Parameter, role: type[Input | Output]) -> Parameter:
    if isinstance(parameter, Attribute):
        raise TypeError(f"{parameter.name} is not a tensor")
    changed = parameter_of(parameter.name, parameter.c_type, role)
    return replace(changed, description=parameter.description)
