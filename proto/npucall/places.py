"""Where the bytes of a call are: in its message, in later chunks, or in memory that stays.

And whether parts of memory that client and server share have bytes in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall.tensors import Buffer


class RegionPart(NamedTuple):
    """A part of a region: of memory that client and server share."""

    id: bytes
    offset: int
    length: int


class HandlePart(NamedTuple):
    """A part of what a handle of a session holds."""

    id: bytes
    offset: int
    length: int


class Digest(NamedTuple):
    """Bytes that the server keeps, by their SHA-256."""

    sha256: bytes


class StepOutput(NamedTuple):
    """An output of an earlier step of the same program."""

    step: int
    output: str


class Keep(NamedTuple):
    """An output is to stay on the server, under this handle."""

    handle: bytes


class Discard(NamedTuple):
    """An output is not wanted, unless a later step of the program takes it."""


Place: TypeAlias = "Buffer | RegionPart | HandlePart | Digest | StepOutput | None"
"""Where a storage is; None: it follows in chunks, or, in an answer, was discarded."""
OutputPlace: TypeAlias = RegionPart | Keep | Discard
"""Where an output goes if it is not part of the answer."""


class Clash(NamedTuple):
    """An output's place that shares bytes with something else of its call."""

    place: str
    other: str
    other_is_place: bool


class _Span(NamedTuple):
    """Bytes from ``start`` to ``end``; spans sort by region, then by where they begin."""

    region: bytes
    start: int
    end: int
    name: str
    is_place: bool

    def reach(self) -> tuple[bytes, int]:
        return self.region, self.end


def clashes(
    places: Mapping[str, RegionPart], storages: Mapping[str, RegionPart]
) -> Iterator[Clash]:
    """Clashes: places where outputs cannot be written; each is in one, as place or as other.

    Storages may overlap each other; they are only read. An output may have its own storage, all of
    it, as its place.
    """
    farthest = farthest_place = _Span(b"", 0, 0, "", is_place=False)
    for span in sorted(_spans(places, storages)):
        before = farthest if span.is_place else farthest_place
        if (span.region, span.start) < before.reach():
            place, other = (span, before) if span.is_place else (before, span)
            yield Clash(place.name, other.name, other.is_place)
        farthest = max(farthest, span, key=_Span.reach)
        if span.is_place:
            farthest_place = span


def _spans(places: Mapping[str, RegionPart], storages: Mapping[str, RegionPart]) -> Iterator[_Span]:
    """Everything that has bytes; for an output written over its own storage only the place."""
    for name, (region, start, length) in places.items():
        if length:
            yield _Span(region, start, start + length, name, is_place=True)
    for name, part in storages.items():
        if part.length and places.get(name) != part:
            region, start, length = part
            yield _Span(region, start, start + length, name, is_place=False)
