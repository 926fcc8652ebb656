"""Memory of the process that no call counts: what it keeps for the next ones, and what strays."""

from __future__ import annotations

from collections.abc import Callable

from npucall import memory
from npucall.limits import MIB
from npucall_server.accounts.ledger import Ledger
from npucall_server.scheduling.executor import Executor

_LARGE = 16
"""For calls that need at least 1/16 of the limit, the memory of the process is looked at."""
_USUAL_BYTES = 128 * MIB
"""What a process takes beside calls, and half of the limit: messages, threads, connections."""
_OWNER = "process"


class KeptMemory:
    """Freed memory that the process keeps for the next calls, within ``limit``.

    Kept memory and the memory of calls together are at most ``limit`` more than the process had at
    its start. If a call needs more, kept memory is given back first.
    """

    def __init__(
        self,
        limit: int,
        give_back: Callable[[], object] = memory.give_back,
        resident: Callable[[], int] = memory.resident_bytes,
    ) -> None:
        self.large = limit // _LARGE
        """From so many bytes on ``make_room`` looks; for less it does nothing."""
        self._most = resident() + limit
        self._give_back, self._resident = give_back, resident

    def make_room(self, size: int) -> None:
        """To be called before a call takes so many bytes."""
        if size >= self.large and self._resident() + size > self._most:
            self._give_back()


class IdleMemory:
    """Watches an executor. Gives kept memory back once after each time that it was busy."""

    def __init__(
        self, executor: Executor, give_back: Callable[[], object] = memory.give_back
    ) -> None:
        self._executor, self._give_back = executor, give_back
        self._seen, self._kept = 0, False

    def look(self) -> None:
        """Gives it back if no call has come since the last look. To be called now and then."""
        admitted = self._executor.calls_admitted
        self._kept = self._kept or admitted != self._seen
        if self._kept and admitted == self._seen and not self._executor.calls_in_flight:
            self._give_back()
            self._kept = False
        self._seen = admitted


class StrayMemory:
    """Counts in the ledger of calls what the process has that no call explains.

    Such as what gRPC keeps of unfinished headers: then fewer calls are admitted, and the process
    keeps its promise all the same.
    """

    def __init__(
        self,
        ledger: Ledger,
        give_back: Callable[[], object] = memory.give_back,
        resident: Callable[[], int] = memory.resident_bytes,
    ) -> None:
        self._ledger, self._give_back, self._resident = ledger, give_back, resident
        self._usual = resident() + ledger.limit // 2 + _USUAL_BYTES

    def look(self) -> None:
        """To be called every second."""
        stray = self._unexplained()
        if stray > 0:
            self._give_back()
            stray = self._unexplained()
        self._ledger.count(_OWNER, max(stray, 0))

    def _unexplained(self) -> int:
        ledger = self._ledger
        return self._resident() - self._usual - (ledger.used - ledger.held(_OWNER))
