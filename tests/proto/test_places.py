"""npucall.places and handles: which places clash, and the states of handles."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npucall import handles as module
from npucall.errors import (
    HandleEmptyError,
    HandleExistsError,
    HandleMemoryError,
    HandleReleasedError,
    TensorLayoutError,
)
from npucall.handles import (
    TRANSITIONS,
    Begun,
    Handle,
    HandleEvent,
    Handles,
    HandleState,
    check_same,
)
from npucall.limits import MAX_NAME_BYTES
from npucall.places import Clash, HandlePart, RegionPart, clashes

A, B = b"a" * 16, b"b" * 16
SIZE = 8


def begun(handles: Handles[str], handle: bytes = A, identity: bytes | None = b"one") -> Begun:
    return handles.begin(handle, SIZE, identity, str)[0]


def filled(handles: Handles[str], handle: bytes = A, identity: bytes = b"one") -> Handle[str]:
    _, found = handles.begin(handle, SIZE, identity, lambda: "bytes")
    handles.fill(found)
    return found


def part(handle: bytes = A, offset: int = 0, length: int = SIZE) -> HandlePart:
    return HandlePart(handle, offset, length)


ENDS = {HandleEvent.FILL: HandleState.FILLED, HandleEvent.FAIL: HandleState.EMPTY}


@given(st.lists(st.sampled_from(HandleEvent), max_size=30))
def test_any_events_lead_along_the_table(events: list[HandleEvent]) -> None:
    """Who has a handle sees it filled or fail once, though it was released."""
    handles: Handles[str] = Handles()
    expected, last = HandleState.EMPTY, None
    for event in events:
        if event is HandleEvent.BEGIN and expected is HandleState.EMPTY:
            _, last = handles.begin(A, SIZE, b"one", str)
        elif event is HandleEvent.RELEASE:
            is_held = expected in (HandleState.FILLING, HandleState.FILLED)
            assert handles.release(A) is (last if is_held else None)
        elif event in ENDS and last is not None:
            before = last.state
            ended = handles.fill(last) if event is HandleEvent.FILL else handles.fail(last, "why")
            assert ended == (before is HandleState.FILLING)
            assert last.state is (ENDS[event] if ended else before)
        expected = TRANSITIONS[expected].get(event, expected)
        assert handles.state(A) is expected


def test_the_same_joins_what_fills_a_handle_and_nothing_else_fills_it() -> None:
    handles: Handles[str] = Handles()
    assert begun(handles) is Begun.NEW
    for same in Begun.JOIN, Begun.SAME:
        assert begun(handles) is same
        with pytest.raises(HandleExistsError, match="filled only once"):
            begun(handles, identity=b"two")
        with pytest.raises(HandleExistsError, match=r"expected 8 bytes .* found 9"):
            handles.begin(A, SIZE + 1, None, str)
        filled(handles)


def test_an_identity_that_was_not_known_is_compared_when_it_is() -> None:
    handles: Handles[str] = Handles()
    _, first = handles.begin(A, SIZE, None, str)
    assert begun(handles, identity=b"two") is Begun.JOIN
    handles.fill(first, b"one")
    assert begun(handles, identity=None) is Begun.SAME
    check_same(first, b"one")
    with pytest.raises(HandleExistsError):
        check_same(first, b"two")


def test_a_handle_that_could_not_be_filled_is_empty_says_why_and_may_be_filled_again() -> None:
    handles: Handles[str] = Handles()
    _, first = handles.begin(A, SIZE, b"one", str)
    handles.fail(first, "the upload broke" + "!" * 1000)
    with pytest.raises(HandleEmptyError, match="the upload broke") as caught:
        handles.read(part(), "target")
    assert caught.value.parameter == "target"
    assert len(first.failure) <= MAX_NAME_BYTES
    assert begun(handles, identity=b"two") is Begun.NEW


def test_a_handle_that_was_never_named_is_empty() -> None:
    with pytest.raises(HandleEmptyError, match="nothing has filled"):
        Handles[str]().read(part(), "target")


def test_a_released_handle_is_neither_read_nor_filled_again() -> None:
    handles: Handles[str] = Handles()
    filled(handles)
    handles.release(A)
    with pytest.raises(HandleReleasedError):
        handles.read(part(), "target")
    with pytest.raises(HandleReleasedError):
        begun(handles)


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_part_is_inside_the_handle(offset: int, length: int) -> None:
    handles: Handles[str] = Handles()
    first = filled(handles)
    if offset + length <= SIZE:
        assert handles.read(part(A, offset, length), "x") is first
    else:
        with pytest.raises(TensorLayoutError, match="8 bytes of handle"):
            handles.read(part(A, offset, length), "x")


def test_a_session_has_so_many_handles_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HANDLES", 2)
    handles: Handles[str] = Handles()
    filled(handles, A)
    filled(handles, B)
    with pytest.raises(HandleMemoryError, match="the session has 2 handles"):
        filled(handles, b"c" * 16)
    handles.release(A)
    filled(handles, b"c" * 16)
    assert {each.id for each in handles} == {B, b"c" * 16}


def test_handles_released_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAST_HANDLES", 2)
    handles: Handles[str] = Handles()
    for name in b"abc":
        handles.release(bytes([name]) * 16)
    assert handles.state(A) is HandleState.EMPTY
    assert handles.state(B) is HandleState.RELEASED


PARTS = st.builds(RegionPart, st.sampled_from([b"a", b"b"]), st.integers(0, 12), st.integers(0, 6))
BY_NAME = st.dictionaries(st.sampled_from("vwxyz"), PARTS)


def share_bytes(one: RegionPart, other: RegionPart) -> bool:
    bytes_of = [set(range(part.offset, part.offset + part.length)) for part in (one, other)]
    return one.id == other.id and bool(bytes_of[0] & bytes_of[1])


@given(BY_NAME, BY_NAME)
def test_exactly_the_places_that_share_a_byte_are_found_with_what_they_share_it(
    places: dict[str, RegionPart], storages: dict[str, RegionPart]
) -> None:
    expected = {
        name
        for pair in combinations(places, 2)
        if share_bytes(places[pair[0]], places[pair[1]])
        for name in pair
    }
    expected |= {
        name
        for name, place in places.items()
        for other, storage in storages.items()
        if share_bytes(place, storage) and places.get(other) != storage
    }
    found = list(clashes(places, storages))
    named = {clash.place for clash in found} | {c.other for c in found if c.other_is_place}
    assert named == expected
    for place, other, other_is_place in found:
        assert share_bytes(places[place], (places if other_is_place else storages)[other])


def test_storages_may_overlap_each_other_and_an_output_may_have_its_own() -> None:
    part = RegionPart(b"a", 0, 8)
    assert list(clashes({"out": part}, {"out": part})) == []
    assert list(clashes({}, {"x": part, "y": part})) == []
    assert list(clashes({"out": part}, {"x": part})) == [Clash("out", "x", other_is_place=False)]
