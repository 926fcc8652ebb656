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
"""That call at once where a case is about that."""
_AHEAD = 4
"""Items for each thread that are begun before the first has been taken."""


@cache
def callers() -> ThreadPoolExecutor:
    """So many threads. They are kept, since to start one takes longer than a small call."""
    return ThreadPoolExecutor(CALLERS, "caller")


def in_order(
    work: Callable[[Item], Found],
    items: Iterable[Item],
    threads: int,
    *,
    alone: Callable[[Item], bool],
) -> Iterator[Found]:
    """What the work finds of each item, in their order, while threads are ahead with the next.

    Nothing else is worked on beside an item that is to be alone. One thread is this one.
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
    """The first ones, until so many are left."""
    while len(begun) > left:
        yield begun.popleft().result()
