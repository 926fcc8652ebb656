"""The C functions whose calls are proved on aarch64: as ctypes declares them, and as C++ does.

C++ takes the declarations of the simulator, which other tests compare with CANN's headers, and the
prototypes of its operators.
"""

import random
from ctypes import c_bool, c_double, c_float, c_int8, c_int32, c_int64, c_uint64, c_void_p
from typing import Any

from tests.simulator.prototypes import FILES, Prototype, read_prototypes

from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Input, parameter_of
from npucall_server.devices.cann.functions import AscendCL, NnOpBase

from . import simulated
from .aarch64 import Signature
from .ours import bound, phases, type_of

_NUMBERS = (c_bool, c_int8, c_int32, c_int64, c_uint64, c_float, c_double, c_void_p)
_RESULTS = (None, c_void_p, c_float, c_double, c_int32, c_int64, c_bool)
_MOST = 45
"""Operators have up to 42 parameters, and two behind them in their first phase."""


def _operator(prototype: Prototype) -> Operator[Any, Any]:
    """The operator that the server makes of a header with this prototype."""
    parameters = (
        parameter_of(p.name, p.c_type, Input if p.base_type.startswith("aclTensor") else None)
        for p in prototype.parameters
    )
    return prototype_only(prototype.name, tuple(parameters), "")


OPERATORS = {prototype.name: _operator(prototype) for prototype in read_prototypes()}
"""Every operator of the simulator."""


def functions() -> dict[str, Signature]:
    """The functions of CANN that the server calls."""
    declared = AscendCL.declared() | NnOpBase.declared()
    return {name: bound(function) for name, function in declared.items()}


def operators() -> dict[str, Signature]:
    """Both phases of every operator."""
    return {name: own for each in OPERATORS.values() for name, own in phases(each).items()}


def made_up() -> dict[str, Signature]:
    """Functions with every kind of parameter in registers and on the stack, in any order."""
    chance = random.Random(1)
    return {
        f"made_up_{number}": Signature(
            chance.choice(_RESULTS), tuple(chance.choices(_NUMBERS, k=chance.randint(0, _MOST)))
        )
        for number in range(50)
    }


def all_of_them() -> dict[str, Signature]:
    """As ctypes declares them."""
    return functions() | operators() | made_up()


def cpp_types() -> dict[str, str]:
    """All of them as C++ declares them, in the same order."""
    types = {name: f"decltype(simulator::{name})" for name in functions()}
    types |= {name: f"decltype(::{name})" for name in operators()}
    return types | {name: _cpp_type(signature) for name, signature in made_up().items()}


def declarations() -> str:
    """The C++ that those types need."""
    included = [f'#include "{path.name}"' for path in FILES]
    own = simulated.namespace(simulated.functions())
    return "\n".join([*included, own, "struct Opaque;"])


def _cpp_type(signature: Signature) -> str:
    return f"{type_of(signature.result)}({', '.join(map(type_of, signature.parameters))})"
