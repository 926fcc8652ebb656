"""How an operator is declared: parameters in C order, products, checks in order, formula.

An operator file holds one function under ``@operator(...)``. Everything that npucall knows of the
operator is derived from that one declaration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray, DType
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


Value: TypeAlias = (
    "int | bool | float | str | DType | Scalar | "
    "tuple[int, ...] | tuple[float, ...] | tuple[bool, ...] | tuple[Scalar, ...]"
)
"""What an attribute can be."""


class Kind(Enum):
    """The types of attributes, each with its exact C type."""

    INT64 = "int64_t"
    INT32 = "int32_t"
    INT = "int"
    INT8 = "int8_t"
    UINT64 = "uint64_t"
    BOOL = "bool"
    FLOAT = "float"
    DOUBLE = "double"
    DTYPE = "aclDataType"
    STRING = "char*"
    SCALAR = "const aclScalar*"
    SCALAR_LIST = "const aclScalarList*"
    INT_ARRAY = "const aclIntArray*"
    FLOAT_ARRAY = "const aclFloatArray*"
    BOOL_ARRAY = "const aclBoolArray*"

    @property
    def nullable(self) -> bool:
        """Whether the C type is a pointer, so that the attribute may be absent."""
        return self.value.endswith("*")


@dataclass(frozen=True)
class Input:
    """A tensor that the operator reads.

    ``read=False``: only its shape and dtype matter. ``optional``: it may be absent. ``as_is``: the
    formula gets its own dtype, as for indices. ``const=False``: the C prototype has no const.
    ``many``: a list of tensors.
    """

    name: str
    description: str
    read: bool = True
    optional: bool = False
    as_is: bool = False
    const: bool = True
    many: bool = False
    c_name: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return _tensor_type(const=self.const, many=self.many)


@dataclass(frozen=True)
class Output:
    """A tensor that the operator writes.

    ``shape`` and ``dtype`` name what a call that does not mention it gets: those of an input, or
    what a rule found under that name; empty where every call has to give the output. ``const``: the
    C prototype says const all the same. ``many``: a list of tensors. ``in_place``: it is read too.
    """

    name: str
    description: str
    shape: str = ""
    dtype: str = ""
    const: bool = False
    many: bool = False
    in_place: bool = False
    c_name: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return _tensor_type(const=self.const, many=self.many)


@dataclass(frozen=True)
class Attribute:
    """A number or a switch. Its default is the one in the formula's signature.

    ``const``: whether the C prototype says const, where it differs from what the kind says.
    ``default`` is that of an operator without formula.
    """

    name: str
    kind: Kind
    description: str
    c_name: str = ""
    const: bool | None = None
    default: Value | None = None

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        if self.const is None:
            return self.kind.value
        return "const " * self.const + self.kind.value.removeprefix("const ")


Argument: TypeAlias = "TensorSpec | tuple[TensorSpec, ...] | Value | None"
"""What a call gives for a parameter: tensors, the value of an attribute, or a null pointer."""

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


ValueCheck: TypeAlias = "Callable[[Mapping[str, AnyArray], Mapping[str, Any]], None]"

Over: TypeAlias = Elementwise | Rows | AtOnce
elementwise, rows, whole = Elementwise, Rows, AtOnce


@dataclass(eq=False, slots=True)
class Whole:
    """Facts of the whole call for a formula that sees only a block of it. Nobody changes it."""

    shapes: Mapping[str, Shape]
    """Shapes of the tensors as passed, and those that the rules found."""
    dtype: np.dtype[Any]
    """What the formula computes in; factors come in it."""
    out: AnyArray | None = None
    """Where the result will stand, if it can be computed there: the last step of a formula, a ufunc
    over all of a block, may take it as its ``out``."""

    def with_out(self, out: AnyArray) -> Whole:
        """The same facts, and the place of a block's result."""
        return Whole(self.shapes, self.dtype, out)

    def count(self, name: str) -> int:
        """Number of elements of a shape."""
        return prod(self.shapes[name])

    def first(self, name: str) -> int:
        """First extent of a shape; 1 for rank 0."""
        return next(iter(self.shapes[name]), 1)

    def reciprocal(self, divisor: int) -> np.floating[Any]:
        """``1 / divisor`` in double, rounded to float32, then to the formula's dtype.

        For a divisor of 0, which only a call without elements has, 1.
        """
        return _reciprocal(self.dtype, divisor)


@lru_cache(1024)
def _reciprocal(dtype: np.dtype[Any], divisor: int) -> np.floating[Any]:
    factor = np.float64(1 / (divisor or 1))
    return factor if dtype == np.float64 else dtype.type(np.float32(factor))


