"""Whether a thread asks for a moment before it waits follows from how often that helped."""

from __future__ import annotations

from npucall.wire.moments import Moment


def skipped(moment: Moment, times: int, *, in_vain: bool) -> int:
    """Of so many times, how often it was to wait at once."""
    found = 0
    for _ in range(times):
        if moment.begin():
            moment.end(in_vain=in_vain)
        else:
            found += 1
    return found


def test_what_comes_in_time_is_asked_for_each_time() -> None:
    assert skipped(Moment(), 50, in_vain=False) == 0


def test_after_asking_in_vain_it_only_waits_for_longer_each_time() -> None:
    moment = Moment()
    assert skipped(moment, 1 + 8 + 1 + 24 + 1, in_vain=True) == 8 + 24
    assert skipped(moment, 5000, in_vain=True) > 4900


def test_it_asks_again_once_things_come_in_time_again() -> None:
    moment = Moment()
    skipped(moment, 5000, in_vain=True)
    assert 0 < skipped(moment, 512, in_vain=False) <= 512
    assert skipped(moment, 300, in_vain=False) == 0
    assert skipped(moment, 9, in_vain=True) == 8  # what was long ago is forgotten
