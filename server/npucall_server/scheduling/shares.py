"""Who is next: start-time fair queueing between classes, their tenants, and their callers.

There is no clock and no thread here. A share is a class, a tenant or a caller among its siblings.
Its tag is the seconds that it was charged, divided by its weight. Of the shares that want
something, the one with the lowest tag is next. Then the same rule picks one of its children. A
share that was idle starts where its siblings are: it has saved nothing meanwhile. Its debts to its
siblings are forgotten once none of them wants anything.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

INTERACTIVE, BATCH = "interactive", "batch"
CLASS_WEIGHTS = {INTERACTIVE: 9.0, BATCH: 1.0}
"""Interactive goes first: batch gets a tenth while both want something. Alone it gets all."""
_MANY_IDLE = 64
"""Children of one share that may be remembered though they are idle and owe nothing."""

Path = tuple[tuple[str, float], ...]
"""Names and weights, from the class down to the caller."""


class Share(Generic[T]):
    """A class, a tenant, or a caller; the root is all of them."""

    __slots__ = (
        "active", "children", "clock", "last_seconds", "name", "order", "parent", "queue", "tag",
        "waiting", "weight",
    )  # fmt: skip

    def __init__(self, name: str, parent: Share[T] | None, weight: float) -> None:
        self.name, self.parent, self.weight = name, parent, weight
        self.tag = 0.0
        self.clock = 0.0
        """The tag of the child that was served last."""
        self.order = 0
        """Among those with the same tag, the lowest is next."""
        self.children: dict[str, Share[T]] = {}
        self.queue: deque[T] = deque()
        """Of a caller: what it wants, in order."""
        self.waiting = 0
        """In the queues below, or its own."""
        self.active = 0
        """What waits or is served, below or here."""
        self.last_seconds = 0.0
        """What a caller was charged last. Its next turn is expected to take as long."""


class Shares(Generic[T]):
    """All shares. What is wanted is queued at a caller; ``next`` answers what is served next."""

    def __init__(self) -> None:
        self.all: Share[T] = Share("", None, 1.0)
        """The root: it counts all that wait or are served."""
        self._orders = itertools.count(1)

    def everything_waiting(self) -> list[T]:
        """All that is wanted."""
        shares, found = [self.all], list[T]()
        while shares:
            share = shares.pop()
            found += share.queue
            shares += share.children.values()
        return found

    def of(self, path: Path) -> Share[T]:
        """The share at the end of a path; made if it is not there."""
        share = self.all
        for name, weight in path:
            child = share.children.get(name) or self._add(share, name, weight)
            child.weight = weight
            share = child
        return share

    def serve(self, share: Share[T]) -> None:
        """It is served at once, without waiting."""
        self._activate(share)

    def queue(self, share: Share[T], wish: T) -> None:
        """Queues a wish after the wishes that the share already has."""
        self._activate(share)
        share.queue.append(wish)
        self._count_waiting(share, 1)

    def withdraw(self, share: Share[T], wish: T) -> bool:
        """Removes a wish from the queue; False if it is not there."""
        if wish not in share.queue:
            return False
        share.queue.remove(wish)
        self._count_waiting(share, -1)
        self.leave(share)
        return True

    def next(self) -> T | None:
        """Takes the wish that is served next; None if nobody waits."""
        if not self.all.waiting:
            return None
        share = self.all
        while share.children:
            wanting = [child for child in share.children.values() if child.waiting]
            child = min(wanting, key=_urgency)
            share.clock = max(share.clock, child.tag)
            child.order = next(self._orders)
            share = child
        wish = share.queue.popleft()
        self._count_waiting(share, -1)
        return wish

    def charge(self, share: Share[T], seconds: float) -> None:
        """Charges a share. A negative number gives back what was charged too much."""
        node: Share[T] | None = share
        while node is not None:
            node.tag += seconds / node.weight
            node = node.parent

    def leave(self, share: Share[T]) -> None:
        """What was served has ended."""
        node: Share[T] | None = share
        while node is not None:
            node.active -= 1
            if not node.active:  # no debts are left below it
                node.children.clear()
                node.clock = 0.0
            node = node.parent

    def _add(self, parent: Share[T], name: str, weight: float) -> Share[T]:
        children = parent.children
        if len(children) > _MANY_IDLE:
            idle = [c.name for c in children.values() if not c.active and c.tag <= parent.clock]
            if len(idle) > _MANY_IDLE:
                for each in idle:
                    del children[each]
        child = children[name] = Share(name, parent, weight)
        return child

    def _activate(self, share: Share[T]) -> None:
        node = share
        while (parent := node.parent) is not None:
            if not node.active:
                node.tag = max(node.tag, parent.clock)
                node.order = next(self._orders)
            node.active += 1
            node = parent
        node.active += 1

    def _count_waiting(self, share: Share[T], number: int) -> None:
        node: Share[T] | None = share
        while node is not None:
            node.waiting += number
            node = node.parent


def _urgency(share: Share[T]) -> tuple[float, int]:
    return share.tag, share.order
