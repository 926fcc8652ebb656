"""Every kind of attribute on the wire, and as the C function is to get it."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proto.prototypes import EVERY_KIND, KINDS, PAIR, decoded, prepared, raw
from tests.rows import each

from npucall.declare.parameters import Kind, Scalar
from npucall.dtypes import BF16, BOOL, BY_WIRE, DOUBLE, DTYPES, FLOAT, FLOAT16, INT8
from npucall.errors import AttributeValueError, DTypeError, MessageError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

POINTERS = [name for name, kind in KINDS.items() if kind.nullable]
VALUES: dict[str, Any] = {
    "int64": -(2**63),
    "int32": -(2**31),
    "int": 2**31 - 1,
    "int8": -128,
    "uint64": 2**64 - 1,
    "flag": True,
    "single": 0.1,  # C rounds its float itself
    "double": -0.0,
    "dtype": BF16,
    "text": "mean",
    "scalar": Scalar(INT8, -3),
    "scalars": (Scalar(FLOAT, 0.5), Scalar(DOUBLE, -0.0)),
    "integers": (4, -1),
    "numbers": (0.5, -0.0, math.inf),
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
    **{
        name: name
        for name in ("dtype", "text", "scalar", "scalars", "integers", "numbers", "booleans")
    },
}
FLOAT_WIRE: Any = tensor_pb2.DATA_TYPE_FLOAT


def travelled(name: str, value: Any) -> Any:
    """What an argument is behind the wire."""
    return decoded(EVERY_KIND, **{name: value}).arguments[name]


def typed(name: str, **more: Any) -> pb.Argument:
    """An argument with the member that the contract names for it."""
    member = MEMBER_OF[name]
    return pb.Argument(name=name, **{member: MEMBERS[member], **more})


def bits(value: Any) -> Any:
    """What equality does not tell: NaN equals itself here, and -0.0 is not 0.0."""
    if isinstance(value, Scalar):
        return value.dtype, bits(value.value)
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return type(value), value


def test_these_tests_know_every_kind_and_every_member() -> None:
    assert set(KINDS.values()) == set(Kind)
    assert VALUES.keys() == MEMBER_OF.keys() == KINDS.keys()
    oneof = pb.Argument.DESCRIPTOR.oneofs_by_name["value"]
    assert {field.name for field in oneof.fields} == {*MEMBERS, "absent"}


@each("name", KINDS)
def test_a_value_comes_from_the_wire_to_the_c_function_as_it_was(name: str) -> None:
    call = prepared(EVERY_KIND, **VALUES, out=PAIR)
    for found in travelled(name, VALUES[name]), call.values[name]:
        assert bits(found) == bits(VALUES[name])


REALS = {
    dtype: st.integers(int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max))
    for dtype in DTYPES
    if dtype.kind == "int"
} | {dtype: st.floats(width=16) for dtype in (FLOAT16, FLOAT, DOUBLE)}
scalars = st.sampled_from([*REALS]).flatmap(lambda d: REALS[d].map(lambda v: Scalar(d, v)))
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "single": st.floats(),
    "double": st.floats(),
    "text": st.text().filter(lambda text: "\0" not in text),
    "integers": st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
    "numbers": st.lists(st.floats()).map(tuple),
    "booleans": st.lists(st.booleans()).map(tuple),
    "scalar": scalars,
    "scalars": st.lists(scalars).map(tuple),
}


@each("name", DRAWN)
@given(st.data())
@settings(max_examples=40)
def test_any_value_comes_back_from_the_wire_by_its_bits(name: str, data: st.DataObject) -> None:
    value = data.draw(DRAWN[name])
    assert bits(travelled(name, value)) == bits(value)


@each("dtype", DTYPES)
def test_every_element_type_travels(dtype: Any) -> None:
    assert travelled("dtype", dtype) is dtype
    assert travelled("scalar", Scalar(dtype, 1)) == Scalar(dtype, 1)
    assert travelled("scalars", (Scalar(dtype, 1),) * 2) == (Scalar(dtype, 1),) * 2


@each("name", KINDS)
def test_a_value_travels_in_the_member_that_the_contract_names_and_in_no_other(name: str) -> None:
    assert raw(EVERY_KIND, typed(name)).arguments.keys() == {name}
    for member in MEMBERS.keys() - {MEMBER_OF[name]}:
        expected = f"{name}: expected its value as '{MEMBER_OF[name]}', found '{member}'"
        with pytest.raises(MessageError, match=expected) as caught:
            raw(EVERY_KIND, pb.Argument(name=name, **{member: MEMBERS[member]}))
        assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)
    with pytest.raises(MessageError, match=f"{name}: expected its value as .* found 'none'"):
        raw(EVERY_KIND, pb.Argument(name=name))
    with pytest.raises(MessageError, match=f"{name}: expected a tensor, since `stored` is set"):
        raw(EVERY_KIND, typed(name, stored=True))


@each("name", KINDS)
@each("mentioned", [True, False])
def test_a_pointer_may_be_absent_and_null_for_the_c_function_and_no_other_value(
    name: str, mentioned: bool
) -> None:
    given = {**VALUES, name: None, "out": PAIR}
    if not mentioned:
        del given[name]
    if name in POINTERS:
        values = prepared(EVERY_KIND, **given).values
        assert {key for key, value in values.items() if value is None} == {name}
        return
    with pytest.raises(AttributeValueError, match=f"{name}: expected a value") as caught:
        prepared(EVERY_KIND, **given)
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)


@each(("name", "number"), [("int32", 2**31), ("int", 2**31), ("int8", -129)])
def test_a_number_beyond_its_c_type_is_refused(name: str, number: int) -> None:
    with pytest.raises(AttributeValueError, match=f"{name}: expected .* found {number}") as caught:
        raw(EVERY_KIND, pb.Argument(name=name, integer=number))
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)
    assert caught.value.details["operator"] == "aclnnEveryKind"


@each("name", ["scalars", "integers", "numbers", "booleans"])
def test_an_array_may_be_empty_and_is_not_null_then(name: str) -> None:
    assert prepared(EVERY_KIND, **{**VALUES, name: ()}, out=PAIR).values[name] == ()
    empty = {**MEMBERS, "integers": pb.IntArray()}[name]
    for argument in (
        pb.Argument(name=name, **{name: empty}),
        pb.Argument(name=name, integers=pb.IntArray()),
    ):
        assert raw(EVERY_KIND, argument).arguments == {name: ()}
    if name != "integers":  # which stand for another array only if there are none
        with pytest.raises(MessageError, match=f"{name}: expected its value as '{name}'"):
            raw(EVERY_KIND, pb.Argument(name=name, integers=pb.IntArray(values=[0])))


WRONG_SIZES = [(dtype, dtype.itemsize + difference) for dtype in DTYPES for difference in (-1, 1)]


@each(("dtype", "size"), WRONG_SIZES)
def test_a_scalar_of_too_few_or_too_many_bytes_is_refused(dtype: Any, size: int) -> None:
    wrong = pb.Scalar(dtype=dtype.wire, value=bytes(size))
    good = pb.Scalar(dtype=FLOAT_WIRE, value=bytes(4))
    for name, argument in (
        ("scalar", pb.Argument(name="scalar", scalar=wrong)),
        ("scalars", pb.Argument(name="scalars", scalars=pb.ScalarList(values=[good, wrong]))),
    ):
        expected = f"{name}: expected {dtype.itemsize} bytes for a {dtype}, found {size}"
        with pytest.raises(AttributeValueError, match=expected) as caught:
            raw(EVERY_KIND, argument)
        assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)


@each("value", [value for value in (*range(-1, 64), 4711) if value not in BY_WIRE])
def test_an_element_type_that_the_contract_does_not_list_is_refused(value: Any) -> None:
    scalar = pb.Scalar(dtype=value, value=bytes(4))
    for argument in (
        pb.Argument(name="dtype", dtype=value),
        pb.Argument(name="scalar", scalar=scalar),
        pb.Argument(name="scalars", scalars=pb.ScalarList(values=[scalar])),
    ):
        expected = f"{argument.name}: expected a dtype .* found value {value}"
        with pytest.raises(DTypeError, match=expected):
            raw(EVERY_KIND, argument)


@each(("byte", "value"), [(b"\x00", False), (b"\x01", True), (b"\x02", True), (b"\xff", True)])
def test_every_byte_but_0_is_a_true_scalar(byte: bytes, value: bool) -> None:
    scalar: Any = pb.Scalar(dtype=BOOL.wire, value=byte)  # type: ignore[arg-type]
    found: Any = raw(EVERY_KIND, pb.Argument(name="scalar", scalar=scalar)).arguments["scalar"]
    assert (found.dtype, found.value) == (BOOL, value)
    assert type(found.value) is bool


def test_a_text_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="text: expected a text without a zero byte"):
        raw(EVERY_KIND, pb.Argument(name="text", text="me\0an"))
