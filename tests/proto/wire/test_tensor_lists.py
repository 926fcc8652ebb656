"""Lists of tensors: on the wire, prepared, with storages, and in a reply."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proto.prototypes import CAT, PAIR, SPLIT, STRIDED, TRIPLE, decoded, prepared, raw
from tests.rows import each

from npucall.declare.call import element, tensors_of
from npucall.declare.parameters import Output
from npucall.dtypes import DTYPES
from npucall.errors import DTypeError, MessageError, NpucallError, TensorLayoutError
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.replies import ServerIdentity, decode_reply, encode_reply

SINGLE = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[2])
SERVER = ServerIdentity("a1b2", "cann:0", "Ascend910B1")
FIVE = TensorSpec(PAIR.dtype, (5,))

specs = st.builds(
    TensorSpec, st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=4).map(tuple)
)


def cat(*tensors: TensorSpec, **given: Any) -> Any:
    return prepared(CAT, "tensors", **{"tensors": tensors, "dim": 0, "out": FIVE, **given})


def split(*out: TensorSpec, stored: tuple[str, ...] = ("self",)) -> Any:
    return prepared(SPLIT, *stored, self=FIVE, splitSize=(2, 3), dim=0, out=out)


@given(st.lists(specs).map(tuple))
def test_a_list_comes_back_from_the_wire_as_it_was(tensors: tuple[TensorSpec, ...]) -> None:
    assert decoded(CAT, "tensors", tensors=tensors).arguments["tensors"] == tensors


def test_tensors_of_a_list_have_its_name_and_their_index() -> None:
    assert element("x", 12) == "x[12]"
    assert list(tensors_of("x", (PAIR, TRIPLE))) == [("x[0]", PAIR), ("x[1]", TRIPLE)]
    assert list(tensors_of("x", PAIR)) == [("x", PAIR)]
    assert list(tensors_of("x", ())) == list(tensors_of("x", None)) == []


def test_each_tensor_of_a_list_has_a_storage_where_the_call_mentions_the_list() -> None:
    two = (PAIR, TRIPLE)
    first = decoded(CAT, "tensors", "out", tensors=two, out=FIVE)
    last = decoded(CAT, "tensors", "out", out=FIVE, tensors=two)
    assert first.stored == ("tensors[0]", "tensors[1]", "out")
    assert last.stored == ("out", "tensors[0]", "tensors[1]")


def test_a_prepared_call_has_the_tensors_of_a_list_one_by_one() -> None:
    call = cat(PAIR, TRIPLE)
    assert call.inputs == {"tensors[0]": PAIR, "tensors[1]": TRIPLE}
    assert call.lists == {"tensors": ("tensors[0]", "tensors[1]")}
    assert call.stored_bytes == (8, 12)
    assert call.absent == {}
    found = call.storages([b"12345678", b"123456789012"])
    assert found == {"tensors[0]": b"12345678", "tensors[1]": b"123456789012"}


def test_the_bytes_in_flight_are_those_of_every_tensor() -> None:
    assert cat(PAIR, TRIPLE).bytes_in_flight == 8 + 12 + 20
    assert split(PAIR, TRIPLE).bytes_in_flight == 20 + 8 + 12


def test_the_largest_tensor_may_be_one_of_a_list() -> None:
    wide = TensorSpec(PAIR.dtype, (1000,), (0,))  # one element, stretched
    assert cat(PAIR, wide).largest == ("tensors[1]", 4000)
    assert cat(wide, PAIR).largest == ("tensors[0]", 4000)


@each("sent", [[], [bytes(8)], [bytes(8), bytes(12), bytes(20)]])
def test_another_number_of_storages_than_the_list_has_tensors_is_refused(sent: Any) -> None:
    expected = rf"storage: expected 2 \(tensors\[0\], tensors\[1\]\), found {len(sent)}"
    with pytest.raises(TensorLayoutError, match=expected):
        cat(PAIR, TRIPLE).storages(sent)


SHARED = TensorSpec(PAIR.dtype, (2,), (0,))


@each(
    ("call", "blamed", "why"),
    [
        (
            lambda: cat(PAIR, TRIPLE).storages([bytes(8), bytes(8)]),
            "tensors[1]",
            "expected 12 bytes of storage, found 8",
        ),
        (
            lambda: prepared(CAT, tensors=(PAIR, TRIPLE), dim=0, out=FIVE),
            "tensors[0]",
            "expected its values, which the",
        ),
        (lambda: split(TRIPLE, SHARED), "out[1]", "whose elements do not share memory"),
    ],
)
def test_a_tensor_of_a_list_is_blamed_by_its_name(call: Any, blamed: str, why: str) -> None:
    with pytest.raises(TensorLayoutError, match=why) as caught:
        call()
    assert caught.value.parameter == blamed


@each("stored", [(), ("tensors",)])
def test_a_list_may_be_empty_and_is_not_null_then(stored: tuple[str, ...]) -> None:
    call = prepared(CAT, *stored, tensors=(), dim=0, out=FIVE)
    assert (call.inputs, call.lists, call.stored) == ({}, {"tensors": ()}, ())
    assert call.storages([]) == {}
    assert call.absent == {}
    typed = raw(CAT, pb.Argument(name="tensors", tensors=pb.TensorList()))
    assert typed.arguments == {"tensors": ()}


@each("given", [{"tensors": None}, {}])
def test_a_list_may_be_absent(given: dict[str, Any]) -> None:
    call = prepared(CAT, **given, dim=0, out=FIVE)
    assert (call.inputs, call.lists, call.absent) == ({}, {}, {"tensors": None})


ONE = pb.TensorList(tensors=[SINGLE])
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("tensors", {"tensor": SINGLE}, "as 'tensors', found 'tensor'"),
    ("tensors", {"numbers": pb.FloatArray()}, "as 'tensors', found 'numbers'"),
    ("tensors", {"integers": pb.IntArray(values=[1])}, "as 'tensors', found 'integers'"),
    ("tensors", {}, "as 'tensors', found 'none'"),
    ("tensors", {"stored": True, "absent": pb.Absent()}, "a tensor, since `stored` is set"),
    ("out", {"tensors": ONE}, "as 'tensor', found 'tensors'"),
    ("out", {"integers": pb.IntArray()}, "as 'tensor', found 'integers'"),
]


@each(("name", "value", "message"), WRONG)
def test_a_list_for_a_tensor_and_a_tensor_for_a_list_are_refused(
    name: str, value: dict[str, Any], message: str
) -> None:
    with pytest.raises(MessageError, match=f"{name}: expected .*{message}"):
        raw(CAT, pb.Argument(name=name, **value))


@each(
    ("fields", "error"),
    [({"dtype": 0}, DTypeError), ({"dtype": 1, "shape": [-1]}, TensorLayoutError)],
)
def test_a_spec_that_is_wrong_is_blamed_by_its_place_in_the_list(
    fields: Any, error: type[NpucallError]
) -> None:
    tensors = pb.TensorList(tensors=[SINGLE, tensor_pb2.TensorSpec(**fields)])
    with pytest.raises(error, match=r"tensors\[1\]: expected") as caught:
        raw(CAT, pb.Argument(name="tensors", tensors=tensors))
    assert caught.value.parameter == "tensors[1]"


def test_outputs_of_a_list_come_back_dense_unless_they_are_sent() -> None:
    dense, sent = split(STRIDED, TRIPLE), split(STRIDED, TRIPLE, stored=("self", "out"))
    assert dense.outputs == {"out[0]": PAIR, "out[1]": TRIPLE}
    assert dense.lists == {"out": ("out[0]", "out[1]")}
    assert dense.stored == ("self",)
    assert sent.outputs == {"out[0]": STRIDED, "out[1]": TRIPLE}
    assert sent.stored == ("self", "out[0]", "out[1]")
    assert sent.stored_bytes == (20, 20, 12)


def test_a_list_that_is_stated_as_output_is_one() -> None:
    call = prepared(CAT, roles={"tensors": Output}, tensors=(PAIR, TRIPLE), dim=0, out=FIVE)
    assert list(call.outputs) == ["tensors[0]", "tensors[1]", "out"]
    assert call.inputs == {}


def test_a_reply_names_the_tensors_of_a_list_one_by_one() -> None:
    reply = decode_reply(encode_reply(split(PAIR, TRIPLE), SERVER))
    assert reply.outputs == {"out[0]": PAIR, "out[1]": TRIPLE}
    assert reply.stored == ("out[0]", "out[1]")


@each("out", [(), None])
def test_a_reply_has_nothing_of_a_list_that_is_empty_or_absent(out: Any) -> None:
    call = prepared(SPLIT, "self", self=FIVE, splitSize=(), dim=0, out=out)
    assert decode_reply(encode_reply(call, SERVER)).outputs == {}
