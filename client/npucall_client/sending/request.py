"""What belongs to one call, as one value that is passed down. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from npucall_client.calls.arguments import BoundCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall_client.calls.tensors import HeldTensor, Home


class Request(NamedTuple):
    """A call, or another question to a server: never changed; ``_replace`` makes another one."""

    timeout: float
    """Seconds until it fails, further attempts included."""
    request_id: str = ""
    reservation: str = ""
    """The key of the reservation under which it runs."""
    waits: bool = True
    """Whether it waits for a server that is full."""
    name: str = ""
    """Its operator, or its method, for errors."""
    call: BoundCall = BoundCall("")
    """The call; one without an operator if it is another question."""
    home: Home | None = None
    """The session whose handles it uses, which is opened again if it may be."""
    held: Sequence[HeldTensor] = ()
    """The tensors of that session that it uses."""
    session: str = ""
    """The id of a session that is not to be opened again for it."""
    once: bool = False
    """Whether it ends with its first attempt, except for another credential or a quota."""

    @property
    def session_id(self) -> str:
        """The id of its session now; empty if it has none."""
        return self.session if self.home is None else self.home.id
