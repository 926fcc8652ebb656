"""A thread on which others rely says so before it waits: then another one takes its place."""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Own(threading.local):
    before: Callable[[], object] | None = None
    """What this thread does before it waits."""


_own = _Own()


def rely_on_this_thread(before: Callable[[], object] | None) -> None:
    """Until it waits: then it calls this, once. None: nobody relies on it any more."""
    _own.before = before


def about_to_wait() -> None:
    """To be called before this thread waits for another one, or for bytes."""
    before, _own.before = _own.before, None
    if before is not None:
        before()
