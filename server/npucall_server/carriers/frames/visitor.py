"""Who is at the other end of a connection of frames, and whether that is still so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import CredentialExpiredError
from npucall.wire.status import AUTHORIZATION
from npucall_server.access.guard import NAMES, PEM, check_method
from npucall_server.access.identity import anybody
from npucall_server.carriers.multiplex.call import StreamCaller
from npucall_server.carriers.peers import Visitor
from npucall_server.telemetry.log import FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall_server.access.guard import Guard, ProvedPeer

METHOD = "Frames"
"""The log has this where a connection as a whole is refused."""


class FrameVisitor(Visitor):
    """Anybody, until it is introduced.

    ``of_user``: gives the credential of the user who connected, empty if it has none. ``end`` ends
    the connection.
    """

    carrier = FRAMES

    def __init__(
        self, peer: str, guard: Guard, of_user: Callable[[], str], end: Callable[[], None]
    ) -> None:
        self.peer, self.identity = peer, anybody(peer)
        self.owner = self.identity.owner
        self.metadata: dict[str, str | bytes] = {}
        self.request_id = ""
        self.time_remaining: Callable[[], float | None] = lambda: None
        self.is_doubted = False
        """Whether its credential may no longer be good, so that each call has to look."""
        self.certificate: tuple[Sequence[bytes], bytes] | None = None
        """Its names, and all of it as PEM."""
        self._guard, self._of_user = guard, of_user
        whole = StreamCaller(self, "", None)
        self.is_active, self.add_callback = whole.is_active, whole.add_callback
        self.cancel = whole.cancel
        self.add_callback(end)

    @property
    def connection(self) -> ProvedPeer:  # type: ignore[override]  # kept, it would be a cycle
        """It says itself what TLS has proved."""
        return self

    def peer_identities(self) -> Sequence[bytes] | None:
        """The names in its certificate, if it has shown one."""
        return self.certificate[0] if self.certificate is not None else None

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """The certificate, by gRPC's keys."""
        if self.certificate is None:
            return {}
        names, pem = self.certificate
        return {NAMES: names, PEM: [pem]}

    def introduce(self, authorization: str, client: int = 0) -> None:
        """Finds out who is there. Raises UnauthenticatedError and PermissionDeniedError.

        ``client``: connections of a host with the same one are of one caller, if nobody has to
        show who he is; 0: each is of another one.
        """
        if authorization:
            self._of_user = str
        if authorization := authorization or self._of_user():
            self.metadata[AUTHORIZATION] = authorization
        peer = self.peer
        if client and not peer.startswith("unix:"):  # there the system tells the process
            peer = f"{peer.rpartition(':')[0]}:0{client}"  # no port begins so
        self.identity = who = self._guard.identify(peer, self.metadata, self)
        self.owner = who.owner
        check_method(who, METHOD)

    def renew(self, authorization: str) -> None:
        """The same caller proves again who it is. Raises UnauthenticatedError."""
        self.identity = self._guard.renew(self.identity, authorization)
        self.is_doubted = False

    def check(self) -> None:
        """Raises UnauthenticatedError if its credential is no longer good."""
        try:
            self._guard.check(self.identity)
        except CredentialExpiredError:
            if not (authorization := self._of_user()):
                raise
            self.renew(authorization)
