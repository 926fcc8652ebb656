"""What this project tells ctypes of C functions, in C++."""

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from npucall.declare.declaration import Operator
from npucall_server.devices.cann.functions import (
    AscendCL,
    CannPackageVersion,
    NnOpBase,
    UtilizationInfo,
)
from npucall_server.devices.cann.library import Library, ValueFunction
from npucall_server.devices.cann.operators import _PHASE_TWO, OpApi

from .aarch64 import Signature

STRUCTURES: dict[Any, str] = {
    CannPackageVersion: "aclCANNPackageVersion",
    UtilizationInfo: "aclrtUtilizationInfo",
}
"""The ctypes structures, and what C calls them."""

PHASE_TWO = "aclnnXxx"
"""The second phase of every operator: all are declared alike."""

_TYPES: dict[Any, str] = {
    None: "void",
    ctypes.c_bool: "bool",
    ctypes.c_char: "char",
    ctypes.c_char_p: "char *",
    ctypes.c_double: "double",
    ctypes.c_float: "float",
    ctypes.c_int8: "int8_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint8: "uint8_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_void_p: "Opaque *",
    **STRUCTURES,
}


def signatures() -> dict[str, str]:
    """Every function with a fixed declaration, and its C++ type."""
    declared = AscendCL.declared() | NnOpBase.declared()
    functions = {name: signature_of(function) for name, function in declared.items()}
    return functions | {PHASE_TWO: _signature(ctypes.c_int32, _PHASE_TWO)}


def signature_of(function: ValueFunction) -> str:
    """The C++ type of a function."""
    return _signature(*bound(function))


def bound(function: ValueFunction) -> Signature:
    """What ctypes is told of a function when it is bound."""
    raw = SimpleNamespace()
    function.bind(raw, AssertionError)
    return Signature(raw.restype, tuple(raw.argtypes))


def phases(operator: Operator[Any, Any]) -> dict[str, Signature]:
    """What ctypes is told of the two phases of an operator when they are bound."""
    handle: defaultdict[str, SimpleNamespace] = defaultdict(SimpleNamespace)
    library = Library("", cast("ctypes.CDLL", handle))
    binding = OpApi(cast("Any", None), failure=AssertionError, forget=lambda: None)
    binding._bind(operator, library, custom=False)
    return {name: Signature(raw.restype, tuple(raw.argtypes)) for name, raw in handle.items()}


def type_of(kind: Any) -> str:
    """A ctypes type in C++."""
    if kind in _TYPES:
        return _TYPES[kind]
    if issubclass(kind, ctypes.Array):
        return f"{type_of(kind._type_)}[{kind._length_}]"
    return f"{type_of(kind._type_)} *"


def _signature(result: Any, parameters: Sequence[Any]) -> str:
    return f"{type_of(result)}({', '.join(map(type_of, parameters))})"
