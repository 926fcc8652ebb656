"""npucall.wire.messages on any bytes: the verdict and the values of the generated classes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.limits import DIGEST_BYTES, HANDLE_BYTES
from npucall.places import Digest, HandlePart, RegionPart, StepOutput
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.messages import join_request, join_response, split_request, split_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from npucall.wire.places import ReceivedPlace

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
regions = st.builds(
    lambda kwargs: tensor_pb2.Region(**kwargs).SerializeToString(),
    st.fixed_dictionaries({}, optional={"id": st.binary(max_size=3), "length": st.integers(0, 9)}),
)
handles = st.builds(
    lambda kwargs: tensor_pb2.HandlePart(**kwargs).SerializeToString(),
    st.fixed_dictionaries(
        {"id": st.sampled_from([bytes(16), bytes(15)])}, optional={"length": st.integers(0, 9)}
    ),
)
results = st.builds(
    lambda step, output: tensor_pb2.StepOutput(step=step, output=output).SerializeToString(),
    st.integers(0, 300),
    st.text(max_size=3),
)
storages = st.lists(
    st.one_of(
        st.binary(max_size=8).map(lambda data: delimited(15, data)),
        st.binary(max_size=8).map(lambda data: delimited(1, data)),
        regions.map(lambda region: delimited(2, region)),
        handles.map(lambda handle: delimited(3, handle)),
        st.sampled_from([bytes(32), bytes(31)]).map(lambda digest: delimited(4, digest)),
        results.map(lambda result: delimited(5, result)),
        anything,
    ),
    max_size=3,
).map(b"".join)
output_places = st.one_of(
    regions.map(lambda region: delimited(2, region)),
    st.sampled_from([delimited(3, bytes(16)), delimited(3, b"short"), b"\x20\x01", b""]),
)
messages = st.lists(
    st.one_of(
        call_parts.map(lambda call: delimited(1, call)),
        storages.map(lambda storage: delimited(2, storage)),
        st.tuples(st.text(max_size=2), output_places).map(
            lambda place: delimited(3, delimited(1, place[0].encode()) + place[1])
        ),
        anything,
    ),
    max_size=5,
).map(b"".join)


def request_of(message: bytes) -> tuple[Any, ...]:
    """What ``wire.messages`` finds in an ``ExecuteRequest``; raises what it raises."""
    split = split_request(message)
    places = {name: tuple(place) for name, place in split.output_places.items()}
    return pb.Call.FromString(split.call), list(map(_seen, split.storage)), places


def request_of_class(parsed: pb.ExecuteRequest) -> Verdict:
    """The same of the class, and None where we refuse and it does not."""
    places = {p.output: _output_place(p) for p in parsed.output_places}
    if None in places.values() or len(places) < len(parsed.output_places):
        return None
    if not _are_well_made(parsed.storage):
        return None
    return parsed.call, list(map(_place, parsed.storage)), places


def response_of(message: bytes) -> tuple[Any, ...]:
    """What ``wire.messages`` finds in an ``ExecuteResponse``; raises what it raises."""
    reply, timings, storage = split_response(message)
    return pb.Reply.FromString(reply), pb.Timings.FromString(timings), list(map(_seen, storage))


def response_of_class(parsed: pb.ExecuteResponse) -> Verdict:
    """The same of the class, and None where we refuse and it does not."""
    if not _are_well_made(parsed.storage):
        return None
    return parsed.reply, parsed.timings, list(map(_place, parsed.storage))


def _seen(place: ReceivedPlace) -> object:
    return bytes(place) if isinstance(place, memoryview) else place


def _place(storage: tensor_pb2.Storage) -> object:
    kind = storage.WhichOneof("place")
    if kind is None or kind == "data":
        return None if kind is None else storage.data
    if kind == "digest":
        return Digest(storage.digest)
    if kind == "result":
        return StepOutput(storage.result.step, storage.result.output)
    fields = _fields(getattr(storage, kind))
    return RegionPart(*fields) if kind == "region" else HandlePart(*fields)


def _are_well_made(storages: Iterable[tensor_pb2.Storage]) -> bool:
    """Ids and digests have their lengths."""
    return all(
        len(storage.handle.id) == HANDLE_BYTES
        if (kind := storage.WhichOneof("place")) == "handle"
        else kind != "digest" or len(storage.digest) == DIGEST_BYTES
        for storage in storages
    )


def _output_place(place: pb.OutputPlace) -> tuple[object, ...] | None:
    """None where it is not one place."""
    if place.HasField("region") + bool(place.keep) + place.discard != 1:
        return None
    if place.HasField("region"):
        return _fields(place.region)
    if place.keep:
        return (place.keep,) if len(place.keep) == HANDLE_BYTES else None
    return ()


def _fields(region: tensor_pb2.Region) -> tuple[bytes, int, int]:
    return region.id, region.offset, region.length


def ours(message: bytes, read: Callable[[bytes], Verdict] = request_of) -> Verdict:
    try:
        return read(message)
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None


def of_the_class(message: bytes) -> Verdict:
    try:
        return request_of_class(pb.ExecuteRequest.FromString(message))
    except DecodeError:
        return None


def ours_of_response(message: bytes) -> Verdict:
    return ours(message, response_of)


def class_of_response(message: bytes) -> Verdict:
    try:
        return response_of_class(pb.ExecuteResponse.FromString(message))
    except DecodeError:
        return None


def mutated(message: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A byte changed, left out or put in; or the end cut off."""
    at = draw(st.integers(0, max(len(message) - 1, 0)))
    byte = draw(st.binary(min_size=1, max_size=1))
    ways = [message[:at] + byte + message[at + 1 :], message[:at] + message[at + 1 :]]
    return draw(st.sampled_from([*ways, message[:at] + byte + message[at:], message[:at]]))  # type: ignore[no-any-return]


