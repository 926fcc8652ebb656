"""Which kind of members a pool has: that of most of them. The odd ones get no calls. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.errors import MixedPoolError
from npucall_client.pool.picking import none_fits
from npucall_client.targets import ANY

if TYPE_CHECKING:
    from collections.abc import Collection

    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.members import Member
    from npucall_client.pool.picking import Requirements

_log = logging.getLogger("npucall_client")


class MemberKind(NamedTuple):
    """What members have in common whose results are alike."""

    soc: str
    device: str
    """Such as ``cpu`` or ``cann``."""

    def __str__(self) -> str:
        return f"{self.soc} on {self.device or 'unknown'}"


def kind_of(member: Member) -> MemberKind | None:
    """The kind of a member; None if nobody has said what it is."""
    return MemberKind(member.soc, member.device.partition(":")[0]) if member.soc else None


def kind_of_most(members: Collection[Member]) -> MemberKind | None:
    """The kind of more than half of the members whose kind is known; None if there is none."""
    kinds = Counter(kind for each in members if (kind := kind_of(each)) is not None)
    return next((kind for kind, count in kinds.items() if 2 * count > kinds.total()), None)


class Fitting:
    """The members that a client may call: those that fit its wish, and are of one kind."""

    def __init__(self, wish: Requirements) -> None:
        self.wish = wish
        self.kind: MemberKind | None = None
        """That of all members which are called; None before calls begin, and if any may be."""
        self._named: set[str] = set()

    def has(self, member: Member) -> bool:
        """Whether a member fits, as far as the client knows it yet."""
        fits = self.kind is None or kind_of(member) in (None, self.kind)
        return fits and self.wish.allows(member)

    def of(self, known: Collection[Candidate[Any]]) -> list[Candidate[Any]]:
        """Those that fit. Raises NoMemberError if none does."""
        found = [each for each in known if self.has(each.member)]
        if known and not found:
            raise none_fits(self.wish, [each.member for each in known], self.kind)
        return found

    def choose(self, living: Collection[Member], others: Collection[Member]) -> bool:
        """Chooses the kind, if it is certain: most of them have it, also one that has proved it.

        ``living`` have proved what they are; of ``others`` somebody may have said it. The kind is
        kept, so that the results of a client never change. Raises MixedPoolError if no kind is that
        of most members.
        """
        if self.kind is not None or self.wish.soc == ANY:
            return True
        kind = kind_of_most([*living, *others])
        if kind in map(kind_of, living):
            self.kind = kind
            return True
        if not others:
            raise _mixed(living)
        return False

    def name_odd_ones(self, known: Collection[Candidate[Any]]) -> None:
        """Tells the log once of each member of another kind, unless the client wants none such."""
        for each in known:
            kind = kind_of(each.member)
            is_odd = None not in (kind, self.kind) and kind != self.kind
            if is_odd and each.address not in self._named and self.wish.allows(each.member):
                self._named.add(each.address)
                said = f"pool: {each.address} gets no calls: it is {kind}, the pool is {self.kind}"
                _log.warning(said)


def _mixed(members: Collection[Member]) -> MixedPoolError:
    addresses: dict[MemberKind | None, list[str]] = {}
    for member in members:
        addresses.setdefault(kind_of(member), []).append(member.address)
    found = "; ".join(
        f"{kind}: {', '.join(sorted(each)[:3])}"
        for kind, each in sorted(addresses.items(), key=str)
    )
    return MixedPoolError(
        "the pool has several SoCs or kinds of device, and none of them is that of most members "
        f"({found}); their results differ: choose with soc or labels (NPUCALL_SOC, "
        f"NPUCALL_LABELS), or take any with soc={ANY}"
    )
