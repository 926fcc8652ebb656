"""Numbers, texts and arrays of integers on the wire: npucall.wire.calls and the own checks."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import operator
from npucall.declare.over import elementwise
from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, DTYPES, FLOAT, FLOAT16, INT8, INT64, UINT8
from npucall.errors import ArgumentMissingError, AttributeValueError, DTypeError, MessageError
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls, decode, encode

KINDS = {
    "count": Kind.INT64,
    "flag": Kind.BOOL,
    "single": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "text": Kind.STRING,
    "scalar": Kind.SCALAR,
    "array": Kind.INT_ARRAY,
}
POINTERS = {"text": "text", "scalar": "scalar", "array": "array"}
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
    "aclnnEveryKind",
    Input("x", "something to copy"),
    *(Attribute(name, kind, "one of each kind") for name, kind in KINDS.items()),
    Output("out", "the copy", shape="x", dtype="x"),
    products={A2: (FLOAT,)},
    checks=(rules.present("x", *POINTERS, "out"),),
    kernel_dtype=rules.dtype_of("x"),
    over=elementwise("x"),
    source="this test",
)
def every_kind(
    whole: Any, x: Any, count: int, flag: bool, single: float, double: float, text: str,
    scalar: float, array: tuple[int, ...],
) -> Any:  # fmt: skip
    return x


CATALOGUE = Catalogue([every_kind])
NAME = every_kind.name


def travelled(name: str, value: Any) -> Any:
    """What an argument is behind the wire."""
    return decode(encode(NAME, "", {name: value}, ()), CATALOGUE).arguments[name]


def prepared(**changes: Any) -> Prepared:
    """The call with every attribute, as a server prepares it from bytes."""
    call = encode(NAME, "", {"x": X, **PLAIN, **changes}, ("x",))
    return PreparedCalls(CATALOGUE, A2, "").of(call)


def same(first: Any, second: Any) -> bool:
    """Whether two numbers are one: NaN equals NaN, and -0.0 is not 0.0."""
    return bool(np.array(first).tobytes() == np.array(second).tobytes())


@each("name", ["single", "double"])
@given(value=st.floats())
def test_a_number_comes_back_as_it_was(name: str, value: float) -> None:
    found = travelled(name, value)
    assert same(found, value) or (math.isnan(found) and math.isnan(value))


@given(st.text())
def test_a_text_without_a_zero_byte_comes_back_as_it_was(value: str) -> None:
    if "\0" not in value:
        assert travelled("text", value) == value


@given(st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple))
def test_integers_come_back_as_they_were(value: tuple[int, ...]) -> None:
    found = travelled("array", value)
    assert found == value
    assert isinstance(found, tuple)


@each("dtype", [FLOAT16, FLOAT, DOUBLE])
@given(value=st.floats(width=16))
def test_a_float_scalar_comes_back_with_its_dtype(dtype: Any, value: float) -> None:
    found = travelled("scalar", Scalar(dtype, value))
    assert found.dtype is dtype
    assert same(found.value, value) or (math.isnan(found.value) and math.isnan(value))


@each("dtype", [d for d in DTYPES if d.kind == "int"])
def test_the_ends_of_an_integer_dtype_come_back(dtype: Any) -> None:
    limits = np.iinfo(dtype.numpy)
    for value in (int(limits.min), 0, int(limits.max)):
        found = travelled("scalar", Scalar(dtype, value))
        assert (found.dtype, found.value, type(found.value)) == (dtype, value, int)


@each("dtype", DTYPES)
def test_a_scalar_of_every_dtype_travels(dtype: Any) -> None:
    assert travelled("scalar", Scalar(dtype, 1)) == Scalar(dtype, 1)


@each("value", [math.nan, -0.0, math.inf, -math.inf, 5e-324])
def test_numbers_that_equality_does_not_tell_travel_by_their_bits(value: float) -> None:
    for name, number in (("double", value), ("scalar", Scalar(DOUBLE, value))):
        found = travelled(name, number)
        found = found.value if isinstance(found, Scalar) else found
        assert struct.pack("<d", found) == struct.pack("<d", value)


def test_minus_0_and_0_are_two_calls() -> None:
    for name, make in (("double", float), ("scalar", lambda value: Scalar(DOUBLE, value))):
        calls = [encode(NAME, "", {name: make(value)}, ()) for value in (0.0, -0.0)]
        assert calls[0] != calls[1]


@each(("byte", "value"), [(b"\x00", False), (b"\x01", True), (b"\x02", True), (b"\xff", True)])
def test_every_byte_but_0_is_a_true_scalar(byte: bytes, value: bool) -> None:
    found = raw(scalar=pb.Scalar(dtype=BOOL.wire, value=byte)).arguments["scalar"]  # type: ignore[arg-type]
    assert found == Scalar(BOOL, value)
    assert found.value is value  # type: ignore[union-attr]


@each("dtype", DTYPES)
@each("difference", [-1, 1])
def test_a_scalar_of_too_few_or_too_many_bytes_is_refused(dtype: Any, difference: int) -> None:
    found = dtype.itemsize + difference
    message = f"scalar: expected {dtype.itemsize} bytes for a {dtype}, found {found}"
    with pytest.raises(AttributeValueError, match=message) as caught:
        raw(scalar=pb.Scalar(dtype=dtype.wire, value=bytes(found)))
    assert (caught.value.parameter, caught.value.aclnn_status) == ("scalar", None)


@each("value", [0, 4711])
def test_a_scalar_of_no_listed_dtype_is_refused(value: int) -> None:
    with pytest.raises(DTypeError, match=f"scalar: expected a dtype .* found value {value}"):
        raw(scalar=pb.Scalar(dtype=value, value=bytes(4)))  # type: ignore[arg-type]


def test_a_text_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="text: expected a text without a zero byte"):
        raw(text="me\0an")


@each(
    ("name", "member", "value"),
    [
        ("double", "integer", 1),
        ("count", "number", 1.0),
        ("text", "integers", pb.IntArray()),
        ("scalar", "number", 1.0),
        ("array", "scalar", pb.Scalar(dtype=1, value=bytes(4))),
        ("x", "scalar", pb.Scalar(dtype=1, value=bytes(4))),
    ],
)
def test_a_value_of_another_kind_than_the_parameters_is_refused(
    name: str, member: str, value: Any
) -> None:
    with pytest.raises(MessageError, match=f"{name}: expected its value as .* found '{member}'"):
        raw(name, **{member: value})


def raw(parameter: str = "", **value: Any) -> Call:
    """A call with one argument, the message typed by hand."""
    (member,) = value
    argument = pb.Argument(name=parameter or member, **value)
    call = pb.Call(operator=NAME, arguments=[argument])
    return decode(call.SerializeToString(), CATALOGUE)


def test_the_formula_gets_a_scalar_and_a_c_float_as_float32_and_a_double_as_it_is() -> None:
    found = prepared().attributes
    assert found == {**PLAIN, "scalar": 0.10000000149011612, "single": 0.10000000149011612}


@each("dtype", [DOUBLE, FLOAT, BF16, UINT8, BOOL, INT64, INT8])
def test_a_scalar_of_any_real_dtype_is_a_float_to_the_formula(dtype: Any) -> None:
    found = prepared(scalar=Scalar(dtype, 1)).attributes["scalar"]
    assert (found, type(found)) == (1.0, float)


def test_a_number_beyond_float32_is_infinite_to_the_formula() -> None:
    found = prepared(scalar=Scalar(DOUBLE, -1e300), single=1e300).attributes
    assert (found["scalar"], found["single"]) == (-math.inf, math.inf)


@each("name", POINTERS)
@each("mentioned", [True, False])
def test_an_absent_pointer_is_161001(name: str, mentioned: bool) -> None:
    arguments = {"x": X, **PLAIN, name: None}
    if not mentioned:
        del arguments[name]
    call = encode(NAME, "", arguments, ("x",))
    with pytest.raises(ArgumentMissingError, match=f"{name}: .*a null {POINTERS[name]}") as caught:
        PreparedCalls(CATALOGUE, A2, "").of(call)
    assert (caught.value.aclnn_status, caught.value.parameters) == (161001, (name,))


@each("name", [name for name in KINDS if name not in POINTERS])
@each("mentioned", [True, False])
def test_an_absent_value_is_no_pointer_that_c_could_be_given(name: str, mentioned: bool) -> None:
    arguments = {"x": X, **PLAIN, name: None}
    if not mentioned:
        del arguments[name]
    call = encode(NAME, "", arguments, ("x",))
    with pytest.raises(AttributeValueError, match=f"{name}: expected a value") as caught:
        PreparedCalls(CATALOGUE, A2, "").of(call)
    assert (caught.value.aclnn_status, caught.value.parameters) == (None, (name,))
    assert caught.value.reason == "ATTRIBUTE_INVALID"


def test_an_absent_value_is_found_before_a_null_pointer() -> None:
    arguments = {"x": None, **PLAIN, "count": None}
    with pytest.raises(AttributeValueError):
        prepare(Call(every_kind, arguments), A2, CATALOGUE)


def test_a_complex_scalar_is_no_null_pointer() -> None:
    scalar = Scalar(COMPLEX64, 1 + 1j)  # type: ignore[arg-type]
    arguments = {"x": X, **PLAIN, "scalar": scalar, "array": None}
    with pytest.raises(ArgumentMissingError) as caught:
        prepare(Call(every_kind, arguments, ("x",)), A2, CATALOGUE)
    assert caught.value.parameter == "array"  # which is looked at behind scalar
