"""Which ids of calls a stream has used."""

from __future__ import annotations

from bisect import bisect_right

from npucall.errors import MessageError
from npucall.limits import MAX_ID_GAPS


class Ids:
    """The ids that a stream has used. Those that follow each other take no memory."""

    def __init__(self, most_gaps: int = MAX_ID_GAPS) -> None:
        self._most_runs = most_gaps
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, call_id: int) -> bool:
        run = bisect_right(self._starts, call_id) - 1
        return run >= 0 and call_id < self._ends[run]

    def add(self, call_id: int) -> None:
        """Uses an id. Raises MessageError where it was used before."""
        run = bisect_right(self._starts, call_id) - 1
        if run >= 0 and call_id < self._ends[run]:
            raise MessageError(f"call_id: expected one not used before, found {call_id}")
        if run >= 0 and call_id == self._ends[run]:
            self._ends[run] += 1
        elif len(self._starts) < self._most_runs:
            self._starts.insert(run + 1, call_id)
            self._ends.insert(run + 1, call_id + 1)
        else:
            raise MessageError("call_id: expected ids of which most follow each other")
