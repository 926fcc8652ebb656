"""A member of a pool, as a source lists it, and what a source is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.errors import NpucallError


class State(Enum):
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
    """A server of a pool. What a source does not know is left empty, and the server is asked."""

    address: str
    """HOST:PORT."""
    server_name: str = ""
    """The name that its certificate has to have; empty: HOST."""
    instance: str = ""
    """Of the process; another one after each restart."""
    host: str = ""
    """The machine, which its members share; empty: HOST."""
    device: str = ""
    soc: str = ""
    product: str = ""
    version: str = ""
    catalogue: int = 0
    """Members with the same number have the same operators; 0: unknown."""
    memory_limit: int = 0
    """Bytes that its calls may hold; 0: unknown."""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: State = State.SERVING
    load: Load | None = None
    """None where the source does not know."""


class Update(Protocol):
    """Hears what a source lists, from any thread."""

    def __call__(self, members: Sequence[Member], *, complete: bool) -> object:
        """``members``: all that it lists now. Not ``complete``: there may be others."""


class Source(Protocol):
    """Where the members of a pool come from."""

    def start(self, update: Update) -> None:
        """Tells ``update`` what it lists, at once where it can, and whenever that changes."""

    def look(self) -> None:
        """A member failed: what it lists may have changed. Returns at once."""

    def why_empty(self) -> str:
        """What kept it from listing members, for an error; empty where nothing did."""

    def refusal(self) -> NpucallError | None:
        """What it is refused for, where waiting does not help; None where nothing is."""

    def close(self) -> None:
        """Ends its threads."""
