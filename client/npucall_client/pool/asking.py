"""Which members a client asks what they are, and when. No I/O, no lock.

A member is believed only what it has proved: calls go to members that have themselves said what
they are. The client asks as many as it needs, and more at a time while none of them answers, so
that those which are dead cost it no time.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from npucall.errors import Repeat
from npucall_client.pool.members import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from npucall.errors import NpucallError
    from npucall_client.pool.candidate import Candidate

_WIDTH = 4
"""Members that a client connects to at first; it connects to others when those are busy."""
_MOST_ASKED = 64
"""Members that are asked at a time while none has answered."""
_LOOK_SECONDS = 1.0
_EAGER_SECONDS = 0.1
"""Between two looks at a pool in which no member serves."""
_ASKED_A_SECOND = 200
"""The most failed members that are asked again each second while no member serves."""
PATIENCE_SECONDS = 0.5
"""After the first answer, the client waits so long for those of others that it has asked."""


class Asking:
    """Who has been asked, and how many may be."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.width = _WIDTH
        """So many members are to live."""
        self._most = _WIDTH
        self._first_answer = float("inf")

    def chosen(self, allowed: Collection[Candidate[Any]]) -> set[Candidate[Any]]:
        """Those of the members that may be called that are to be asked now."""
        living = sum(each.lives for each in allowed)
        asked = sum(each.asked for each in allowed)
        if living:
            self._most, free = _WIDTH, self.width - living - asked
        else:
            if asked >= self._most:
                self._most = min(_MOST_ASKED, 2 * self._most)
            free = self._most - asked
        now, pause = self._clock(), max(_EAGER_SECONDS, len(allowed) / _ASKED_A_SECOND)
        due = [
            each
            for each in allowed
            if not (each.asked or each.lives)
            and now >= (each.rests_until if living else each.failed_at + pause)
            and (each.rests_until or not each.member.is_leaving)
        ]
        due.sort(key=_rank)
        again = [each for each in due if each.has_another]
        return {*again, *due[: max(0, free)]}

    def pause(self, known: Collection[Candidate[Any]]) -> float:
        """Seconds until the next look."""
        return _LOOK_SECONDS if any(each.lives for each in known) else _EAGER_SECONDS

    def answered(self) -> None:
        """A member has answered, if only to refuse this client."""
        self._first_answer = min(self._first_answer, self._clock())

    def is_settled(self, known: Collection[Candidate[Any]]) -> bool:
        """Whether the client has waited long enough for the members that it has asked.

        It need not wait for those of which it knows what they are.
        """
        if all(each.member.soc or not each.asked for each in known):
            return True
        return self._clock() >= self._first_answer + PATIENCE_SECONDS

    def check_refused(self, known: Collection[Candidate[Any]]) -> None:
        """Raises the error if members refuse this client, and no other answers."""
        refusals = [e.failure for e in known if e.failure and e.failure.repeat is Repeat.NEVER]
        if refusals and self.is_settled(known):
            refusal: NpucallError = copy.copy(refusals[0])
            raise refusal


def _rank(each: Candidate[Any]) -> tuple[bool, bool, float, float]:
    """Those first that never failed, and of whom others have heard lately."""
    is_suspect = each.member.state is MemberState.SUSPECT
    return bool(each.rests_until), is_suspect, each.failed_at, each.order
