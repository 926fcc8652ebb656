"""Attributes: what Python callers give, what the formula of an operator gets."""

import math
from enum import IntEnum, StrEnum
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

from npucall.declare import rules
from npucall.declare.attributes import attribute_value, check_range
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import operator
from npucall.declare.domain import elementwise
from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from npucall.errors import ArgumentMissingError, AttributeValueError
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode


class Reduction(IntEnum):
    MEAN = 1


class Approximate(StrEnum):
    TANH = "tanh"


def converted(kind: Kind, given: Any) -> Any:
    return attribute_value("a", Attribute("a", kind, "any"), given)


def types(value: Any) -> Any:
    """What equality does not tell."""
    if isinstance(value, Scalar):
        return Scalar, value.dtype, type(value.value)
    return (tuple, *map(types, value)) if type(value) is tuple else type(value)


SCALARS = [
    (True, BOOL, True),
    (7, INT64, 7),
    (-(2**63), INT64, -(2**63)),
    (0.1, DOUBLE, 0.1),
    (np.float64(0.1), DOUBLE, 0.1),
    (np.float32(0.1), FLOAT, 0.10000000149011612),
    (np.float16(0.1), FLOAT16, 0.0999755859375),
    (ml_dtypes.bfloat16(0.1), BF16, 0.10009765625),
    (np.int8(-3), INT8, -3),
    (np.uint8(200), UINT8, 200),
    (np.bool_(True), BOOL, True),
    (np.array(0.5, np.float32), FLOAT, 0.5),
    (np.complex64(1 + 2j), COMPLEX64, 1 + 2j),
    (Scalar(FLOAT16, 2.5), FLOAT16, 2.5),
    (Scalar(INT8, -128), INT8, -128),
]
ENDS = {
    Kind.INT64: (-(2**63), 2**63 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.INT8: (-128, 127),
    Kind.UINT64: (-(2**63), 2**64 - 1),
}
NUMBERS = [2, 2.0, np.float16(2), np.int64(2), ml_dtypes.bfloat16(2)]
DTYPES = [
    (np.float16, FLOAT16),
    ("float32", FLOAT),
    (np.dtype(np.int8), INT8),
    (ml_dtypes.bfloat16, BF16),
    (bool, BOOL),
    (COMPLEX64, COMPLEX64),
]
INTEGERS = [
    *((1, 2), [1, 2], np.array([1, 2], np.int8), range(1, 3)),
    [np.int64(1), Reduction(1) + 1],
]
TAKEN: list[tuple[Kind, Any, Any]] = [
    *((Kind.SCALAR, given, Scalar(dtype, value)) for given, dtype, value in SCALARS),
    *((Kind.INT64, one, 1) for one in (1, np.int8(1), np.array(1), Reduction.MEAN, np.uint64(1))),
    (Kind.INT64, True, 1),
    *((kind, end, end) for kind, ends in ENDS.items() for end in ends if kind is not Kind.UINT64),
    *((Kind.UINT64, one, one % 2**64) for one in (0, -1, -(2**63), 2**63, 2**64 - 1)),
    *((kind, given, 2.0) for kind in (Kind.FLOAT, Kind.DOUBLE) for given in NUMBERS),
    *((Kind.STRING, given, "tanh") for given in ("tanh", np.str_("tanh"), Approximate.TANH)),
    *((Kind.DTYPE, given, dtype) for given, dtype in DTYPES),
    *((Kind.INT_ARRAY, given, (1, 2)) for given in INTEGERS),
    *((Kind.FLOAT_ARRAY, given, (1.0, 0.5)) for given in ([1, 0.5], (1, 0.5), np.array([1, 0.5]))),
    (Kind.FLOAT_ARRAY, [np.float16(1), 0.5], (1.0, 0.5)),
    *((Kind.BOOL_ARRAY, given, (True, False)) for given in ([True, False], (True, np.False_))),
    (Kind.BOOL_ARRAY, np.array([True, False]), (True, False)),
    (
        Kind.SCALAR_LIST,
        [1, 0.5, True, np.float16(2), Scalar(INT8, -1)],
        (
            *(Scalar(INT64, 1), Scalar(DOUBLE, 0.5), Scalar(BOOL, True), Scalar(FLOAT16, 2.0)),
            Scalar(INT8, -1),
        ),
    ),
    *((kind, empty, ()) for kind in Kind if "Array" in kind.value for empty in ([], ())),
    (Kind.SCALAR_LIST, [], ()),
    *((kind, np.array([]), ()) for kind in (Kind.FLOAT_ARRAY, Kind.BOOL_ARRAY, Kind.SCALAR_LIST)),
]


@each(("kind", "given", "expected"), TAKEN)
def test_what_python_has_for_a_value_becomes_the_value_of_c(
    kind: Kind, given: Any, expected: Any
) -> None:
    found = converted(kind, given)
    assert (found, types(found)) == (expected, types(expected))


NO_INTEGERS = [np.True_, 1.0, "1", None, np.float32(1), [1]]
NO_NUMBERS = [True, np.True_, "2", b"2", 1j, None, [2.0], 10**400]
NO_SCALARS = [
    *(2**63, 1 + 2j, "1", None, np.ones(1), [1], np.array("1")),
    *(Scalar(INT8, 128), Scalar(UINT8, -1), Scalar(INT32, 1.5)),
]
EXPECTED = {
    Kind.INT64: ("an integer of 64 bits", NO_INTEGERS),
    Kind.INT32: ("an integer of 32 bits", NO_INTEGERS),
    Kind.INT: ("an integer of 32 bits", NO_INTEGERS),
    Kind.INT8: ("an integer of 8 bits", NO_INTEGERS),
    Kind.UINT64: (r"an integer from -2\^63 to 2\^64 - 1", NO_INTEGERS),
    Kind.FLOAT: ("a number", NO_NUMBERS),
    Kind.DOUBLE: ("a number", NO_NUMBERS),
    Kind.SCALAR: ("a number, found", NO_SCALARS),
    Kind.STRING: ("a text without a zero byte", ["ta\0nh", b"tanh", 1, None, ["tanh"]]),
    Kind.DTYPE: ("an element type", [None, 1, "FLOAT16", ">f4", "U4", np.void, [("x", "f4")]]),
    Kind.INT_ARRAY: (
        "a sequence of integers of 64 bits",
        [3, [1.0], [1, None], "12", [2**63], None, np.ones(2)],
    ),
    Kind.FLOAT_ARRAY: (
        "a sequence of numbers",
        [1.0, ["1"], [True], [1j], [1.0, None], "12", None],
    ),
    Kind.BOOL_ARRAY: (
        "a sequence of True and False",
        [True, [1], [True, 0.0], [None], "yes", None],
    ),
    Kind.SCALAR_LIST: (
        "a sequence of numbers",
        [1, [1j], ["1"], [None], [2**63], [Scalar(INT8, 128)], None],
    ),
}


@each(("kind", "given"), [(kind, given) for kind, row in EXPECTED.items() for given in row[1]])
def test_what_is_no_value_of_the_kind_is_refused(kind: Kind, given: Any) -> None:
    with pytest.raises(AttributeValueError, match=f"a: expected {EXPECTED[kind][0]}") as caught:
        converted(kind, given)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("a", None)


@each("kind", ENDS)
def test_an_integer_has_the_range_of_its_type(kind: Kind) -> None:
    least, most = ENDS[kind]
    check_range("a", kind, least)
    check_range("a", kind, most)
    for beyond in least - 1, most + 1:
        for ask in (converted, lambda kind, number: check_range("a", kind, number)):
            with pytest.raises(AttributeValueError, match=f"a: expected {EXPECTED[kind][0]}"):
                ask(kind, beyond)


@each("kind", [Kind.BOOL, Kind.DOUBLE, Kind.STRING, Kind.INT_ARRAY])
def test_a_kind_that_is_no_integer_has_no_range(kind: Kind) -> None:
    check_range("a", kind, 2**70)


KINDS = {
    "count": Kind.INT64,
    "flag": Kind.BOOL,
    "single": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "text": Kind.STRING,
    "scalar": Kind.SCALAR,
    "array": Kind.INT_ARRAY,
}
POINTERS = ("text", "scalar", "array")
PLAIN: dict[str, Any] = {
    "count": 3,
    "flag": True,
    "single": 0.1,
    "double": 0.1,
    "text": "mean",
    "scalar": Scalar(DOUBLE, 0.1),
    "array": (4, -1),
}
X = TensorSpec(FLOAT, (2,))


@operator(
    "aclnnSomeKinds",
    Input("x", "something to copy"),
    *(Attribute(name, kind, "one of each kind") for name, kind in KINDS.items()),
    Output("out", "the copy", shape="x", dtype="x"),
    products={A2: (FLOAT,)},
    checks=(rules.present("x", *POINTERS, "out"),),
    kernel_dtype=rules.dtype_of("x"),
    over=elementwise("x"),
    area="arithmetic",
    source="this test",
)
def some_kinds(
    whole: Any, x: Any, count: int, flag: bool, single: float, double: float, text: str,
    scalar: float, array: tuple[int, ...],
) -> Any:  # fmt: skip
    return x


CATALOGUE = Catalogue([some_kinds])


def prepared(without: str = "", **changes: Any) -> Prepared:
    """The call with every attribute, as a server prepares it from bytes."""
    given = {"x": X, **PLAIN, **changes}
    given.pop(without, None)
    return PreparedCalls(CATALOGUE, A2, "").of(encode(some_kinds.name, "", given, ("x",)))


def test_the_formula_gets_a_scalar_and_a_c_float_as_float32_and_a_double_as_it_is() -> None:
    found = prepared().attributes
    assert found == {**PLAIN, "scalar": 0.10000000149011612, "single": 0.10000000149011612}
    far = prepared(scalar=Scalar(DOUBLE, -1e300), single=1e300).attributes
    assert (far["scalar"], far["single"]) == (-math.inf, math.inf)


@each("dtype", [DOUBLE, FLOAT, BF16, UINT8, BOOL, INT64, INT8])
def test_a_scalar_of_any_real_dtype_is_a_float_to_the_formula(dtype: Any) -> None:
    found = prepared(scalar=Scalar(dtype, 1)).attributes["scalar"]
    assert (found, type(found)) == (1.0, float)


@each("name", POINTERS)
@each("mentioned", [True, False])
def test_an_absent_pointer_is_161001(name: str, mentioned: bool) -> None:
    with pytest.raises(ArgumentMissingError, match=f"{name}: .*a null {name}") as caught:
        prepared(**{name: None}) if mentioned else prepared(without=name)
    assert (caught.value.aclnn_status, caught.value.parameters) == (161001, (name,))


def test_an_absent_value_is_found_before_a_null_pointer() -> None:
    with pytest.raises(AttributeValueError) as caught:
        prepared(x=None, count=None)
    assert caught.value.reason == "ATTRIBUTE_INVALID"


def test_a_complex_scalar_is_no_null_pointer() -> None:
    scalar = Scalar(COMPLEX64, 1 + 1j)  # type: ignore[arg-type]
    arguments = {"x": X, **PLAIN, "scalar": scalar, "array": None}
    with pytest.raises(ArgumentMissingError) as caught:
        prepare(Call(some_kinds, arguments, ("x",)), A2, CATALOGUE)
    assert caught.value.parameter == "array"  # which is looked at behind scalar
