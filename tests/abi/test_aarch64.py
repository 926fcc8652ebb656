"""On aarch64 ctypes hands every parameter over where C++ looks for it.

A cross compiler says where it looks; the standard, and with it libffi, where ctypes puts it. The
C declarations are those of the simulator, which other tests compare with CANN's headers, and of the
operators' prototypes.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
from ctypes import c_bool, c_double, c_float, c_int8, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from tests.simulator.prototypes import Prototype, read_prototypes

from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, parameter_of
from npucall.operators import CATALOGUE
from npucall_server.devices.cann.functions import AscendCL, NnOpBase

from . import simulated
from .aarch64 import Place, Places, Signature, differences, places
from .assembly import COMPILER, taken
from .ours import bound, phases, signatures, type_of

pytestmark = pytest.mark.more

PROTOTYPES = {prototype.name: prototype for prototype in read_prototypes()}
NUMBERS = (c_bool, c_int8, c_int32, c_int64, c_uint64, c_float, c_double, c_void_p)
RESULTS = (None, c_void_p, c_float, c_double, c_int32, c_int64, c_bool)


def operator_of(prototype: Prototype) -> Operator[Any, Any]:
    """The operator that the server makes of a header with this prototype."""
    parameters = (
        parameter_of(p.name, p.c_type, Input if p.base_type.startswith("aclTensor") else None)
        for p in prototype.parameters
    )
    return prototype_only(prototype.name, tuple(parameters), "")


OPERATORS = {name: operator_of(prototype) for name, prototype in PROTOTYPES.items()}


def bound_operators(operators: list[Operator[Any, Any]]) -> dict[str, Signature]:
    return {name: own for operator in operators for name, own in phases(operator).items()}


def functions() -> dict[str, Signature]:
    declared = AscendCL.declared() | NnOpBase.declared()
    return {name: bound(function) for name, function in declared.items()}


def made_up() -> dict[str, Signature]:
    """Functions with every kind of parameter in registers and on the stack, in any order."""
    chance = random.Random(1)
    return {
        f"made_up_{number}": Signature(
            chance.choice(RESULTS), tuple(chance.choices(NUMBERS, k=chance.randint(0, 45)))
        )
        for number in range(50)
    }


@pytest.fixture(scope="module")
def compiled() -> dict[str, Places]:
    """Where the functions of CANN, the operators' phases and made up ones take their parameters."""
    for compiler, package in (("g++", "g++"), (COMPILER, "g++-aarch64-linux-gnu")):
        if shutil.which(compiler) is None:
            _give_up(f"expected {compiler} (Debian: {package}) on the path, found none")
    declarations = simulated.functions()
    types = {name: f"decltype(simulator::{name})" for name in functions()}
    types |= {name: f"decltype(::{name})" for name in bound_operators(list(OPERATORS.values()))}
    types |= {name: cpp_type(signature) for name, signature in made_up().items()}
    before = ['#include "prototypes_more.h"', simulated.namespace(declarations), "struct Opaque;"]
    return taken(types, "\n".join(before))


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def on_stack(place: Place) -> bool:
    return place.where.startswith("sp")


def cpp_type(signature: Signature) -> str:
    return f"{type_of(signature.result)}({', '.join(map(type_of, signature.parameters))})"


def test_functions_of_cann_find_what_ctypes_hands_over(compiled: dict[str, Places]) -> None:
    assert functions().keys() == signatures().keys() - {"aclnnXxx"}
    assert differences(functions(), compiled) == {}


def test_phases_of_declared_operators_find_what_ctypes_hands_over(
    compiled: dict[str, Places],
) -> None:
    assert differences(bound_operators(list(CATALOGUE)), compiled) == {}


def test_phases_of_operators_from_headers_find_what_ctypes_hands_over(
    compiled: dict[str, Places],
) -> None:
    kinds = {p.kind for o in OPERATORS.values() for p in o.parameters if isinstance(p, Attribute)}
    assert kinds == set(Kind)
    own = bound_operators(list(OPERATORS.values()))
    sizes = {place.size for name in own for place in compiled[name].parameters if on_stack(place)}
    assert sizes == {1, 4, 8}
    assert differences(own, compiled) == {}


def test_the_compiler_keeps_to_the_standard(compiled: dict[str, Places]) -> None:
    expected = {place for signature in made_up().values() for place in places(signature).parameters}
    assert {place.size for place in expected if on_stack(place)} == {1, 4, 8}
    assert {"x7", "v7"} <= {place.where for place in expected}
    assert differences(made_up(), compiled) == {}


