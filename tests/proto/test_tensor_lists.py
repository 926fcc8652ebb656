"""Lists of tensors: on the wire, prepared, with storages, and in a reply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.declare.call import element, tensors_of
from npucall.declare.parameters import Output
from npucall.dtypes import DTYPES, FLOAT16
from npucall.errors import DTypeError, MessageError, NpucallError, TensorLayoutError
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.replies import ServerIdentity, decode_reply, encode_reply

from .prototypes import CAT, PAIR, SPLIT, STRIDED, TRIPLE, decoded, prepared, raw

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
    assert list(tensors_of("x", ())) == []
    assert list(tensors_of("x", None)) == []


def test_each_tensor_of_a_list_has_a_storage_in_its_order() -> None:
    call = decoded(CAT, "tensors", "out", tensors=(PAIR, TRIPLE), out=FIVE)
    assert call.stored == ("tensors[0]", "tensors[1]", "out")


def test_the_storage_of_a_list_stands_where_the_call_mentions_the_list() -> None:
    call = decoded(CAT, "tensors", "out", out=FIVE, tensors=(PAIR, TRIPLE))
    assert call.stored == ("out", "tensors[0]", "tensors[1]")


def test_a_prepared_call_has_the_tensors_of_a_list_one_by_one() -> None:
    call = cat(PAIR, TRIPLE)
    assert call.inputs == {"tensors[0]": PAIR, "tensors[1]": TRIPLE}
    assert call.lists == {"tensors": ("tensors[0]", "tensors[1]")}
    assert call.stored_bytes == (8, 12)
    assert call.absent == {}


def test_the_bytes_in_flight_are_those_of_every_tensor() -> None:
    assert cat(PAIR, TRIPLE).bytes_in_flight == 8 + 12 + 20
    assert split(PAIR, TRIPLE).bytes_in_flight == 20 + 8 + 12


def test_the_largest_tensor_may_be_one_of_a_list() -> None:
    wide = TensorSpec(PAIR.dtype, (1000,), (0,))  # one element, stretched
    assert cat(PAIR, wide).largest == ("tensors[1]", 4000)


def test_storages_are_found_by_the_names_of_the_tensors() -> None:
    found = cat(PAIR, TRIPLE).storages([b"12345678", b"123456789012"])
    assert found == {"tensors[0]": b"12345678", "tensors[1]": b"123456789012"}


@each("sent", [[], [bytes(8)], [bytes(8), bytes(12), bytes(20)]])
def test_another_number_of_storages_than_the_list_has_tensors_is_refused(sent: Any) -> None:
    expected = rf"storage: expected 2 \(tensors\[0\], tensors\[1\]\), found {len(sent)}"
    with pytest.raises(TensorLayoutError, match=expected):
        cat(PAIR, TRIPLE).storages(sent)


def test_a_storage_of_another_length_is_refused_by_the_name_of_its_tensor() -> None:
    with pytest.raises(TensorLayoutError, match="expected 12 bytes of storage, found 8") as caught:
        cat(PAIR, TRIPLE).storages([bytes(8), bytes(8)])
    assert caught.value.parameter == "tensors[1]"


def test_a_list_that_is_read_has_to_be_sent() -> None:
    with pytest.raises(TensorLayoutError, match="expected its values, which the") as caught:
        prepared(CAT, tensors=(PAIR, TRIPLE), dim=0, out=FIVE)
    assert caught.value.parameter == "tensors[0]"


@each("stored", [(), ("tensors",)])
def test_a_list_may_be_empty_and_is_not_null_then(stored: tuple[str, ...]) -> None:
    call = prepared(CAT, *stored, tensors=(), dim=0, out=FIVE)
    assert (call.inputs, call.lists, call.stored) == ({}, {"tensors": ()}, ())
    assert call.storages([]) == {}
    assert call.absent == {}


def test_an_empty_list_may_come_in_its_own_member() -> None:
    call = raw(CAT, pb.Argument(name="tensors", tensors=pb.TensorList()))
    assert call.arguments == {"tensors": ()}


@each("mentioned", [True, False])
def test_a_list_may_be_absent(mentioned: bool) -> None:
    given: dict[str, Any] = {"tensors": None} if mentioned else {}
    call = prepared(CAT, **given, dim=0, out=FIVE)
    assert (call.inputs, call.lists, call.absent) == ({}, {}, {"tensors": None})


def test_an_absent_list_has_no_storage() -> None:
    argument = pb.Argument(name="tensors", stored=True, absent=pb.Absent())
    with pytest.raises(MessageError, match="tensors: expected a tensor, since `stored` is set"):
        raw(CAT, argument)


@each(
    ("argument", "message"),
    [
        (pb.Argument(name="tensors", tensor=SINGLE), "as 'tensors', found 'tensor'"),
        (pb.Argument(name="tensors", numbers=pb.FloatArray()), "as 'tensors', found 'numbers'"),
        (
            pb.Argument(name="tensors", integers=pb.IntArray(values=[1])),
            "as 'tensors', found 'integers'",
        ),
        (pb.Argument(name="tensors"), "as 'tensors', found 'none'"),
        (
            pb.Argument(name="out", tensors=pb.TensorList(tensors=[SINGLE])),
            "as 'tensor', found 'tensors'",
        ),
        (pb.Argument(name="out", integers=pb.IntArray()), "as 'tensor', found 'integers'"),
    ],
)
def test_a_list_for_a_tensor_and_a_tensor_for_a_list_are_refused(
    argument: pb.Argument, message: str
) -> None:
    with pytest.raises(MessageError, match=message):
        raw(CAT, argument)


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


def test_outputs_of_a_list_come_back_dense_one_by_one() -> None:
    call = split(STRIDED, TRIPLE)
    assert call.outputs == {"out[0]": PAIR, "out[1]": TRIPLE}
    assert call.lists == {"out": ("out[0]", "out[1]")}
    assert call.stored == ("self",)


def test_outputs_of_a_list_that_are_sent_come_back_with_their_layout() -> None:
    call = split(STRIDED, TRIPLE, stored=("self", "out"))
    assert call.outputs == {"out[0]": STRIDED, "out[1]": TRIPLE}
    assert call.stored == ("self", "out[0]", "out[1]")
    assert call.stored_bytes == (20, 20, 12)


def test_an_output_of_a_list_whose_elements_share_memory_is_refused() -> None:
    shared = TensorSpec(PAIR.dtype, (2,), (0,))
    with pytest.raises(TensorLayoutError, match="whose elements do not share memory") as caught:
        split(TRIPLE, shared)
    assert caught.value.parameter == "out[1]"


def test_tensors_of_a_list_may_differ_in_type_and_rank() -> None:
    half = TensorSpec(FLOAT16, (1, 3))
    assert split(PAIR, half).outputs == {"out[0]": PAIR, "out[1]": half}


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
