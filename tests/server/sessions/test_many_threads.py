"""Many threads at one session, and at many: nothing is lost, nothing is left, nobody hangs."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event

import pytest
from tests.server.scripted import PATIENCE, ScriptedCaller, ledger
from tests.server.sessions.held import Device, Held, User, part

from npucall.errors import DeviceError, NpucallError
from npucall_server.devices.host_memory import HostResident
from npucall_server.sessions.room import PAGE_BYTES, SESSION_BYTES
from npucall_server.sessions.session import Session
from npucall_server.sessions.sessions import Rules

THREADS, HANDLES, SIZE = 8, 6, 64
NAMES = tuple(bytes([number]) * 16 for number in range(HANDLES))


class _Plain(Device):
    """Remembers no memory, of which there is much here; a freed one holds nothing."""

    def allocate(self, nbytes: int, dtype: object = None) -> HostResident:  # type: ignore[override]
        return HostResident(nbytes)


def act(session: Session, chance: random.Random) -> None:
    """One thing that a call may do. Bytes of a handle say which it is, so none has another's."""
    name = chance.choice(NAMES)
    with session.use():
        what = chance.random()
        if what < 0.4:
            filling = session.fill(name, SIZE, chance.choice([b"1", b"2"]))
            if not filling.is_new:
                filling.wait(ScriptedCaller(remaining=PATIENCE))
            elif chance.random() < 0.2:
                filling.fail(DeviceError("no"))
            else:
                filling.memory.write(0, name * (SIZE // len(name)))
                filling.succeed()
        elif what < 0.9:
            reading = session.read(part(name, 0, SIZE), "x")
            try:
                found = reading.wait(ScriptedCaller(remaining=PATIENCE))
                assert bytes(found.memory.read(0, SIZE)) == name * (SIZE // len(name))
            finally:
                reading.done()
        else:
            session.release([name])


@pytest.mark.parametrize("own_memory", [0, 1 << 20])
def test_whatever_threads_do_at_a_time_all_is_given_back(own_memory: int) -> None:
    host = ledger(2 * SESSION_BYTES + 8 * HANDLES * 1024)
    all_handles = 3 * PAGE_BYTES if own_memory else 3 * SIZE
    rules = Rules(all_handles, 3 * SIZE, 2, 60.0)
    held = Held(rules, _Plain(own_memory), host)
    stopped = Event()

    def work(seed: int) -> int:
        chance, done = random.Random(seed), 0
        while not stopped.is_set():
            session = sessions[chance.randrange(2)]
            with suppress(NpucallError):
                act(session, chance)
                done += 1
            if chance.random() < 0.02:  # handles that were released can be used no more
                held.sessions.close(User(session))
                with suppress(NpucallError):
                    sessions[chance.randrange(2)] = held.open()
        return done

    sessions = [held.open(), held.open()]
    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(work, seed) for seed in range(THREADS)]
        stopped.wait(1.0)
        stopped.set()
        assert sum(each.result(PATIENCE) for each in working) > 100
    for session, _ in tuple(held.sessions._open.values()):
        held.sessions.close(User(session))
    assert held.is_empty
