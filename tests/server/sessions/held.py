"""Sessions of a server in this process, on a clock that the test moves, and who uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.server.scripted import PATIENCE, ScriptedCaller, ScriptedDevice, VirtualClock, ledger

from npucall.errors import OutOfMemoryError
from npucall.places import HandlePart
from npucall.wire.status import SESSION
from npucall_server.access.identity import Identity, KnownBy, Role
from npucall_server.access.tenants import Tenant, Tenants
from npucall_server.devices.host_memory import HostResident
from npucall_server.quotas import Quotas
from npucall_server.sessions.ids import Ids
from npucall_server.sessions.room import HandleMemory
from npucall_server.sessions.sessions import Rules, Sessions
from npucall_server.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.ledger import Ledger
    from npucall_server.sessions.session import Session

PLACE, INSTANCE = "00112233", "0123456789ab"
A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
ONE, TWO = b"1" * 32, b"2" * 32
LEASE = 60.0


class Memory(HostResident):
    """What a handle holds, and whether it was freed."""

    freed = 0

    def free(self) -> None:
        self.freed += 1
        super().free()


class Device(ScriptedDevice):
    """Remembers all that it allocated; ``has`` is how many bytes it has."""

    has = 1 << 40

    def __init__(self, own_memory: int = 0) -> None:
        super().__init__()
        self.own_memory = own_memory
        self.memories: list[Memory] = []

    @property
    def memory_for_handles(self) -> int:
        return self.own_memory

    def allocate(self, nbytes: int, dtype: Any = None) -> Memory:
        if self.live + nbytes > self.has:
            raise OutOfMemoryError("device: out of memory")
        self.memories.append(Memory(nbytes))
        return self.memories[-1]

    @property
    def live(self) -> int:
        """Bytes that are not freed."""
        assert all(memory.freed <= 1 for memory in self.memories)
        return sum(len(memory.memory) for memory in self.memories if not memory.freed)


class Held:
    """The sessions, and all that they count in."""

    def __init__(
        self,
        rules: Rules = Rules(1 << 30, 1 << 30, 8, LEASE),  # noqa: B008  # a tuple
        device: Device | None = None,
        host: Ledger | None = None,
        tenants: dict[str, dict[str, object]] | None = None,
        call_timeout: float = PATIENCE,
        check: Callable[[Identity], None] = lambda _: None,
    ) -> None:
        self.clock = VirtualClock()
        self.device, self.host = device or Device(), host or ledger()
        tables = {name: Tenant.model_validate(table) for name, table in (tenants or {}).items()}
        self.quotas = Quotas(Tenants(tables), Usage())
        self.memory = HandleMemory(self.device, rules.handle_memory, self.host, self.quotas)
        self.sessions = Sessions(
            self.memory, rules, Ids(PLACE, INSTANCE), call_timeout, check, self.clock.monotonic
        )

    def open(self, caller: ScriptedCaller | None = None, **wanted: Any) -> Session:
        return self.sessions.open(caller or ScriptedCaller(), **wanted)

    @property
    def is_empty(self) -> bool:
        """No session is open, no byte is held, and none is counted."""
        counts = len(self.sessions), self.device.live, self.memory.budget.held, self.host.used
        return counts == (0, 0, 0, 0)


class User(ScriptedCaller):
    """A caller with the metadata of a session; ``tenant`` and ``name`` say who it is."""

    def __init__(
        self, session: Session | str, who: str = "", remaining: float | None = None
    ) -> None:
        super().__init__(remaining)
        text = session if isinstance(session, str) else session.id
        self.metadata = {SESSION: text}  # type: ignore[misc]
        if who:
            self.known = person(who)


def person(who: str) -> Identity:
    """Of ``tenant/name``."""
    tenant, _, name = who.partition("/")
    return Identity(tenant, name, Role.USER, KnownBy.TOKEN)


def known(who: str) -> ScriptedCaller:
    caller = ScriptedCaller()
    caller.known = person(who)
    return caller


def part(handle: bytes, offset: int = 0, length: int = 4) -> HandlePart:
    return HandlePart(handle, offset, length)


def filled(session: Session, handle: bytes, data: bytes = b"data", identity: bytes = ONE) -> None:
    """Fills a handle."""
    filling = session.fill(handle, len(data), identity)
    assert filling.is_new
    filling.memory.write(0, data)
    filling.succeed()


def read(session: Session, handle: bytes, length: int = 4, offset: int = 0) -> bytes:
    """Bytes of a handle that is filled."""
    reading = session.read(part(handle, offset, length), "x")
    try:
        found = reading.wait(ScriptedCaller(remaining=PATIENCE))
        return bytes(found.memory.read(found.offset, found.length))
    finally:
        reading.done()
