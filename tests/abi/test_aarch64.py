"""On aarch64 ctypes hands every parameter over where C++ looks for it.

A cross compiler says where it looks; the standard, and with it libffi, where ctypes puts it. The
C declarations are those of the simulator, which other tests compare with CANN's headers, and of the
operators' prototypes.
"""

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
from .conftest import need
from .ours import phases, signatures
from .subjects import OPERATORS, all_of_them, cpp_types, declarations, functions, made_up, operators

COMPILED = pytest.mark.more


@pytest.fixture(scope="module")
def compiled() -> dict[str, Places]:
    """Where the functions of CANN, the operators' phases and made up ones take their parameters."""
    need({"g++": "g++", COMPILER: "g++-aarch64-linux-gnu"})
    return taken(cpp_types(), declarations())


def on_stack(*found: Places) -> set[int]:
    """The sizes of parameters on the stack."""
    every = [place for each in found for place in each.parameters]
    return {place.size for place in every if place.where.startswith("sp")}


@COMPILED
def test_every_function_finds_what_ctypes_hands_over(compiled: dict[str, Places]) -> None:
    """Those of CANN, phases of declared operators and of headers, and made up ones."""
    assert functions().keys() == signatures().keys() - {"aclnnXxx"}
    declared = {name: own for each in CATALOGUE for name, own in phases(each).items()}
    assert differences({**all_of_them(), **declared}, compiled) == {}
    kinds = {p.kind for o in OPERATORS.values() for p in o.parameters if isinstance(p, Attribute)}
    assert kinds == set(Kind)
    assert on_stack(*(compiled[name] for name in operators())) == {1, 4, 8}
    standard = [places(signature) for signature in made_up().values()]
    assert on_stack(*standard) == {1, 4, 8}
    assert {"x7", "v7"} <= {place.where for each in standard for place in each.parameters}


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
"""For each kind one of another width, or that goes to another file of registers."""
WRONG = [
    ("aclrtMalloc", Signature(c_int32, (c_void_p, c_int32, c_int32))),
    ("aclrtSetDevice", Signature(c_int32, (c_int64,))),
    ("aclrtSetDevice", Signature(c_int64, (c_int32,))),
    ("aclrtSetDevice", Signature(c_int32, ())),
    ("aclrtSetDevice", Signature(c_int32, (c_float,))),
    ("aclCreateScalar", Signature(c_int32, (c_void_p, c_int32))),
    ("aclCreateTensor", Signature(c_void_p, (c_void_p, c_uint64, c_int32) + (c_void_p,) * 6)),
    ("aclGetRecentErrMsg", Signature(None, ())),
]


def changed(operator: Operator[Any, Any]) -> list[Operator[Any, Any]]:
    """It with a parameter too few, one too many, and each attribute of another type."""
    own = operator.parameters
    found = [own[1:], (*own, own[0])]
    for number, parameter in enumerate(own):
        if isinstance(parameter, Attribute):
            other = replace(parameter, kind=OTHER[parameter.kind])
            found.append((*own[:number], other, *own[number + 1 :]))
    return [replace(operator, parameters=parameters) for parameters in found]


@COMPILED
def test_a_wrong_declaration_is_found_wherever_it_stands(compiled: dict[str, Places]) -> None:
    missed: list[object] = []
    for name, wrong in WRONG:
        missed += [] if list(differences({name: wrong}, compiled)) == [name] else [(name, wrong)]
    tried = [each for operator in OPERATORS.values() for each in changed(operator)]
    assert len(tried) > 100 + 2 * len(OPERATORS)
    for operator in tried:
        found = list(differences(phases(operator), compiled))
        missed += [] if found == [f"{operator.name}GetWorkspaceSize"] else [operator.prototype]
    assert missed == []


def test_numbers_and_pointers_have_registers_of_their_own_and_the_rest_eight_bytes_each() -> None:
    own = Signature(c_float, (*[c_int64] * 8, c_bool, c_double, c_int32, *[c_float] * 8, c_void_p))
    found = [f"{place.where}:{place.size}" for place in places(own).parameters]
    assert found[:8] == [f"x{number}:8" for number in range(8)]
    assert found[8:11] == ["sp+0:1", "v0:8", "sp+8:4"]
    assert found[11:] == [*(f"v{n}:4" for n in range(1, 8)), "sp+16:4", "sp+24:8"]
    assert places(Signature(c_float, (c_int8,))) == Places(Place("v0", 4), (Place("x0", 1),))


def test_a_structure_by_value_is_refused() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", c_int32), ("b", c_int32))

    with pytest.raises(TypeError, match="expected a number or a pointer, found Pair"):
        places(Signature(None, (Pair,)))
