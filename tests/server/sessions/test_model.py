"""Sessions beside a dictionary that says what they hold, whatever is done with them."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.more import only
from tests.server.fakes import FakeCaller
from tests.server.serving import Offline, part

from npucall.errors import (
    DeviceError,
    HandleEmptyError,
    HandleExistsError,
    HandleMemoryError,
    HandleReleasedError,
    NpucallError,
    QueueFullError,
    SessionExpiredError,
    SessionUnknownError,
    TensorLayoutError,
)

PEOPLE = ("vision/ann", "vision/bob", "speech/cid")
HANDLES = tuple(bytes([number]) * 16 for number in range(2))
SIZES, PARTS = st.sampled_from([0, 8, 40, 60]), st.sampled_from([0, 4, 8])
LEASE, SESSION, ALL, OF_SPEECH, MOST = 10.0, 100, 150, 80, 3

handles, people = st.sampled_from(HANDLES), st.sampled_from(PEOPLE)


class Expected:
    """What a session should be."""

    def __init__(self, session: Any, owner: str, now: float) -> None:
        self.session, self.owner = session, owner
        self.renewed, self.uses = now, 0
        self.end: type[NpucallError] | None = None
        self.handles: dict[bytes, Any] = {}
        """What it holds, as a Filled; "released"; what else is empty."""


class Filled:
    """What a handle should hold, and who needs it."""

    def __init__(self, filling: Any, data: bytes, identity: bytes) -> None:
        self.filling, self.data, self.identity = filling, data, identity
        self.state, self.readers, self.is_released = "filling", 0, False

    @property
    def is_held(self) -> bool:
        """Whether its memory should be there."""
        kept = self.state == "filled" and not self.is_released
        return self.state == "filling" or kept or self.readers > 0


class Model(RuleBasedStateMachine):
    """Nothing waits here: who would has nothing to do yet."""

    sessions, fillings, readings, using = (
        Bundle("sessions"), Bundle("fillings"), Bundle("readings"), Bundle("using"),
    )  # fmt: skip

    @initialize(target=sessions)
    def start(self) -> Any:
        self.server = Offline(
            handle_memory=ALL, max_sessions=MOST, session_lease=LEASE,
            tenants={"speech": {"handle_memory": OF_SPEECH}},
        )  # fmt: skip
        self.server.sessions._give_way = lambda *_: False  # test_sessions.py says who does
        self.known: list[Expected] = []
        self.contents: list[tuple[Expected, Filled]] = []
        session = self.open(PEOPLE[0])
        self.fill_at_once(session, HANDLES[0], 40)
        return session

    # --- What is done -----------------------------------------------------------------------------

    @rule(target=sessions, who=people)
    def open(self, who: str) -> Any:
        self.expire()
        if len(self.open_ones) >= MOST:
            with pytest.raises(QueueFullError):
                self.server.open(who)
            return multiple()
        session = Expected(self.server.open(who, budget=SESSION), who, self.now)
        self.known.append(session)
        return session

    @rule(session=sessions, who=people)
    def find(self, session: Expected, who: str) -> None:
        def of() -> Any:
            return self.server.sessions.of(FakeCaller(who=who, session=session.session))

        if self.is_due(session):
            self.expire()
        if who != session.owner:
            with pytest.raises(SessionUnknownError):
                of()
        elif session.end is not None:
            with pytest.raises(session.end):
                of()
        else:
            assert of() is session.session
            session.renewed = self.now

    @rule(session=sessions, who=people)
    def close(self, session: Expected, who: str) -> None:
        self.server.sessions.close(FakeCaller(who=who, session=session.session))
        if who == session.owner and session.end is None:
            self.ended(session, SessionUnknownError)

    @rule(seconds=st.sampled_from([1.0, 4.0, 4.0, LEASE]))
    def wait(self, seconds: float) -> None:
        self.server.clock.advance(seconds)

    @rule()
    def look(self) -> None:
        self.expire()

    @rule(target=using, session=sessions)
    def use(self, session: Expected) -> Any:
        context = session.session.use()
        if session.end is not None:
            with pytest.raises(session.end):
                context.__enter__()
            return multiple()
        context.__enter__()
        session.uses += 1
        return session, context

    @rule(use=consumes(using))
    def use_no_more(self, use: tuple[Expected, Any]) -> None:
        session, context = use
        context.__exit__(None, None, None)
        session.uses -= 1
        session.renewed = self.now

    @rule(
        target=fillings,
        session=sessions,
        handle=handles,
        size=SIZES,
        identity=st.sampled_from([b"1", b"2"]),
    )
    def fill(self, session: Expected, handle: bytes, size: int, identity: bytes) -> Any:
        def fill() -> Any:
            return session.session.fill(handle, size, identity)

        found = session.handles.get(handle)
        refusal = self.refusal(session, found, size, identity)
        if refusal is not None:
            with pytest.raises(refusal):
                fill()
            return multiple()
        filling = fill()
        if isinstance(found, Filled):
            assert not filling.is_new
            if found.state == "filled":
                filling.wait(FakeCaller())
            return multiple()
        assert filling.is_new
        content = Filled(filling, bytes([size]) * size, identity)
        session.handles[handle] = content
        self.contents.append((session, content))
        return session, handle, content

    @rule(session=sessions, handle=handles, size=SIZES)
    def fill_at_once(self, session: Expected, handle: bytes, size: int) -> None:
        begun = self.fill(session, handle, size, b"1")
        if isinstance(begun, tuple):
            self.end_filling(begun, "filled")

    @rule(filling=consumes(fillings), how=st.sampled_from(["filled", "failed"]))
    def end_filling(self, filling: tuple[Expected, bytes, Filled], how: str) -> None:
        session, handle, content = filling
        if how == "failed":
            content.filling.fail(DeviceError("no"))
            if session.handles.get(handle) is content:
                del session.handles[handle]
        else:
            content.filling.memory.write(0, content.data)
            content.filling.succeed()
        content.state = how

    @rule(target=readings, session=sessions, handle=handles, offset=PARTS, length=PARTS)
    def read(self, session: Expected, handle: bytes, offset: int, length: int) -> Any:
        def read() -> Any:
            return session.session.read(part(handle, offset, length), "x")

        found = session.handles.get(handle)
        refusal: type[NpucallError] | None = session.end
        if refusal is None and found == "released":
            refusal = HandleReleasedError
        elif refusal is None and found is None:
            refusal = HandleEmptyError
        elif refusal is None and offset + length > len(found.data):
            refusal = TensorLayoutError
        if refusal is not None:
            with pytest.raises(refusal):
                read()
            return multiple()
        found.readers += 1
        return found, read(), found.data[offset : offset + length]

    @rule(reading=consumes(readings), times=st.integers(1, 2))
    def end_reading(self, reading: tuple[Filled, Any, bytes], times: int) -> None:
        content, subject, expected = reading
        if content.state == "filled":
            found = subject.wait(FakeCaller())
            assert bytes(found.memory.read(found.offset, found.length)) == expected
        elif content.state == "failed":
            with pytest.raises(HandleEmptyError, match="no"):
                subject.wait(FakeCaller())
        for _ in range(times):
            subject.give_back()
        content.readers -= 1

    @rule(session=sessions, some=st.lists(handles, max_size=3))
    def release(self, session: Expected, some: list[bytes]) -> None:
        session.session.release(some)
        if session.end is None:
            for handle in some:
                self.released(session, handle)

    # --- What has to hold -------------------------------------------------------------------------

    @invariant()
    def everything_is_counted_and_nothing_else(self) -> None:
        by_session = {id(session): 0 for session in self.known}
        for session, content in self.contents:
            by_session[id(session)] += len(content.data) if content.is_held else 0
        assert self.server.device.allocated == sum(by_session.values())
        assert self.server.handle_bytes == sum(by_session.values())
        for session in self.known:
            assert session.session.held == by_session[id(session)]
        due = [session for session in self.open_ones if self.is_due(session)]
        assert len(self.server.sessions) == len(self.open_ones) or due

    def teardown(self) -> None:
        for session in self.known:
            self.server.sessions.close(FakeCaller(who=session.owner, session=session.session))
            self.ended(session, SessionUnknownError)
        for _, content in self.contents:
            content.filling.succeed()
            content.state = "filled" if content.state == "filling" else content.state
        left = [content for _, content in self.contents if content.is_held]
        assert self.server.device.allocated == sum(len(content.data) for content in left)
        assert all(content.readers for content in left)
        assert left or self.server.is_empty  # one of 0 bytes takes room of the host too

    # --- What the dictionary does -----------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.server.clock.monotonic()

    @property
    def open_ones(self) -> list[Expected]:
        return [session for session in self.known if session.end is None]

    def is_due(self, session: Expected) -> bool:
        return not session.uses and self.now >= session.renewed + LEASE

    def expire(self) -> None:
        """Somebody has looked, and nobody else knows of those that are due."""
        self.server.sessions.look()
        for session in self.open_ones:
            if self.is_due(session):
                self.ended(session, SessionExpiredError)

    def ended(self, session: Expected, how: type[NpucallError]) -> None:
        session.end = session.end or how
        for handle in list(session.handles):
            self.released(session, handle)

    def released(self, session: Expected, handle: bytes) -> None:
        found = session.handles.get(handle)
        if isinstance(found, Filled):
            found.is_released = True
        session.handles[handle] = "released"

    def refusal(
        self, session: Expected, found: Any, size: int, identity: bytes
    ) -> type[NpucallError] | None:
        """What filling a handle has to raise."""
        if session.end is not None:
            return session.end
        if found == "released":
            return HandleReleasedError
        if isinstance(found, Filled):
            same = (len(found.data), found.identity) == (size, identity)
            return None if same else HandleExistsError
        tenant = session.owner.partition("/")[0]
        held = [(other, len(c.data)) for other, c in self.contents if c.is_held]
        own = sum(length for other, length in held if other is session)
        tenants = sum(n for other, n in held if other.owner.startswith(tenant))
        is_full = own + size > SESSION or sum(length for _, length in held) + size > ALL
        if is_full or (tenant == "speech" and tenants + size > OF_SPEECH):
            return HandleMemoryError
        return None


@pytest.mark.parametrize("examples", only(60, 300, 6000))
def test_sessions_are_what_a_dictionary_says(examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Model, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None)
    )
