"""Who gives way where a ledger has no room: the order is the same for whatever it counts.

1. What is idle, whoever has it: of those who hold most, and of theirs what is idle for longest.
2. What those hold who have more than half while somebody with less asks, the newest first. Half
   counts for the tenant. Where the asking tenant has more than half itself, it counts for the
   person among its callers, and then for the connection among those of one person. So more names,
   tokens or connections give nobody more.

A stranger has nothing ended but what strangers hold.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from npucall_server.accounts.ledger import Entry, Holder

IDLE_SECONDS = 1.0
"""What has not been used for this long may be ended for others."""


def path_of(holder: Holder, top: Holder | None = None) -> list[Holder]:
    """The holders above one, and itself: from the one below all, or below ``top``."""
    found: list[Holder] = []
    node: Holder | None = holder
    while node is not None and node is not top:
        found.insert(0, node)
        node = node.parent
    return found if top is not None else found[1:]


def is_greedy(asking: Entry) -> bool:
    """Whether the tenant would have more than half, or an owner who has none."""
    first = path_of(asking.holder)[0]
    return first.used + asking.amount > asking.holder.ledger.limit // 2


def who_gives_way(
    asking: Entry, full: Holder, owners: Iterable[Holder], waiting: Iterable[Entry]
) -> list[Entry] | None:
    """Enough of what ``full`` holds that can be ended, beside what was told to leave before.

    None if not enough can be ended.
    """
    strangers = asking.holder.ledger.strangers
    within = strangers if is_below(asking.holder, strangers) else full
    holders = [owner for owner in owners if owner.entries and is_below(owner, within)]
    held = [entry for holder in holders for entry in holder.entries]
    wanted = asking.amount + sum(each.amount for each in waiting if is_below(each.holder, full))
    missing = full.used + wanted - full.limit - sum(each.amount for each in held if each.leaving)
    ending: dict[Entry, None] = {}
    for entry in chain(_idle(held), _of_greedy(asking, within, holders)):
        if missing <= 0:
            break
        if entry.yields is not None and not entry.leaving and entry not in ending:
            ending[entry] = None
            missing -= entry.amount
    if missing > 0:
        return None
    for entry in ending:
        entry.leaving = True
    return list(ending)


def is_below(holder: Holder, top: Holder) -> bool:
    """Whether a holder is ``top``, or one of those below it."""
    node: Holder | None = holder
    while node is not None and node is not top:
        node = node.parent
    return node is top


def _idle(held: Iterable[Entry]) -> list[Entry]:
    """Of those with most first."""
    limit = time.monotonic() - IDLE_SECONDS
    found = [each for each in held if each.idle_since is not None and each.idle_since <= limit]
    return sorted(found, key=_idle_order)


def _idle_order(entry: Entry) -> tuple[list[int], float | None]:
    return [-node.used for node in path_of(entry.holder)], entry.idle_since


def _of_greedy(asking: Entry, full: Holder, holders: Sequence[Holder]) -> Iterator[Entry]:
    """What those hold who have more than half of what they share with the asking one."""
    most_first = sorted(holders, key=lambda each: each.used, reverse=True)
    paths = {holder: path_of(holder, full) for holder in most_first}
    shared = full.limit
    for depth, own in enumerate(path_of(asking.holder, full)):
        if own.used + asking.amount <= shared // 2:
            for holder, path in paths.items():
                is_other = own not in path and own.parent in (full, *path)
                if is_other and path[depth].used > shared // 2:
                    yield from reversed(holder.entries)
            return
        shared = own.used
    sums: Counter[str] = Counter()
    for entry in asking.holder.entries:
        sums[entry.peer] += entry.amount
    if sums[asking.peer] + asking.amount <= shared // 2:
        for entry in reversed(asking.holder.entries):
            if entry.peer != asking.peer and sums[entry.peer] > shared // 2:
                yield entry