# --- Mistakes -------------------------------------------------------------------------------------

OTHER = {
    Kind.FLOAT: Kind.DOUBLE,
    Kind.DOUBLE: Kind.FLOAT,
    Kind.INT64: Kind.INT,
    Kind.UINT64: Kind.INT32,
    Kind.INT: Kind.INT64,
    Kind.INT32: Kind.INT64,
    Kind.INT8: Kind.INT32,
    Kind.BOOL: Kind.INT,
    Kind.DTYPE: Kind.INT64,
    Kind.STRING: Kind.INT,
    Kind.SCALAR: Kind.DOUBLE,
    Kind.SCALAR_LIST: Kind.INT32,
    Kind.INT_ARRAY: Kind.INT,
    Kind.FLOAT_ARRAY: Kind.FLOAT,
    Kind.BOOL_ARRAY: Kind.BOOL,
}


def with_another_type(operator: Operator[Any, Any], number: int) -> Operator[Any, Any]:
    """One attribute has another width, or goes to another file of registers."""
    parameters = list(operator.parameters)
    attribute = parameters[number]
    assert isinstance(attribute, Attribute)
    parameters[number] = replace(attribute, kind=OTHER[attribute.kind])
    return replace(operator, parameters=tuple(parameters))


def test_an_attribute_of_another_type_is_found_wherever_it_stands(
    compiled: dict[str, Places],
) -> None:
    found = {
        (operator.name, number): differences(phases(with_another_type(operator, number)), compiled)
        for operator in OPERATORS.values()
        for number, parameter in enumerate(operator.parameters)
        if isinstance(parameter, Attribute)
    }
    assert len(found) > 100
    missed = [key for key, wrong in found.items() if list(wrong) != [f"{key[0]}GetWorkspaceSize"]]
    assert missed == []


@pytest.mark.parametrize("changed", ["left out", "put in"])
def test_a_parameter_too_few_or_too_many_is_found(
    compiled: dict[str, Places], changed: str
) -> None:
    for operator in OPERATORS.values():
        own = operator.parameters
        wrong = own[1:] if changed == "left out" else (*own, own[0])
        found = differences(phases(replace(operator, parameters=wrong)), compiled)
        assert list(found) == [f"{operator.name}GetWorkspaceSize"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("aclrtMalloc", Signature(c_int32, (c_void_p, c_int32, c_int32))),
        ("aclrtSetDevice", Signature(c_int32, (c_int64,))),
        ("aclrtSetDevice", Signature(c_int64, (c_int32,))),
        ("aclrtSetDevice", Signature(c_int32, ())),
        ("aclrtSetDevice", Signature(c_int32, (c_float,))),
        ("aclCreateScalar", Signature(c_int32, (c_void_p, c_int32))),
        ("aclCreateTensor", Signature(c_void_p, (c_void_p, c_uint64, c_int32) + (c_void_p,) * 6)),
        ("aclGetRecentErrMsg", Signature(None, ())),
    ],
)
def test_a_wrong_declaration_of_a_function_is_found(
    compiled: dict[str, Places], name: str, wrong: Signature
) -> None:
    assert list(differences({name: wrong}, compiled)) == [name]


# --- The standard ---------------------------------------------------------------------------------


def test_numbers_and_pointers_have_registers_of_their_own_and_the_rest_eight_bytes_each() -> None:
    own = Signature(None, (*[c_int64] * 8, c_bool, c_double, c_int32, *[c_float] * 8, c_void_p))
    found = [f"{place.where}:{place.size}" for place in places(own).parameters]
    assert found[:8] == [f"x{number}:8" for number in range(8)]
    assert found[8:11] == ["sp+0:1", "v0:8", "sp+8:4"]
    assert found[11:] == [*(f"v{n}:4" for n in range(1, 8)), "sp+16:4", "sp+24:8"]


def test_a_structure_by_value_is_refused() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", c_int32), ("b", c_int32))

    with pytest.raises(TypeError, match="expected a number or a pointer, found Pair"):
        places(Signature(None, (Pair,)))


def test_a_place_is_a_register_or_on_the_stack_with_its_bytes() -> None:
    assert places(Signature(c_float, (c_int8,))) == Places(Place("v0", 4), (Place("x0", 1),))
