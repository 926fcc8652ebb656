"""The blocks of one call on several threads: idle threads help."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Generic, Protocol, TypeVar

from npucall.compute.blas import one_thread
from npucall.compute.quiet import quietly
from npucall.errors import InternalError

_FEW = 4
"""Blocks of a call that may be done before a helper wakes up; the first is computed without
help."""
_AHEAD = 4
"""Blocks of a thread that may wait until an earlier one is added."""

B = TypeVar("B")
R = TypeVar("R")


class Turn(Protocol):
    """Gives the right to compute a block, again and again: ``with turn(): ...``."""

    def __call__(self) -> AbstractContextManager[object]:
        """Waits for the right, and holds it."""

    def spare(self) -> AbstractContextManager[object] | None:
        """One more right at the same time, taken at once; None if there is none, or others wait.

        The caller that gets it must enter and leave it.
        """

    def pause(self) -> None:
        """Called while the right is held for long: now and then lets waiting callers have it.

        Raises what ends the call; leaving then gives back the right if it is still held.
        """


class Unlimited:
    """As many turns as needed."""

    def __call__(self) -> AbstractContextManager[object]:
        return _AT_ONCE

    spare = __call__

    def pause(self) -> None:
        """Nobody waits."""


UNLIMITED = Unlimited()
"""For a caller that shares with nobody."""


class HeldTurn:
    """The turns of a caller that already holds one: its calls compute within that turn."""

    def __init__(self, turn: Turn) -> None:
        self.spare, self.pause = turn.spare, turn.pause

    def __call__(self) -> AbstractContextManager[object]:
        """It is held already."""
        return _AT_ONCE


class _Pausing(HeldTurn):
    """The same, which lets waiting callers in before each block."""

    def __call__(self) -> AbstractContextManager[object]:
        self.pause()
        return _AT_ONCE


_AT_ONCE = nullcontext()


class Sharing:
    """What a formula that gets everything at once does with others: lets them in, gets help."""

    def __init__(self, turn: Turn, helpers: Helpers | None = None) -> None:
        self.pause = turn.pause
        self.each = partial(_each, turn, helpers)
        """``Facts.each`` within the turn that the caller holds, with help if there is any."""


def _each(
    turn: Turn,
    helpers: Helpers | None,
    blocks: Sequence[B],
    compute: Callable[[B], R],
    add: Callable[[B, R], None],
) -> None:
    with one_thread():
        if helpers and helpers.count:
            shared = SharedBlocks(blocks, lambda block: quietly(compute, block), add)
            shared.run(_Pausing(turn), helpers)
            return
        for block in blocks:
            turn.pause()
            add(block, compute(block))


class Helpers:
    """Threads that compute blocks of others' calls while they have nothing else to do."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle = threading.Semaphore(count)
        self._threads = ThreadPoolExecutor(max(count, 1), "npucall-helper")

    def engage(self) -> bool:
        """Whether one is idle; if so, the caller must then call ``tell`` or ``dismiss``."""
        return self._idle.acquire(blocking=False)

    def tell(self, work: Callable[[], None]) -> Future[None]:
        """Makes an engaged one do something; then it is idle again."""
        return self._threads.submit(self._do, work)

    def dismiss(self) -> None:
        """Gives back an engaged one without work."""
        self._idle.release()

    def close(self) -> None:
        """Ends the threads, once no call is left."""
        self._threads.shutdown()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._idle.release()


class SharedBlocks(Generic[B, R]):
    """The blocks of one call, computed by the calling thread and by helpers.

    ``compute`` is called with each block, in several threads at the same time; ``add`` with each
    block and what it gave, once at a time and in the order of the blocks. A thread computes only a
    few blocks ahead, so few blocks wait to be added.
    """

    def __init__(
        self, blocks: Sequence[B], compute: Callable[[B], R], add: Callable[[B, R], None]
    ) -> None:
        self._blocks, self._compute, self._add = blocks, compute, add
        self._lock = threading.Lock()
        self._advanced = threading.Condition(self._lock)
        self._claimed = self._added = 0
        self._ahead = _AHEAD
        self._parts: dict[int, R] = {}
        self._failures: dict[int, Exception] = {}
        self._help: list[Future[None]] = []

    def run(self, turn: Turn, helpers: Helpers) -> None:
        """Computes them all. Raises what ``turn`` does, or the first block that failed."""
        self._ahead = _AHEAD * (1 + helpers.count)
        try:
            while (number := self._claim(wait=True)) is not None:
                with turn():
                    if number or len(self._blocks) > _FEW:
                        self._call_for_help(turn, helpers)
                    self._do(number)
        finally:
            self._stop()
            for help_ in self._help:
                help_.exception()  # waits; failures of blocks are kept apart
        if self._failures:
            raise self._failures[min(self._failures)]
        if self._added != len(self._blocks):
            raise InternalError(
                f"blocks: the formula computed {self._added} of {len(self._blocks)}; the memory of "
                "the others still holds what earlier calls freed"
            )

    def _claim(self, *, wait: bool) -> int | None:
        """The next block, for this thread only; None if there is none, or none yet."""
        with self._lock:
            while self._claimed < len(self._blocks) and self._is_far_ahead():
                if not wait:
                    return None
                self._advanced.wait()
            number = self._claimed
            if number == len(self._blocks):
                return None
            self._claimed += 1
            return number

    def _is_far_ahead(self) -> bool:
        return self._claimed - self._added >= self._ahead

    def _stop(self) -> None:
        with self._lock:
            self._claimed = len(self._blocks)
            self._advanced.notify_all()

    def _call_for_help(self, turn: Turn, helpers: Helpers) -> None:
        while self._claimed < len(self._blocks) and helpers.engage():
            spare = turn.spare()
            if spare is None:
                helpers.dismiss()
                return
            self._help.append(helpers.tell(partial(self._assist, turn, spare)))

    def _assist(self, turn: Turn, spare: AbstractContextManager[object] | None) -> None:
        """What a helper does, as long as there are blocks and further turns."""
        while spare is not None:
            with spare:
                number = self._claim(wait=False)
                if number is None:
                    return
                self._do(number)
            spare = turn.spare()

    def _do(self, number: int) -> None:
        try:
            part = self._compute(self._blocks[number])
            with self._lock:
                self._parts[number] = part
                while self._added in self._parts:
                    ready = self._added
                    self._add(self._blocks[ready], self._parts.pop(ready))
                    self._added += 1
                self._advanced.notify_all()
        except Exception as error:  # noqa: BLE001  # run raises it, in the caller's thread
            self._failures[number] = error
            self._stop()