@given(messages)
def test_fields_of_any_kind_in_any_order_mean_what_they_mean_to_the_class(message: bytes) -> None:
    assert ours(message) == of_the_class(message)


@pytest.mark.more
@given(messages, st.data())
@settings(max_examples=300)
def test_a_damaged_message_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    ours(message)  # what it has in common with others is known from here on
    damaged = mutated(mutated(message, data.draw), data.draw)
    assume(not LONG_NUMBER.search(damaged))
    assert ours(damaged) == of_the_class(damaged)


in_region = st.builds(RegionPart, st.binary(max_size=3), st.integers(0, 300), st.integers(0, 300))
places = st.one_of(
    st.lists(st.binary(max_size=20), max_size=3),
    st.lists(in_region, max_size=3),
    st.lists(st.one_of(st.binary(max_size=20), in_region), max_size=3),
)


@given(call_parts, places, st.dictionaries(st.text(max_size=2), in_region, max_size=2), st.data())
@settings(max_examples=400)
def test_a_message_that_almost_equals_one_before_gets_the_verdict_of_the_class(
    call: bytes, storage: list[Any], outputs: dict[str, RegionPart], data: st.DataObject
) -> None:
    message = join_request(call, storage, outputs)
    assert ours(message) == ours(message) == of_the_class(message)
    at = data.draw(st.integers(0, len(message) - 1))
    almost = message[:at] + data.draw(st.binary(min_size=1, max_size=1)) + message[at + 1 :]
    assume(not LONG_NUMBER.search(almost))
    assert ours(almost) == of_the_class(almost)


@given(st.lists(st.binary(max_size=20), max_size=3), st.data())
@settings(max_examples=300)
def test_a_response_that_almost_equals_one_before_gets_the_verdict_of_the_class(
    storage: list[bytes], data: st.DataObject
) -> None:
    reply = pb.Reply(variant="v").SerializeToString()
    message = join_response(reply, pb.Timings(run_ns=1).SerializeToString(), storage)
    assert ours_of_response(message) == ours_of_response(message) == class_of_response(message)
    at = data.draw(st.integers(0, len(message) - 1))
    almost = message[:at] + data.draw(st.binary(min_size=1, max_size=1)) + message[at + 1 :]
    assume(not LONG_NUMBER.search(almost))
    assert ours_of_response(almost) == class_of_response(almost)


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
