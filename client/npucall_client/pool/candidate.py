"""A member as one client knows it."""

from __future__ import annotations

from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from npucall_client.pool.picking import work_of

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_client.pool.members import Member
    from npucall_client.sending.senders import Lock

T = TypeVar("T")


class Candidate(Generic[T]):
    """A member as one client knows it. ``link``: what the client opened to it."""

    __slots__ = (
        "address", "asked", "busy_until", "errors", "failed_at", "failure", "lanes", "link",
        "member", "opened", "opening", "order", "others", "own", "rest", "rests_until", "work",
    )  # fmt: skip

    def __init__(self, member: Member, opening: Lock) -> None:
        self.address = member.address
        self.member = member
        self.link: T | None = None
        self.opened: str | None = None
        """The process that has said over the link what it is."""
        self.opening = opening
        """A lock, held by the task that opens the link, or asks the member again what it is."""
        self.order = random()  # noqa: S311  # differs in each client, so that they spread
        self.own = 0.0
        """The cost of this client's calls that are under way there."""
        self.others = 0.0
        """The cost of other clients' calls, as the member last said."""
        self.lanes = 1
        self.work = 0.0
        """How much it has to do, for each of its lanes."""
        self.rest = 0.0
        """Seconds that it last had to rest; 0 once it has answered a call."""
        self.rests_until = 0.0
        """It failed: it gets no calls until it says that it serves; it is asked after this time."""
        self.failed_at = 0.0
        self.asked = False
        """Whether the client is asking it what it is, and if it serves."""
        self.errors = 0
        """Its own errors in a row."""
        self.busy_until = 0.0
        """Until then other members may answer sooner, as it said itself."""
        self.failure: NpucallError | None = None
        """The error of the last attempt, if that failed."""

    @property
    def is_proved(self) -> bool:
        """Whether the process that runs there has itself said what it is."""
        return self.link is not None and self.opened == self.member.instance

    @property
    def has_another(self) -> bool:
        """Whether a source has heard of another process there than the one that said so."""
        return self.link is not None and not self.is_proved and not self.rests_until

    @property
    def lives(self) -> bool:
        """Whether it has proved what it is, and has not failed since."""
        return not self.rests_until and self.is_proved

    @property
    def host(self) -> str:
        """The machine, or the host of the address if the machine is not known."""
        return self.member.host or self.address.rpartition(":")[0]

    def hear(self, member: Member) -> None:
        """Takes what the source says now; of what the member has said itself, its own word."""
        known = self.member
        if self.is_proved and member.instance in ("", known.instance):
            member = replace(
                known,
                server_name=member.server_name,
                labels={**member.labels, **known.labels},
                state=member.state,
                load=member.load or known.load,
            )
        elif member.instance != known.instance:
            self.rests_until = self.rest = 0.0  # it has been started again
            self.errors = 0
        self.member = member
        if member.load is not None:
            self.lanes = max(1, member.load.lanes)
            self.others = max(0.0, work_of(member.load) - self.own)
        self.weigh()

    def weigh(self) -> None:
        """Computes again how much it has to do."""
        self.work = (self.own + self.others) / self.lanes