@dataclass(frozen=True, eq=False)
class Operator(Generic[P, R]):
    """A declared operator. ``P`` and ``R`` are its typed signature, for ``Client.run``.

    One without ``formula`` and ``over`` can be called, by a client, or by a device that has it, but
    not computed here; its arguments go by name.
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
    over: Over | None
    source: str
    formula: Callable[Concatenate[Whole, P], R] | None
    reference: bool = True
    """Whether rules and formula are declared, here or where it is listed, so that results can be
    checked. False: known by its C prototype alone, and every call gives its outputs."""
    values: ValueCheck | None = None
    """Refuses what rules cannot see, for a device whose kernel would leave its memory: it gets the
    inputs by name, as they are, and the attributes. The formula refuses the same."""

    def __post_init__(self) -> None:
        if self.formula is None:
            return
        declared = [p.name for p in self.parameters if not isinstance(p, Output)]
        if declared != list(self.signature.parameters):
            raise TypeError(
                f"{self.name}: parameters {declared} are declared, "
                f"but the formula takes {list(self.signature.parameters)} behind whole"
            )

    @cached_property
    def signature(self) -> inspect.Signature:
        """The formula's signature without ``whole``: inputs and attributes in C order."""
        if self.formula is None:
            raise TypeError(f"{self.title} has no formula")
        signature = inspect.signature(self.formula)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, as Python binds them; defaults are left out.

        Raises TypeError for what the formula's signature does not take; without a formula, for what
        is no input or attribute, or is not given though it has to be.
        """
        bound = {**dict(zip(self._names, args, strict=False)), **kwargs}
        fits = len(bound) == len(args) + len(kwargs) and (self.formula is not None or not args)
        if fits and self.required <= bound.keys() <= self._known:
            return bound
        if self.formula is None:
            raise TypeError(self._misfit(args, kwargs))
        return dict(self.signature.bind(*args, **kwargs).arguments)  # says what does not fit

    def _misfit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """What is wrong. C has names that an ``inspect.Signature`` refuses, such as ``from``."""
        if args:
            return f"{self.name}: expected arguments by name, found {len(args)} by position"
        for name in kwargs:
            if name not in self._known:
                known = ", ".join(self._names)
                return f"{self.name}: got an unexpected keyword argument {name!r}; it has {known}"
        missing = ", ".join(name for name in self._names if name in self.required - kwargs.keys())
        return f"{self.name}: missing a required argument: {missing}"

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters if not isinstance(p, Output))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._names)

    @cached_property
    def required(self) -> frozenset[str]:
        """Names of the inputs and attributes that every call has to give.

        Without a formula: not what has a pointer type in C, which is null if it is left out.
        """
        if self.formula is not None:
            parameters = self.signature.parameters.values()
            return frozenset(p.name for p in parameters if p.default is inspect.Parameter.empty)
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

    def with_roles(self, roles: Mapping[str, type[Input | Output]]) -> Operator[P, R]:
        """The same with these roles of tensors; only for one without reference.

        A tensor that is read and written is an output whose storage the call sends.
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


@dataclass(frozen=True)
class Call:
    """What a caller asks for, without data. What is not mentioned is not in ``arguments``."""

    operator: Operator[Any, Any]
    arguments: Mapping[str, Argument]
    stored: tuple[str, ...] = ()
    """The tensors whose storage follows the call, in order; ``element`` names those of lists."""


def element(name: str, index: int) -> str:
    """The name of one tensor of a list."""
    return f"{name}[{index}]"


def tensors_of(name: str, given: Any) -> Iterator[tuple[str, TensorSpec]]:
    """The tensors that a call gives for a parameter, those of a list by ``element``."""
    if isinstance(given, tuple):
        yield from ((element(name, index), spec) for index, spec in enumerate(given))
    elif given is not None:
        yield name, given


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
    values: ValueCheck | None = None,
) -> Callable[[Callable[Concatenate[Whole, P], R]], Operator[P, R]]:
    """Declares an operator; stands above its formula.

    Raises TypeError, at import, where parameters and the formula's signature differ.
    """

    def declare(formula: Callable[Concatenate[Whole, P], R]) -> Operator[P, R]:
        return Operator(
            name, variant, parameters, products, legacy or {}, checks, kernel_dtype, over, source,
            formula, values=values,
        )  # fmt: skip

    return declare


def parameter_of(
    name: str, c_type: str, role: type[Input | Output] | None, *, in_place: bool = False
) -> Parameter:
    """The parameter of a C prototype; ``role`` of a tensor, None of an attribute.

    Raises ValueError for a C type that no kind of parameter has.
    """
    const, pointed = c_type.startswith("const "), c_type.removeprefix("const ")
    if role is None:
        known = {kind.value.removeprefix("const "): kind for kind in Kind}
        if pointed not in known:
            raise ValueError(f"{name}: expected a type of an attribute, found {c_type}")
        return Attribute(name, known[pointed], "", const=const, c_name=name)
    if pointed not in ("aclTensor*", "aclTensorList*"):
        raise ValueError(f"{name}: expected a type of a tensor, found {c_type}")
    many = pointed == "aclTensorList*"
    if role is Input:
        return Input(name, "", optional=True, const=const, many=many, c_name=name)
    return Output(name, "", const=const, many=many, in_place=in_place, c_name=name)


def prototype_only(name: str, parameters: tuple[Parameter, ...], source: str) -> Operator[Any, Any]:
    """An operator that is known by its C prototype alone."""
    return Operator(name, "", parameters, {}, {}, (), None, None, source, None, reference=False)


def c_name(parameter: Parameter) -> str:
    """Its name in C: the one declared, else grad_output becomes gradOutput."""
    spelled = re.sub(r"_(\w)", lambda match: match[1].upper(), parameter.name)
    return parameter.c_name or spelled


def _tensor_type(*, const: bool, many: bool) -> str:
    return "const " * const + ("aclTensorList*" if many else "aclTensor*")


def _as_role(parameter: Parameter, role: type[Input | Output]) -> Parameter:
    if isinstance(parameter, Attribute):
        raise TypeError(f"{parameter.name} is not a tensor")
    changed = parameter_of(parameter.name, parameter.c_type, role)
    return replace(changed, description=parameter.description)
