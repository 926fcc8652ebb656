"""A member as one client knows it."""

from __future__ import annotations

from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from npucall_client.pool.picking import work_of

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_client.pool.members import Member
    from npucall_client.senders import Lock

T = TypeVar("T")


class Candidate(Generic[T]):
    """A member as one client knows it. ``link``: what the client opened to it."""

    __slots__ = (
        "address", "asked", "busy_until", "failure", "lanes", "link", "member", "opened", "opening",
        "order", "others", "own", "rest", "rests_until", "work",
    )  # fmt: skip

    def __init__(self, member: Member, opening: Lock) -> None:
        self.address = member.address
        self.member = member
        self.link: T | None = None
        self.opened = ""
        """The instance that the link knows."""
        self.opening = opening
        """Held by who opens the link, or asks again what the member is."""
        self.order = random()  # noqa: S311  # another one in each client, so that they spread
        self.own = 0.0
        """What calls of this client cost that are under way there."""
        self.others = 0.0
        """What those of others cost, as the member last said."""
        self.lanes = 1
        self.work = 0.0
        """What it has to do, for each of its lanes."""
        self.rest = 0.0
        self.rests_until = 0.0
        """It failed: it is not called before that, and only once it has said that it serves."""
        self.asked = False
        """Somebody asks it whether it serves."""
        self.busy_until = 0.0
        """It said that others may answer sooner."""
        self.failure: NpucallError | None = None
        """Of the last attempt, where that failed."""

    @property
    def host(self) -> str:
        """The machine, or what is known of it."""
        return self.member.host or self.address.rpartition(":")[0]

    def hear(self, member: Member) -> None:
        """What the source says now, where it says it; the rest stays as the member itself said."""
        known = self.member
        if member.instance in ("", known.instance) and not member.soc:
            member = replace(
                known,
                server_name=member.server_name,
                labels={**known.labels, **member.labels},
                state=member.state,
                load=member.load or known.load,
            )
        elif member.instance != known.instance:
            self.rests_until = self.rest = 0.0  # it has been started again
        self.member = member
        if member.load is not None:
            self.lanes = max(1, member.load.lanes)
            self.others = max(0.0, work_of(member.load) - self.own)
        self.weigh()

    def weigh(self) -> None:
        """Finds out anew what it has to do."""
        self.work = (self.own + self.others) / self.lanes
