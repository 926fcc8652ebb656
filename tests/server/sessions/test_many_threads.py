"""Many threads at one session and at many, and who guesses: nothing is lost, nothing is opened."""

import random
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice

import pytest
from tests.server.fakes import PATIENCE, FakeCaller, FakeDevice
from tests.server.serving import Offline, filled, part, read

from npucall.errors import DeviceError, HandleEmptyError, NpucallError, SessionUnknownError
from npucall_server.sessions.handle_room import PAGE_BYTES, SESSION_BYTES
from npucall_server.sessions.session import OpenSession

THREADS, HANDLES, SIZE = 8, 6, 64
NAMES = tuple(bytes([number]) * 16 for number in range(HANDLES))


def act(session: OpenSession, chance: random.Random) -> None:
    """One thing that a call may do. Bytes of a handle say which it is, so none has another's."""
    name = chance.choice(NAMES)
    with session.use():
        what = chance.random()
        if what < 0.4:
            filling = session.fill(name, SIZE, chance.choice([b"1", b"2"]))
            if not filling.is_new:
                filling.wait(FakeCaller(remaining=PATIENCE))
            elif chance.random() < 0.2:
                filling.fail(DeviceError("no"))
            else:
                filling.memory.write(0, name * (SIZE // len(name)))
                filling.succeed()
        elif what < 0.9:
            reading = session.read(part(name, 0, SIZE), "x")
            try:
                found = reading.wait(FakeCaller(remaining=PATIENCE))
                assert bytes(found.memory.read(0, SIZE)) == name * (SIZE // len(name))
            finally:
                reading.give_back()
        else:
            session.release([name])


@pytest.mark.parametrize("own_memory", [0, 1 << 20])
@pytest.mark.parametrize("steps", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_whatever_threads_do_at_a_time_all_is_given_back(own_memory: int, steps: int) -> None:
    server = Offline(
        FakeDevice(own_memory=own_memory),
        memory_limit=2 * SESSION_BYTES + 8 * HANDLES * 1024,
        handle_memory=3 * PAGE_BYTES if own_memory else 3 * SIZE,
        max_sessions=2,
    )

    def work(seed: int) -> int:
        chance, done = random.Random(seed), 0
        for _ in range(steps):
            session = sessions[chance.randrange(2)]
            with suppress(NpucallError):
                act(session, chance)
                done += 1
            if chance.random() < 0.02:  # handles that were released can be used no more
                server.sessions.close(FakeCaller(session=session))
                with suppress(NpucallError):
                    sessions[chance.randrange(2)] = server.open()
        return done

    sessions = [server.open(), server.open()]
    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(THREADS))) > 0
    for session, _ in tuple(server.sessions._open.values()):
        server.sessions.close(FakeCaller(session=session))
    assert server.is_empty


COUNTS = [5_000, pytest.param(1_000_000, marks=pytest.mark.long)]
"""In this process, where a guess takes microseconds."""
HEX = "0123456789abcdef"


def ids(real: str) -> Iterator[str]:
    """One of its secret's digits changed, then two, then all of them."""
    head, _, secret = real.rpartition("-")
    once = [
        secret[:at] + digit + secret[at + 1 :]
        for at in range(len(secret))
        for digit in HEX.replace(secret[at], "")
    ]
    yield from (f"{head}-{each}" for each in once)
    for each in once:
        turned = each[1:] + each[:1]
        yield f"{head}-{turned}"
    while True:
        yield f"{head}-{secrets.token_hex(16)}"


def handles(real: bytes) -> Iterator[bytes]:
    """One of its bits changed, then two, then all of them."""
    number = int.from_bytes(real)
    yield from ((number ^ 1 << bit).to_bytes(16) for bit in range(128))
    for bit in range(128):
        yield from ((number ^ 1 << bit ^ 1 << other).to_bytes(16) for other in range(bit))
    while True:
        yield secrets.token_bytes(16)


@pytest.mark.parametrize("count", COUNTS)
def test_no_guessed_id_opens_a_session(count: int) -> None:
    server = Offline()
    session = server.open()
    told: Counter[str] = Counter()
    for text in islice(ids(session.id), count):
        with pytest.raises(SessionUnknownError) as caught:
            server.sessions.of(FakeCaller(session=text))
        told[str(caught.value)] += 1
    assert list(told.values()) == [count]
    assert server.sessions.of(FakeCaller(session=session)) is session


@pytest.mark.parametrize("count", COUNTS)
def test_no_guessed_handle_is_read(count: int) -> None:
    server = Offline()
    victim, session = server.open(), server.open()
    handle = secrets.token_bytes(16)
    filled(victim, handle)
    told: Counter[str] = Counter()
    for guess in islice(handles(handle), count):
        with pytest.raises(HandleEmptyError) as caught:
            session.read(part(guess), "x")
        told[str(caught.value).replace(guess.hex(), "HANDLE")] += 1
    assert list(told.values()) == [count]
    assert read(victim, handle) == b"data"
