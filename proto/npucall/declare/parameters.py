"""The parameters of an operator, in C order: tensors that it reads or writes, and attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from npucall.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.draft import Draft


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

    ``read=False``: its values do not matter, its shape and dtype only to rules that name it.
    ``optional``: it may be absent. ``as_is``: the formula gets its own dtype, as for indices.
    ``const=False``: the C prototype has no const. ``many``: a list of tensors. ``dtype``: a tensor,
    or a dtype that a rule found; it is converted to that dtype before the kernel's.
    """

    name: str
    description: str
    read: bool = True
    optional: bool = False
    as_is: bool = False
    const: bool = True
    many: bool = False
    c_name: str = ""
    dtype: str = ""

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return _tensor_type(const=self.const, many=self.many)


@dataclass(frozen=True)
class Output:
    """A tensor that the operator writes.

    ``shape`` and ``dtype`` name what a call that does not mention it gets: those of an input, or
    what a rule found under that name; empty if every call must give the output. ``const``: the C
    prototype nevertheless says const. ``many``: a list of tensors. ``format``: the tensor whose
    format it has then. ``as_is``: results are rounded to its own dtype alone, not to the kernel's.

    ``in_place``: it is read too. Calls give it like an input, and the formula gets it like one.
    ``optional``: where it is null it is not computed. ``asked``: the call asks for it, else it may
    be null; then it is no result, and if its storage is sent, that comes back as it was.
    """

    name: str
    description: str
    shape: str = ""
    dtype: str = ""
    const: bool = False
    many: bool = False
    in_place: bool = False
    c_name: str = ""
    format: str = ""
    as_is: bool = False
    optional: bool = False
    asked: Callable[[Draft], bool] | None = None

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        return _tensor_type(const=self.const, many=self.many)

    @property
    def nullable(self) -> bool:
        """Whether a valid call may pass a null pointer for it."""
        return self.optional or self.asked is not None


@dataclass(frozen=True)
class Attribute:
    """A number or a switch. Its default is the one in the formula's signature.

    ``const``: whether the C prototype says const, if it differs from the kind. ``words``: what
    callers may write for the integers from 0 on. ``default`` is that of an operator without
    formula. ``dtype``, of an aclScalar: a tensor, or a dtype that a rule found, to which the
    operator converts it; FLOAT if empty.
    """

    name: str
    kind: Kind
    description: str
    c_name: str = ""
    const: bool | None = None
    default: Value | None = None
    dtype: str = ""
    words: tuple[str, ...] = ()

    @property
    def c_type(self) -> str:
        """The type in the C prototype."""
        if self.const is None:
            return self.kind.value
        return "const " * self.const + self.kind.value.removeprefix("const ")


Parameter: TypeAlias = Input | Output | Attribute


def choice(name: str, *words: str, other: str) -> Attribute:
    """An int64_t with words for its values from 0 on, and the meaning of other values."""
    meanings = ", ".join(f"{value} {word}" for value, word in enumerate(words))
    return Attribute(name, Kind.INT64, f"{meanings}; {other}", words=words)


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


def c_name(parameter: Parameter) -> str:
    """Its name in C: the one declared, else grad_output becomes gradOutput."""
    return parameter.c_name or _spelled(parameter.name)


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _tensor_type(*, const: bool, many: bool) -> str:
    return "const " * const + ("aclTensorList*" if many else "aclTensor*")
