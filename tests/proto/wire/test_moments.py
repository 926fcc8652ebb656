"""Whether a thread asks for a moment before it waits follows from how often that helped."""

from __future__ import annotations

from npucall.wire.moments import Moment


class Source:
    """Has something in time, or not; remembers how it was asked since the last time."""

    def __init__(self) -> None:
        self.is_quick = True
        self.asked = {True: 0, False: 0}

    def __call__(self, *, at_once: bool) -> int | None:
        self.asked[at_once] += 1
        return None if at_once and not self.is_quick else 0


def waits(moment: Moment, source: Source, times: int) -> int:
    """Of so many times, how often nobody asked before the wait."""
    found = 0
    for _ in range(times):
        source.asked = {True: 0, False: 0}
        assert moment.wait(source) == 0
        found += not source.asked[True]
        assert source.asked[False] == (not (source.is_quick and source.asked[True]))
    return found


def test_what_comes_in_time_is_never_waited_for() -> None:
    assert waits(Moment(), Source(), 50) == 0


def test_after_asking_in_vain_it_only_waits_for_longer_each_time() -> None:
    moment, source = Moment(), Source()
    source.is_quick = False
    assert waits(moment, source, 1 + 8 + 1 + 24 + 1) == 8 + 24
    assert waits(moment, source, 5000) > 4900


def test_it_asks_again_once_things_come_in_time_again() -> None:
    moment, source = Moment(), Source()
    source.is_quick = False
    waits(moment, source, 5000)
    source.is_quick = True
    assert 0 < waits(moment, source, 512) <= 512
    assert waits(moment, source, 300) == 0
    source.is_quick = False
    assert waits(moment, source, 9) == 8  # what was long ago is forgotten
