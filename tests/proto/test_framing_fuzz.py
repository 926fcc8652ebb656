"""npucall.framing on any bytes: the verdict and the values of the generated classes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.framing import split_request, split_response
from npucall.v1 import operator_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

Verdict = tuple[Any, ...] | None
"""What a message holds, or None for one that is refused."""

# Versions of the class differ about two things, in which we are as strict as the strictest: lengths
# written in more than the 5 bytes that 32 bits need, and field number 0 inside an unknown group.
LONG_NUMBER = re.compile(rb"[\x80-\xff]{5}", re.DOTALL)


def number(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(high) if high else bytes([low])


def tagged(field: int, wire_type: int, content: bytes) -> bytes:
    return number(field << 3 | wire_type) + content


def delimited(field: int, content: bytes) -> bytes:
    return tagged(field, 2, number(len(content)) + content)


def fields_of(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    """A field of any wire type but the group, as bytes."""
    return st.one_of(
        st.builds(lambda n, v: tagged(n, 0, number(v)), numbers, st.integers(0, 2**64 - 1)),
        st.builds(lambda n, v: tagged(n, 1, v), numbers, st.binary(min_size=8, max_size=8)),
        st.builds(lambda n, v: tagged(n, 5, v), numbers, st.binary(min_size=4, max_size=4)),
        st.builds(delimited, numbers, st.binary(max_size=8)),
    )


def in_group(inside: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda n, content: tagged(n, 3, b"".join(content)) + tagged(n, 4, b""),
        st.integers(1, 20),
        st.lists(inside, max_size=3),
    )


anything = st.recursive(fields_of(st.sampled_from([1, 2, 3, 5, 15, 2**29 - 1])), in_group)
call_parts = st.builds(
    lambda kwargs: pb.Call(**kwargs).SerializeToString(),
    st.fixed_dictionaries({}, optional={"operator": st.text(max_size=3), "variant": st.text()}),
)
storages = st.lists(
    st.one_of(
        st.binary(max_size=8).map(lambda data: delimited(15, data)),
        st.binary(max_size=8).map(lambda data: delimited(1, data)),
        anything,
    ),
    max_size=3,
).map(b"".join)
messages = st.lists(
    st.one_of(
        call_parts.map(lambda call: delimited(1, call)),
        storages.map(lambda storage: delimited(2, storage)),
        anything,
    ),
    max_size=5,
).map(b"".join)


def ours(message: bytes) -> Verdict:
    try:
        split = split_request(message)
        return pb.Call.FromString(split.call), list(map(bytes, split.storage))
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None


def of_the_class(message: bytes) -> Verdict:
    try:
        parsed = pb.ExecuteRequest.FromString(message)
    except DecodeError:
        return None
    if not all(storage.HasField("data") for storage in parsed.storage):
        return None  # the one thing that we refuse and the class does not
    return parsed.call, [storage.data for storage in parsed.storage]


def ours_of_response(message: bytes) -> Verdict:
    try:
        reply, timings, storage = split_response(message)
        return (
            pb.Reply.FromString(reply),
            pb.Timings.FromString(timings),
            list(map(bytes, storage)),
        )
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None


def class_of_response(message: bytes) -> Verdict:
    try:
        parsed = pb.ExecuteResponse.FromString(message)
    except DecodeError:
        return None
    if not all(storage.HasField("data") for storage in parsed.storage):
        return None
    return parsed.reply, parsed.timings, [storage.data for storage in parsed.storage]


def mutated(message: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A byte changed, left out or put in; or the end cut off."""
    at = draw(st.integers(0, max(len(message) - 1, 0)))
    byte = draw(st.binary(min_size=1, max_size=1))
    ways = [message[:at] + byte + message[at + 1 :], message[:at] + message[at + 1 :]]
    return draw(st.sampled_from([*ways, message[:at] + byte + message[at:], message[:at]]))  # type: ignore[no-any-return]


@given(messages)
def test_fields_of_any_kind_in_any_order_mean_what_they_mean_to_the_class(message: bytes) -> None:
    assert ours(message) == of_the_class(message)


@given(messages, st.data())
@settings(max_examples=300)
def test_a_damaged_message_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    damaged = mutated(mutated(message, data.draw), data.draw)
    assume(not LONG_NUMBER.search(damaged))
    assert ours(damaged) == of_the_class(damaged)


@given(st.binary(max_size=40))
@settings(max_examples=300)
def test_any_bytes_get_the_verdict_of_the_class(message: bytes) -> None:
    assume(not LONG_NUMBER.search(message))
    assert ours(message) == of_the_class(message)


@given(messages)
def test_a_response_means_what_it_means_to_the_class(message: bytes) -> None:
    response = message.replace(b"\x12", b"\x1a")  # storage is field 3 there
    assume(not LONG_NUMBER.search(response))
    assert ours_of_response(response) == class_of_response(response)


@given(st.lists(call_parts, min_size=2, max_size=4))
def test_a_call_in_several_parts_is_merged_as_the_class_merges_it(parts: list[bytes]) -> None:
    message = b"".join(delimited(1, part) for part in parts)
    assert (
        pb.Call.FromString(split_request(message).call)
        == pb.ExecuteRequest.FromString(message).call
    )
