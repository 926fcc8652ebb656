"""All sessions of a server: opened, found by their ids, ended with their leases."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from npucall.errors import (
    HandleMemoryError,
    MessageError,
    NpucallError,
    QueueFullError,
    SessionExpiredError,
    UnauthenticatedError,
)
from npucall.wire.status import SESSION
from npucall_server import retries
from npucall_server.access.callers import Caller
from npucall_server.access.identity import Identity
from npucall_server.accounts.ledger import Entry, Holder, Ledger, Quota
from npucall_server.devices.base import Device
from npucall_server.retries import refusal
from npucall_server.sessions.handle_room import HandleRoom
from npucall_server.sessions.ids import SECRET_BYTES, SessionIds, unknown
from npucall_server.sessions.monitor import Monitor
from npucall_server.sessions.session import OpenSession
from npucall_server.settings.server import ServerSettings

_KEY_BYTES = 32
_MOST_ENDED, _MOST_ENDED_OF_ONE = 1024, 64
"""How many sessions with an ended lease are remembered: of all owners, and of one owner."""


class SessionLimits(NamedTuple):
    """What sessions may take.

    Each is a setting of the server. If any is 0, there are no sessions.
    """

    handle_memory: int
    max_sessions: int
    session_lease: float

    @classmethod
    def of(cls, settings: ServerSettings, device: Device) -> SessionLimits:
        """The rules of the settings. What they leave out follows from the device and its host."""
        usual = device.memory_for_handles or settings.memory_limit // 2
        memory = int(usual if settings.handle_memory is None else settings.handle_memory)
        return cls(memory, settings.max_sessions, settings.session_lease)

    @property
    def off(self) -> str:
        """The setting that turns sessions off; empty if none does."""
        return next((name for name, limit in self._asdict().items() if not limit), "")


class _Ended(NamedTuple):
    """A session whose lease has ended."""

    owner: str
    at: float


class Sessions:
    """The sessions of one server process. Somebody has to call ``look`` every second.

    ``check`` raises UnauthenticatedError for a caller whose credential is no longer good.
    ``call_timeout``: longest wait for a handle. ``quota``: sessions of a tenant. ``clock`` is
    monotonic.
    """

    def __init__(  # noqa: PLR0913  # all that sessions depend on
        self,
        memory: HandleRoom,
        rules: SessionLimits,
        ids: SessionIds,
        call_timeout: float,
        quota: Quota | None = None,
        check: Callable[[Identity], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory, self.rules = memory, rules
        self._ids, self._call_timeout = ids, call_timeout
        self._check, self._clock = check, clock
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._places = Ledger(rules.max_sessions, _too_many, quota)
        for ledger in (self._places, *memory.ledgers):
            ledger.before_asking = self._tell_idle
        self._open: dict[bytes, tuple[OpenSession, Entry]] = {}
        self._ended: dict[bytes, _Ended] = {}
        self._nobody = secrets.token_bytes(SECRET_BYTES)
        """A missing session is compared with this secret, so that the answer takes as long."""

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, caller: Caller, lease: float = 0.0, budget: int = 0, *, refillable: bool = False
    ) -> OpenSession:
        """Opens a session. 0 asks for the longest lease, or the most bytes, that it can have.

        ``refillable``: its caller can fill all handles again, so it may end for others.

        Raises MessageError, HandleMemoryError if the server has no sessions, QueueFullError and
        QuotaError.
        """
        rules = self.rules
        if rules.off:
            raise _no_sessions(rules.off)
        if not 0 <= lease < float("inf"):
            raise MessageError(f"lease_seconds: expected 0 or more, found {lease:g}")
        self.look()
        identity = caller.identity
        place = self._places.hold(identity.owner, 1, identity.tenant)
        try:
            session = self._opened(identity, lease, budget)
        except BaseException:
            place.give_back()
            raise
        key = self._key_of(session.secret)
        with self._lock:
            self._open[key] = session, place
        session.room.is_refillable = refillable
        session.room.gives_way = place.yields = partial(self._give_way, key, session)
        return session

    def of(self, caller: Caller, handles: Sequence[bytes] = ()) -> OpenSession:
        """The session that a caller's metadata name. Its lease starts again.

        Raises SessionUnknownError (also for sessions of others), SessionExpiredError,
        WrongServerError and HandleLostError, which names ``handles``.
        """
        key, session = self._find(caller, handles)
        if session is None:
            raise self._refusal(key, caller)
        if not session.renew(caller.identity):
            self._expire(key, session)
            session.check_open()
        return session

    def close(self, caller: Caller) -> None:
        """Ends the session that a caller's metadata name, if there is one."""
        key, session = self._find(caller)
        if session is not None and session.end(unknown):
            self._forget(key)

    def look(self) -> None:
        """Ends sessions whose lease has ended, or whose caller's credential is no longer good."""
        with self._lock:
            found = [(key, session) for key, (session, _) in self._open.items()]
        for key, session in found:
            if session.is_due or not self._is_known(session.identity):
                self._expire(key, session)

    def _give_way(self, key: bytes, session: OpenSession) -> bool:
        """Ends a session for others, unless a call uses it."""
        at, clock = self._clock(), self._clock
        ended = session.end(lambda: _expired(clock() - at), only_idle=True)
        if ended:
            self._forget(key, _Ended(session.owner, at))
        return ended

    def _tell_idle(self) -> None:
        """Tells ledgers which sessions can end, and since when those are idle that may for all."""
        for session, place in tuple(self._open.values()):
            room, idle = session.room, session.idle_seconds
            since = None if idle is None else time.monotonic() - idle
            place.yields = None if idle is None else room.gives_way
            place.idle_since = since if room.is_refillable or not room.allocations else None
            room.tell_idle(since, is_used=idle is None)

    def end_all(self) -> None:
        """Ends every session. To be called before the device is closed, which has their memory."""
        with self._lock:
            found = [(key, session) for key, (session, _) in self._open.items()]
        for key, session in found:
            if session.end(unknown):
                self._forget(key)

    def _opened(self, identity: Identity, lease: float, budget: int) -> OpenSession:
        most, setting = self.rules.handle_memory, "handle_memory"
        if 0 < budget < most:
            most, setting = budget, "budget_bytes of OpenSession"
        room = self.memory.open(identity, most, setting)
        name, secret = self._ids.new()
        longest = self.rules.session_lease
        return OpenSession(
            name, secret, _owner(identity), identity, min(lease or longest, longest), room,
            Monitor(self._call_timeout), self._clock,
        )  # fmt: skip

    def _find(
        self, caller: Caller, handles: Sequence[bytes] = ()
    ) -> tuple[bytes, OpenSession | None]:
        """The key of the caller's session, and the session if it is open."""
        text = caller.metadata.get(SESSION, "")
        secret = self._ids.secret_in(text if isinstance(text, str) else "", handles)
        key = self._key_of(secret)
        found = self._open.get(key)
        session = found[0] if found is not None else None
        is_secret = compare_digest(secret, self._nobody if session is None else session.secret)
        is_owner = _is_of(caller, "" if session is None else session.owner)
        return key, session if is_secret and is_owner else None

    def _refusal(self, key: bytes, caller: Caller) -> NpucallError:
        """The error for a session that is not open."""
        ended = self._ended.get(key)
        if _is_of(caller, "" if ended is None else ended.owner) and ended is not None:
            return _expired(self._clock() - ended.at)
        return unknown()

    def _expire(self, key: bytes, session: OpenSession) -> None:
        """Ends a session whose lease has ended, unless a call uses it, and remembers it."""
        at, clock = self._clock(), self._clock
        ended = session.end(lambda: _expired(clock() - at), only_idle=True)
        if ended:
            self._forget(key, _Ended(session.owner, at))

    def _forget(self, key: bytes, ended: _Ended | None = None) -> None:
        """The session is no longer open. ``ended``: what is remembered of it."""
        with self._lock:
            if ended is not None:
                self._remember(key, ended)
            _, place = self._open.pop(key)
        place.give_back()

    def _remember(self, key: bytes, ended: _Ended) -> None:
        self._ended[key] = ended
        own = [each for each, other in self._ended.items() if other.owner == ended.owner]
        if len(own) > _MOST_ENDED_OF_ONE:
            del self._ended[own[0]]
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _is_known(self, identity: Identity) -> bool:
        try:
            self._check(identity)
        except UnauthenticatedError:
            return False
        return True

    def _key_of(self, secret: bytes) -> bytes:
        """The key of a session in the table.

        The time to find it then tells nothing of its secret.
        """
        return blake2b(secret, key=self._key, digest_size=_KEY_BYTES).digest()


def _owner(identity: Identity) -> str:
    """Who may use a session: a person; without tenants, anybody who has its id."""
    return identity.person if identity.tenant else ""


def _is_of(caller: Caller, owner: str) -> bool:
    return compare_digest(_owner(caller.identity).encode(), owner.encode())


def _expired(seconds: float) -> SessionExpiredError:
    return SessionExpiredError(
        f"the session ended {seconds:.1f} s ago, with its lease or because others asked for its "
        "room; open another session and fill its handles again",
        expired_seconds=f"{seconds:.1f}",
    )


def _too_many(places: Holder, _: int) -> QueueFullError:
    sentence = f"all sessions of the server are in use (max_sessions = {places.limit})"
    return refusal(
        QueueFullError, sentence, retries.SESSION, limit=places.limit, setting="max_sessions"
    )


def _no_sessions(setting: str) -> HandleMemoryError:
    return HandleMemoryError(
        f"the server allows no sessions: its setting {setting} is 0",
        limit="0",
        held="0",
        wanted="0",
        setting=setting,
    )
