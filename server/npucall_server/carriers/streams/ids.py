"""Which ids of calls a stream has used."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from npucall.errors import MessageError
from npucall.limits import MAX_ID_GAPS


class Ids:
    """The ids that a stream has used. A gap among them takes 16 bytes."""

    def __init__(self, most_gaps: int = MAX_ID_GAPS) -> None:
        self._most_runs = most_gaps
        self._firsts, self._lasts = array("Q"), array("Q")

    def __contains__(self, call_id: int) -> bool:
        run = bisect_right(self._firsts, call_id) - 1
        return run >= 0 and call_id <= self._lasts[run]

    def add(self, call_id: int) -> None:
        """Uses an id. Raises MessageError where it was used before."""
        run = bisect_right(self._firsts, call_id) - 1
        if run >= 0 and call_id <= self._lasts[run]:
            raise MessageError(f"call_id: expected a new one for each call, found {call_id} twice")
        if run >= 0 and call_id == self._lasts[run] + 1:
            self._lasts[run] += 1
        elif len(self._firsts) < self._most_runs:
            self._firsts.insert(run + 1, call_id)
            self._lasts.insert(run + 1, call_id)
        else:
            raise MessageError("call_id: expected consecutive numbers, found too many gaps")
