"""The turns of a call that may have ended other servers. Its caller is told when they begin.

See ``npucall.wire.status.LOSSES``. All other calls have plain turns, at no cost.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npucall.wire.status import ALONE, LOSSES, SHARED
from npucall_server.scheduling.turn import Turn

if TYPE_CHECKING:
    from types import TracebackType

    from npucall_server.access.callers import Caller
    from npucall_server.scheduling.turns import Grant


_ANSWER_SECONDS = 1.0


def asks(caller: Caller) -> bool:
    """Whether the call is a repetition after a connection that broke."""
    return LOSSES in caller.metadata


class AskedTurn(Turn):
    """The turns of one call. If the losses of the call ask for it, they take all of the device.

    A turn alone is kept until the call ends, so that no other call can be blamed for its effects.
    """

    _was_alone = False

    def __enter__(self) -> None:
        if self._held is not None:
            self.check()
            return
        if self._begins is None:  # the first turn was not alone
            super().__enter__()
            return
        self.check()
        losses = str(self._caller.metadata[LOSSES])
        self.must_be_alone = losses == ALONE
        self.wants_alone = self.must_be_alone or (losses.isdecimal() and int(losses) > 0)
        self._wake = self._wake or threading.Event()
        if self.wants_alone:
            held = self._turns.take_alone(self, must=self.must_be_alone)
        else:
            held = self._turns.take(self)
        self._hold(held or self._wait(self._wake))
        self.wants_alone = self.must_be_alone = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._held is None or not self._held.alone:
            super().__exit__(kind, error, traceback)

    def end(self) -> None:
        """Gives a turn alone back once its caller has the answer, or a second later.

        Without the wait the next call could end the process first, and this one would be blamed.
        """
        held, self._held = self._held, None
        if held is None:
            return
        given_back = threading.Lock()

        def give_back() -> None:
            if given_back.acquire(blocking=False):
                timer.cancel()
                self._turns.give_back(held)

        timer = threading.Timer(_ANSWER_SECONDS, give_back)
        timer.daemon = True
        timer.start()
        if not self._caller.when_over(give_back):
            give_back()

    @property
    def begun(self) -> str:
        """What the caller was told about its first turn."""
        return ALONE if self._was_alone else super().begun

    def _hold(self, grant: Grant) -> None:
        first = self._begins is not None
        super()._hold(grant)
        if first:
            self._was_alone = grant.alone
            self._caller.begins(ALONE if grant.alone else SHARED)
