"""npucall.wire on any bytes: the verdict and the values of the generated classes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proto.any_messages import KINDS, Kind, agree, call_parts, delimited
from tests.rows import each

from npucall.places import RegionPart
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_request, join_response, split_request

of_each_kind = each("kind", KINDS.values())
_BYTES = st.binary(min_size=1, max_size=1)


@of_each_kind
@given(st.data())
@settings(max_examples=60)
def test_fields_of_any_kind_in_any_order_mean_what_they_mean_to_the_class(
    kind: Kind, data: st.DataObject
) -> None:
    agree(kind, data.draw(kind.made))


@of_each_kind
@given(st.binary(max_size=40))
def test_any_bytes_get_the_verdict_of_the_class(kind: Kind, message: bytes) -> None:
    agree(kind, message)


def damaged(message: bytes, data: st.DataObject) -> bytes:
    """With a byte changed, left out or put in; or the end cut off."""
    at = data.draw(st.integers(0, max(len(message) - 1, 0)))
    byte, rest = data.draw(_BYTES), message[at + 1 :]
    ways = [byte + rest, rest, byte + message[at:], b""]
    return message[:at] + data.draw(st.sampled_from(ways))


@pytest.mark.more
@of_each_kind
@given(st.data())
@settings(max_examples=300)
def test_a_damaged_message_gets_the_verdict_of_the_class(kind: Kind, data: st.DataObject) -> None:
    message = data.draw(kind.made)
    agree(kind, message)  # what it has in common with others is known from here on
    agree(kind, damaged(damaged(message, data), data))


in_region = st.builds(RegionPart, st.binary(max_size=3), st.integers(0, 300), st.integers(0, 300))
places = st.one_of(
    st.lists(st.binary(max_size=20), max_size=3),
    st.lists(in_region, max_size=3),
    st.lists(st.one_of(st.binary(max_size=20), in_region), max_size=3),
)
REPLY, TIMINGS = (m.SerializeToString() for m in (pb.Reply(variant="v"), pb.Timings(run_ns=1)))
WRITTEN = {
    "request": st.builds(
        join_request, call_parts, places, st.dictionaries(st.text(max_size=2), in_region)
    ),
    "response": st.builds(join_response, st.just(REPLY), st.just(TIMINGS), places),
}


@each("name", WRITTEN)
@given(st.data())
@settings(max_examples=120)
def test_a_message_that_almost_equals_one_before_gets_the_verdict_of_the_class(
    name: str, data: st.DataObject
) -> None:
    message = data.draw(WRITTEN[name])
    agree(KINDS[name], message)
    agree(KINDS[name], message)
    at = data.draw(st.integers(0, len(message) - 1))
    agree(KINDS[name], message[:at] + data.draw(_BYTES) + message[at + 1 :])


@given(st.lists(call_parts, min_size=2, max_size=4))
def test_a_call_in_several_parts_is_merged_as_the_class_merges_it(parts: list[bytes]) -> None:
    message = b"".join(delimited(1, part) for part in parts)
    merged: Any = pb.ExecuteRequest.FromString(message).call
    assert pb.Call.FromString(split_request(message).call) == merged
