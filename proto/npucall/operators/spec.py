"""How an operator is declared: parameters in C order, products, checks in order, formula.

An operator file holds one function under ``@operator(...)``. Everything that npucall knows of the
operator is derived from that one declaration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from npucall.dtypes import DType
    from npucall.operators.draft import Draft
    from npucall.operators.rules import Rule
    from npucall.products import Product
    from npucall.tensors import Shape, TensorSpec

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Scalar:
    """A number with a dtype of its own: CANN's aclScalar."""

    dtype: DType
    value: float


Value: TypeAlias = "int | bool | float | str | tuple[int, ...] | Scalar"
"""What an attribute can be."""


class Kind(Enum):
    """The types of attributes, each with its exact C type."""

    INT64 = "int64_t"
    BOOL = "bool"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "char*"
    SCALAR = "const aclScalar*"
    INT_ARRAY = "const aclIntArray*"

    @property
    def nullable(self) -> bool:
        """Whether the C type is a pointer, so that the attribute may be absent."""
        return self.value.endswith("*")


@dataclass(frozen=True)
class Input:
    """A tensor that the operator reads.

    ``read=False``: only its shape and dtype matter. ``optional``: it may be absent. ``as_is``: the
    formula gets its own dtype, as for indices. ``const=False``: the C prototype has no const.
    """

    name: str
    description: str
    read: bool = True
    optional: bool = False
    as_is: bool = False
    const: bool = True
    c_name: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return "const aclTensor*" if self.const else "aclTensor*"


@dataclass(frozen=True)
class Output:
    """A tensor that the operator writes.

    ``shape`` and ``dtype`` name what a call that does not mention it gets: those of an input, or
    what a rule found under that name. ``const``: the C prototype says const all the same.
    """

    name: str
    description: str
    shape: str
    dtype: str
    const: bool = False
    c_name: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return "const aclTensor*" if self.const else "aclTensor*"


@dataclass(frozen=True)
class Attribute:
    """A number or a switch. Its default is the one in the formula's signature."""

    name: str
    kind: Kind
    description: str
    c_name: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return self.kind.value


Argument: TypeAlias = "TensorSpec | Value | None"
"""What a call gives for a parameter: a tensor, the value of an attribute, or a null pointer."""

Parameter: TypeAlias = Input | Output | Attribute


@dataclass(frozen=True)
class Elementwise:
    """The formula works element by element on ``space``, a shape that the rules found.

    ``sum_to`` names an input: results are summed over the axes along which it was stretched.
    ``widen=False``: the formula gets the kernel dtype itself, where a kernel rounds every step;
    otherwise float32.
    """

    space: str
    sum_to: str | None = None
    widen: bool = True


@dataclass(frozen=True)
class Rows:
    """The formula works on complete rows along the attribute ``dim``: its arrays' last axis."""

    dim: str
    widen: bool = True


@dataclass(frozen=True)
class AtOnce:
    """The formula gets all of every array, and may answer a tuple of several."""

    widen: bool = True


Over: TypeAlias = Elementwise | Rows | AtOnce
elementwise, rows, whole = Elementwise, Rows, AtOnce


@dataclass(frozen=True)
class Whole:
    """Facts of the whole call for a formula that sees only a block of it."""

    shapes: Mapping[str, Shape]
    """Shapes of the tensors as passed, and those that the rules found."""
    dtype: np.dtype[Any]
    """What the formula computes in; factors come in it."""

    def count(self, name: str) -> int:
        """Number of elements of a shape."""
        return prod(self.shapes[name])

    def first(self, name: str) -> int:
        """First extent of a shape; 1 for rank 0."""
        return next(iter(self.shapes[name]), 1)

    def reciprocal(self, divisor: int) -> np.generic:
        """``1 / divisor`` in double, rounded to float32, then to the formula's dtype.

        For a divisor of 0, which only a call without elements has, 1.
        """
        factor = np.float64(1 / (divisor or 1))
        if self.dtype == np.float64:
            return factor
        return self.dtype.type(np.float32(factor))


