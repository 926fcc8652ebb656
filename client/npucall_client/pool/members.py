"""A member of a pool, as a source lists it, and what a source is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.errors import NpucallError


class MemberState(Enum):
    """Whether calls may go to a member."""

    SERVING = "serving"
    DRAINING = "draining"
    SUSPECT = "suspect"


class Load(NamedTuple):
    """How busy a member said it was."""

    running: int
    waiting: int
    lanes: int
    bytes_in_flight: int
    reserved: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A server of a pool. A source leaves empty what it does not know; the client then asks."""

    address: str
    """HOST:PORT."""
    server_name: str = ""
    """The name that its certificate has to have; empty: HOST."""
    instance: str = ""
    """The id of the process; it changes with each restart."""
    host: str = ""
    """The machine, which several members may share; empty: HOST."""
    device: str = ""
    soc: str = ""
    product: str = ""
    version: str = ""
    catalogue: int = 0
    """Members with the same number have the same operators; 0: unknown."""
    memory_limit: int = 0
    """Bytes that its calls may hold; 0: unknown."""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: MemberState = MemberState.SERVING
    load: Load | None = None
    """None if the source does not know it."""
    slowed: int = 0
    """Callers whose calls ended processes there, and go one at a time now."""

    @property
    def is_leaving(self) -> bool:
        """Whether it takes no calls any longer."""
        return self.state is MemberState.DRAINING


class Update(Protocol):
    """A function that a source calls with its members, from any thread."""

    def __call__(self, members: Sequence[Member], *, complete: bool) -> object:
        """``members``: all that it lists now. Not ``complete``: there may be others."""


class Source(Protocol):
    """Where the members of a pool come from."""

    def start(self, update: Update) -> None:
        """Tells ``update`` what it lists: at once if it can, and whenever that changes."""

    def look(self) -> None:
        """A member failed, so the list may have changed: looks again soon. Returns at once."""

    def why_empty(self) -> str:
        """Why it lists no members, as text for an error; empty if there is no reason."""

    def refusal(self) -> NpucallError | None:
        """The error if it was refused and waiting does not help; else None."""

    def close(self) -> None:
        """Ends its threads."""
