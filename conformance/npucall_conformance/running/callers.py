"""Several threads that ask a server at once."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

Item = TypeVar("Item")
Found = TypeVar("Found")

CALLERS = 8
"""So many threads call at once in cases about that."""
_AHEAD = 4
"""For each thread, so many items are begun before the first result has been taken."""


@cache
def callers() -> ThreadPoolExecutor:
    """``CALLERS`` threads. They are kept, since starting one takes longer than a small call."""
    return ThreadPoolExecutor(CALLERS, "caller")


def in_order(
    work: Callable[[Item], Found],
    items: Iterable[Item],
    threads: int,
    *,
    alone: Callable[[Item], bool],
) -> Iterator[Found]:
    """The results of the work, in the order of the items, while threads do the next items.

    No other item is worked on together with one that has to be alone. If there is one thread, it is
    the current one.
    """
    if threads == 1:
        yield from map(work, items)
        return
    begun: deque[Future[Found]] = deque()
    pool = ThreadPoolExecutor(threads, "case")
    try:
        for item in items:
            if alone(item):
                yield from _taken(begun, 0)
                yield work(item)
                continue
            begun.append(pool.submit(work, item))
            yield from _taken(begun, _AHEAD * threads)
        yield from _taken(begun, 0)
    finally:
        pool.shutdown(cancel_futures=True)


def _taken(begun: deque[Future[Found]], left: int) -> Iterator[Found]:
    """The first results, until only so many are left."""
    while len(begun) > left:
        yield begun.popleft().result()
