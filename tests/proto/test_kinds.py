"""Every kind of attribute on the wire, and as the C function is to get it."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.declare.attributes import attribute_value
from npucall.declare.parameters import Kind, Scalar
from npucall.dtypes import BF16, BY_WIRE, DOUBLE, DTYPES, FLOAT, INT8
from npucall.errors import AttributeValueError, DTypeError, MessageError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

from .prototypes import EVERY_KIND, KINDS, PAIR, decoded, only, prepared, raw

POINTERS = [name for name, kind in KINDS.items() if kind.nullable]
ARRAYS = ["scalars", "integers", "numbers", "booleans"]
VALUES: dict[str, Any] = {
    "int64": -(2**63),
    "int32": -(2**31),
    "int": 2**31 - 1,
    "int8": -128,
    "uint64": 2**63 - 1,
    "flag": True,
    "single": 0.1,
    "double": 0.1,
    "dtype": BF16,
    "text": "mean",
    "scalar": Scalar(INT8, -3),
    "scalars": (Scalar(FLOAT, 0.5), Scalar(INT8, 1)),
    "integers": (4, -1),
    "numbers": (0.5, math.inf),
    "booleans": (True, False),
}
MEMBERS: dict[str, Any] = {
    "tensor": tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT),
    "tensors": pb.TensorList(),
    "integer": 1,
    "boolean": True,
    "number": 1.0,
    "text": "1",
    "dtype": tensor_pb2.DATA_TYPE_FLOAT,
    "scalar": pb.Scalar(dtype=tensor_pb2.DATA_TYPE_INT8, value=b"\1"),
    "scalars": pb.ScalarList(),
    "integers": pb.IntArray(values=[1]),
    "numbers": pb.FloatArray(),
    "booleans": pb.BoolArray(),
}
# By the comments of Argument.value.
MEMBER_OF = {
    **dict.fromkeys(("int64", "int32", "int", "int8", "uint64"), "integer"),
    "flag": "boolean",
    "single": "number",
    "double": "number",
    **{name: name for name in ("dtype", "text", "scalar", *ARRAYS)},
}


def travelled(name: str, value: Any) -> Any:
    """What an argument is behind the wire."""
    return decoded(EVERY_KIND, **{name: value}).arguments[name]


def test_these_tests_know_every_kind_and_every_member() -> None:
    assert set(KINDS.values()) == set(Kind)
    assert VALUES.keys() == MEMBER_OF.keys() == KINDS.keys()
    oneof = pb.Argument.DESCRIPTOR.oneofs_by_name["value"]
    assert {field.name for field in oneof.fields} == {*MEMBERS, "absent"}


@each("name", KINDS)
def test_a_value_comes_back_from_the_wire_as_it_was(name: str) -> None:
    found = travelled(name, VALUES[name])
    assert (found, type(found)) == (VALUES[name], type(VALUES[name]))


@each("name", KINDS)
def test_the_c_function_gets_a_value_as_it_was(name: str) -> None:
    found = prepared(EVERY_KIND, **VALUES, out=PAIR).values[name]
    assert (found, type(found)) == (VALUES[name], type(VALUES[name]))


@each("name", KINDS)
def test_a_value_travels_in_the_member_that_the_contract_names(name: str) -> None:
    argument = pb.Argument(name=name, **{MEMBER_OF[name]: MEMBERS[MEMBER_OF[name]]})
    assert raw(EVERY_KIND, argument).arguments.keys() == {name}


@each(
    ("name", "member"),
    [(name, member) for name in KINDS for member in MEMBERS if member != MEMBER_OF[name]],
)
def test_a_value_in_another_member_is_refused(name: str, member: str) -> None:
    expected = f"{name}: expected its value as '{MEMBER_OF[name]}', found '{member}'"
    with pytest.raises(MessageError, match=expected) as caught:
        raw(EVERY_KIND, pb.Argument(name=name, **{member: MEMBERS[member]}))
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)


@each("name", KINDS)
def test_an_argument_without_value_is_refused(name: str) -> None:
    with pytest.raises(MessageError, match=f"{name}: expected its value as .* found 'none'"):
        raw(EVERY_KIND, pb.Argument(name=name))


@each("name", KINDS)
def test_an_attribute_has_no_storage(name: str) -> None:
    argument = pb.Argument(name=name, stored=True, **{MEMBER_OF[name]: MEMBERS[MEMBER_OF[name]]})
    with pytest.raises(MessageError, match=f"{name}: expected a tensor, since `stored` is set"):
        raw(EVERY_KIND, argument)


@each("name", POINTERS)
@each("mentioned", [True, False])
def test_a_pointer_that_is_absent_is_null_for_the_c_function(name: str, mentioned: bool) -> None:
    given = {**VALUES, name: None, "out": PAIR}
    if not mentioned:
        del given[name]
    values = prepared(EVERY_KIND, **given).values
    assert {key for key, value in values.items() if value is None} == {name}


@each("name", [name for name in KINDS if name not in POINTERS])
@each("mentioned", [True, False])
def test_a_value_that_is_no_pointer_cannot_be_absent(name: str, mentioned: bool) -> None:
    given = {**VALUES, name: None, "out": PAIR}
    if not mentioned:
        del given[name]
    with pytest.raises(AttributeValueError, match=f"{name}: expected a value") as caught:
        prepared(EVERY_KIND, **given)
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)


@each(
    ("name", "least", "most"),
    [
        ("int32", -(2**31), 2**31 - 1),
        ("int", -(2**31), 2**31 - 1),
        ("int8", -128, 127),
        ("uint64", 0, 2**63 - 1),
    ],
)
def test_a_number_beyond_its_c_type_is_refused(name: str, least: int, most: int) -> None:
    for number in {least - 1, most + 1} - {2**63}:
        with pytest.raises(AttributeValueError, match=f"{name}: expected .* found {number}") as it:
            raw(EVERY_KIND, pb.Argument(name=name, integer=number))
        assert (it.value.parameter, it.value.aclnn_status) == (name, None)
        assert it.value.details["operator"] == "aclnnEveryKind"
    for number in (least, most):
        assert travelled(name, number) == number


@each("dtype", DTYPES)
def test_every_element_type_travels_as_an_attribute(dtype: Any) -> None:
    assert travelled("dtype", dtype) is dtype


@each("value", [value for value in range(-1, 64) if value not in BY_WIRE])
def test_an_element_type_that_the_contract_does_not_list_is_refused(value: int) -> None:
    with pytest.raises(DTypeError, match=f"dtype: expected a dtype .* found value {value}"):
        raw(EVERY_KIND, pb.Argument(name="dtype", dtype=value))  # type: ignore[arg-type]


@each("name", ARRAYS)
def test_an_array_may_be_empty_and_is_not_null_then(name: str) -> None:
    assert travelled(name, ()) == ()
    assert prepared(EVERY_KIND, **{**VALUES, name: ()}, out=PAIR).values[name] == ()


@each("name", ARRAYS)
def test_an_empty_array_may_come_in_its_own_member(name: str) -> None:
    members = {"integers": pb.IntArray(), "numbers": pb.FloatArray()}
    member = {**MEMBERS, **members}[name]
    assert only(raw(EVERY_KIND, pb.Argument(name=name, **{name: member})).arguments) == ()


@each("name", ["scalars", "numbers", "booleans"])
def test_integers_stand_for_another_array_only_if_there_are_none(name: str) -> None:
    empty = pb.Argument(name=name, integers=pb.IntArray())
    assert only(raw(EVERY_KIND, empty).arguments) == ()
    with pytest.raises(MessageError, match=f"{name}: expected its value as '{name}'"):
        raw(EVERY_KIND, pb.Argument(name=name, integers=pb.IntArray(values=[0])))


@given(st.lists(st.floats()).map(tuple))
def test_numbers_of_an_array_travel_by_their_bits(value: tuple[float, ...]) -> None:
    found = travelled("numbers", value)
    packed = [struct.pack("<d", number) for number in value if not math.isnan(number)]
    assert [struct.pack("<d", number) for number in found if not math.isnan(number)] == packed
    assert [math.isnan(number) for number in found] == [math.isnan(number) for number in value]


@given(st.lists(st.booleans()).map(tuple))
def test_truth_values_of_an_array_come_back_as_they_were(value: tuple[bool, ...]) -> None:
    found = travelled("booleans", value)
    assert found == value
    assert all(type(member) is bool for member in found)


@given(st.lists(st.sampled_from(DTYPES)))
def test_numbers_of_a_list_keep_a_dtype_each(dtypes: list[Any]) -> None:
    value = tuple(Scalar(dtype, 1) for dtype in dtypes)
    assert travelled("scalars", value) == value


def test_a_number_of_too_many_bytes_in_a_list_is_refused() -> None:
    good = pb.Scalar(dtype=tensor_pb2.DATA_TYPE_FLOAT, value=bytes(4))
    bad = pb.Scalar(dtype=tensor_pb2.DATA_TYPE_FLOAT, value=bytes(5))
    argument = pb.Argument(name="scalars", scalars=pb.ScalarList(values=[good, bad]))
    with pytest.raises(AttributeValueError, match="scalars: expected 4 bytes for a FLOAT, found 5"):
        raw(EVERY_KIND, argument)


def test_a_number_of_no_dtype_in_a_list_is_refused() -> None:
    argument = pb.Argument(name="scalars", scalars=pb.ScalarList(values=[pb.Scalar()]))
    with pytest.raises(DTypeError, match=r"scalars: expected a dtype .* found value 0"):
        raw(EVERY_KIND, argument)


def test_the_c_function_gets_the_number_of_an_aclscalar_with_its_dtype_and_its_bits() -> None:
    values = prepared(EVERY_KIND, **{**VALUES, "scalar": Scalar(DOUBLE, 0.1)}, out=PAIR).values
    assert values["scalar"] == Scalar(DOUBLE, 0.1)


def test_a_c_float_and_a_c_double_get_the_number_that_was_sent() -> None:
    values = prepared(EVERY_KIND, **VALUES, out=PAIR).values
    assert (values["single"], values["double"]) == (0.1, 0.1)  # C rounds its float itself


PYTHON: dict[str, Any] = {
    "dtype": np.float16,
    "scalar": np.float32(0.5),
    "scalars": [1, 0.5, np.int8(3)],
    "integers": range(3),
    "numbers": np.array([1, 2], np.float32),
    "booleans": [np.True_, False],
    "int8": np.int64(-7),
}


@each("name", PYTHON)
def test_what_a_python_caller_gives_travels_once_it_is_converted(name: str) -> None:
    attribute: Any = EVERY_KIND.by_name[name]
    value = attribute_value(name, attribute, PYTHON[name])
    assert travelled(name, value) == value