@dataclass(frozen=True, eq=False)
class Operator(Generic[P, R]):
    """A declared operator. ``P`` and ``R`` are its typed signature, for ``Client.run``."""

    name: str
    variant: str
    parameters: tuple[Parameter, ...]
    products: Mapping[Product, tuple[DType, ...]]
    """Products of the documents, with the types that the operator takes there."""
    legacy: Mapping[Product, tuple[DType, ...]]
    """Products that the software accepts and current documents do not list."""
    checks: tuple[Rule, ...]
    kernel_dtype: Callable[[Draft], DType]
    over: Over
    source: str
    formula: Callable[Concatenate[Whole, P], R]

    def __post_init__(self) -> None:
        declared = [p.name for p in self.parameters if not isinstance(p, Output)]
        if declared != list(self.signature.parameters):
            raise TypeError(
                f"{self.name}: parameters {declared} are declared, "
                f"but the formula takes {list(self.signature.parameters)} behind whole"
            )

    @cached_property
    def signature(self) -> inspect.Signature:
        """The formula's signature without ``whole``: inputs and attributes in C order."""
        signature = inspect.signature(self.formula)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, as Python binds them; defaults are left out.

        Raises TypeError for what the formula's signature does not take.
        """
        bound = {**dict(zip(self._names, args, strict=False)), **kwargs}
        fits = len(bound) == len(args) + len(kwargs)
        if fits and self._required <= bound.keys() <= self._known:
            return bound
        return dict(self.signature.bind(*args, **kwargs).arguments)  # says what does not fit

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._names)

    @cached_property
    def _required(self) -> frozenset[str]:
        parameters = self.signature.parameters.values()
        return frozenset(p.name for p in parameters if p.default is inspect.Parameter.empty)

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        """Parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs in C order."""
        return tuple(p for p in self.parameters if isinstance(p, Input))

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
        value: Any = self.signature.parameters[attribute.name].default
        return None if value is inspect.Parameter.empty else value

    def dtypes_on(self, product: Product) -> tuple[DType, ...]:
        """The types that the operator takes on a product; empty if it is not there."""
        return self.products.get(product) or self.legacy.get(product, ())

    @property
    def title(self) -> str:
        """Name and variant for a message."""
        return f"{self.name} ({self.variant})" if self.variant else self.name

    @property
    def description(self) -> str:
        """The docstring: formula and peculiarities."""
        return inspect.getdoc(self.formula) or ""

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


@dataclass(frozen=True)
class Call:
    """What a caller asks for, without data. What is not mentioned is not in ``arguments``."""

    operator: Operator[Any, Any]
    arguments: Mapping[str, Argument]
    stored: tuple[str, ...] = ()
    """The tensors whose storage follows the call, in that order."""


def operator(  # a declaration has as many parts as an operator
    name: str,
    *parameters: Parameter,
    products: Mapping[Product, tuple[DType, ...]],
    checks: tuple[Rule, ...],
    kernel_dtype: Callable[[Draft], DType],
    over: Over,
    source: str,
    variant: str = "",
    legacy: Mapping[Product, tuple[DType, ...]] | None = None,
) -> Callable[[Callable[Concatenate[Whole, P], R]], Operator[P, R]]:
    """Declares an operator; stands above its formula.

    Raises TypeError, at import, where parameters and the formula's signature differ.
    """

    def declare(formula: Callable[Concatenate[Whole, P], R]) -> Operator[P, R]:
        return Operator(
            name, variant, parameters, products, legacy or {}, checks, kernel_dtype, over, source,
            formula,
        )  # fmt: skip

    return declare


def c_name(parameter: Parameter) -> str:
    """Its name in C: the one declared, else grad_output becomes gradOutput."""
    spelled = re.sub(r"_(\w)", lambda match: match[1].upper(), parameter.name)
    return parameter.c_name or spelled
