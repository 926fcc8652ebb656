"""npucall.places: which outputs cannot have their places, against a naive search."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from npucall.places import Clash, RegionPart, clashes

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
