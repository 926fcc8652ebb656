"""On aarch64 ctypes hands every parameter over where C++ looks for it.

A cross compiler says where it looks; the standard, and with it libffi, where ctypes puts it. The
C declarations are those of the simulator, which other tests compare with CANN's headers, and of the
operators' prototypes.
"""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_double, c_float, c_int8, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

import pytest

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute, Kind
from npucall.operators import CATALOGUE

from .aarch64 import Place, Places, Signature, differences, places
from .assembly import COMPILER, taken
from .need import need
from .ours import phases, signatures
from .subjects import OPERATORS, cpp_types, declarations, functions, made_up, operators

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def compiled() -> dict[str, Places]:
    """Where the functions of CANN, the operators' phases and made up ones take their parameters."""
    need({"g++": "g++", COMPILER: "g++-aarch64-linux-gnu"})
    return taken(cpp_types(), declarations())


def on_stack(place: Place) -> bool:
    return place.where.startswith("sp")


def test_functions_of_cann_find_what_ctypes_hands_over(compiled: dict[str, Places]) -> None:
    assert functions().keys() == signatures().keys() - {"aclnnXxx"}
    assert differences(functions(), compiled) == {}


def test_phases_of_declared_operators_find_what_ctypes_hands_over(
    compiled: dict[str, Places],
) -> None:
    declared = {name: own for each in CATALOGUE for name, own in phases(each).items()}
    assert differences(declared, compiled) == {}


def test_phases_of_operators_from_headers_find_what_ctypes_hands_over(
    compiled: dict[str, Places],
) -> None:
    kinds = {p.kind for o in OPERATORS.values() for p in o.parameters if isinstance(p, Attribute)}
    assert kinds == set(Kind)
    own = operators()
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
