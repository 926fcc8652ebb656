"""Directories tell each other their members through etcd, as keys that end with their lease.

A directory writes what it hears itself under its own keys, all with one lease. etcd tells it what
the others write. A directory writes changes of state at once and loads once a second, many members
in one transaction. If etcd does not answer, the directory goes on with what it hears itself and
what it was told last.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import MessageError
from npucall.membership import REMOVED_SECONDS
from npucall_server.directory import messages
from npucall_server.directory.etcd.client import EtcdClient, Pair, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.directory.etcd.client import Endpoints
    from npucall_server.directory.feed import Feed
    from npucall_server.directory.table import Beat, Table
    from npucall_server.log import Log

_WRITE_SECONDS = 1.0
"""Time between two writes of how busy members are."""
_GAP_SECONDS = 0.1
"""The shortest time between two writes of any kind."""
_KEEP_SECONDS = REMOVED_SECONDS / 3
_AGAIN_SECONDS = 1.0
_AT_ONCE = 100
"""The most keys in a transaction; etcd's default limit is 128."""


class Store:
    """Starts to write and to watch at once. ``prefix``: what all keys of one pool begin with."""

    def __init__(self, endpoints: Endpoints, prefix: str, feed: Feed, log: Log) -> None:
        self._name = secrets.token_hex(6)
        self._prefix = f"/{prefix}/members/"
        self._feed, self._log = feed, log
        self._clients = EtcdClient(endpoints), EtcdClient(endpoints)
        self._stopped, self._hurry = threading.Event(), threading.Event()
        self._lost: set[str] = set()
        self._lease = _Lease(0, 0.0)
        self._written: dict[str, tuple[Beat, bool]] = {}
        feed.change(_wait_for_others)
        feed.listeners.append(self._hurry.set)
        for number, work in enumerate((self._write, self._watch)):
            threading.Thread(
                target=self._repeat, args=(work, self._clients[number]), name="npucall-store",
                daemon=True,
            ).start()  # fmt: skip

    def stop(self) -> None:
        """Stops writing.

        The keys stay until the lease ends, since the directory may soon start again.
        """
        self._stopped.set()
        self._hurry.set()
        for client in self._clients:
            client.close()

    def _repeat(self, work: Callable[[EtcdClient], None], client: EtcdClient) -> None:
        """Repeats the work, even if it fails."""
        while not self._stopped.is_set():
            try:
                work(client)
            except StoreError as error:
                self._lose(work.__name__, error)
                self._stopped.wait(_AGAIN_SECONDS)
            except Exception:  # noqa: BLE001  # the next attempt may succeed
                self._log.event("bug", traceback=traceback.format_exc())
                self._stopped.wait(_AGAIN_SECONDS)

    # --- Writing --------------------------------------------------------------------------------

    def _write(self, client: EtcdClient) -> None:
        """Writes the changes when it is time."""
        self._hurry.wait(_WRITE_SECONDS)
        self._hurry.clear()
        self._keep_lease(client)
        heard, ended = self._feed.ask(lambda table: (table.heard(), table.told_of_ended()))
        changed = [
            address
            for address, (beat, suspect) in heard.items()
            if not _is_written(self._written.get(address), beat, suspect=suspect)
        ]
        pairs = [
            Pair(self._key(address), messages.stored(beat, suspect=suspect), 0)
            for address in changed
            for beat, suspect in [heard[address]]
        ]
        gone = self._written.keys() - heard.keys()
        pairs += [Pair(self._key(address), None, 0) for address in gone]
        pairs += [Pair(self._key(address, name), None, 0) for name, address in ended]
        for start in range(0, len(pairs), _AT_ONCE):
            client.write(pairs[start : start + _AT_ONCE], self._lease.number)
        self._written = dict(heard)
        self._find("_write")
        self._stopped.wait(_GAP_SECONDS)

    def _keep_lease(self, client: EtcdClient) -> None:
        """Keeps the lease. If it has ended, gets another one and writes everything again."""
        now = time.monotonic()
        if self._lease.number and now < self._lease.keep_at:
            return
        number = self._lease.number
        if not number or not client.keep(number):
            number = client.grant(int(REMOVED_SECONDS))
            self._written = {}
        self._lease = _Lease(number, now + _KEEP_SECONDS)

    # --- Watching -------------------------------------------------------------------------------

    def _watch(self, client: EtcdClient) -> None:
        """Reads all keys, then the changes, until the watch ends."""
        prefix = self._prefix.encode()
        pairs, revision = client.read(prefix)
        told = [each for pair in pairs if (each := self._told(pair))]
        self._feed.change(lambda table, _: table.tell_all(told))
        self._find("_watch")
        for changes in client.watch(prefix, revision + 1):
            self._take(changes)
        client.close()  # the next watch starts from a new read
        self._stopped.wait(_AGAIN_SECONDS)

    def _take(self, changes: list[Pair]) -> None:
        told = [(pair, self._told(pair)) for pair in changes]

        def take(table: Table, _: float) -> None:
            for pair, said in told:
                name, address = self._named(pair.key)
                if said is not None:
                    table.tell(name, said[1], said[2], suspect=said[3])
                elif name != self._name:
                    table.untell(name, address)

        self._feed.change(take)

    def _told(self, pair: Pair) -> tuple[str, Beat, int, bool] | None:
        """What another directory says.

        None for our own keys, deleted keys, and values that are no beat.
        """
        name, address = self._named(pair.key)
        if name == self._name or pair.value is None:
            return None
        try:
            beat, suspect = messages.read_stored(pair.value)
        except MessageError:
            return None
        return (name, beat, pair.revision, suspect) if beat.address == address else None

    # --- Keys -----------------------------------------------------------------------------------

    def _key(self, address: str, directory: str = "") -> bytes:
        return f"{self._prefix}{address}/{directory or self._name}".encode()

    def _named(self, key: bytes) -> tuple[str, str]:
        """The directory and the address that a key names."""
        text = key.decode(errors="replace").removeprefix(self._prefix)
        address, _, name = text.rpartition("/")
        return name, address

    # --- Log ------------------------------------------------------------------------------------

    def _lose(self, what: str, error: StoreError) -> None:
        if what not in self._lost and not self._stopped.is_set():
            self._log.event("store lost", doing=what.strip("_"), message=str(error))
        self._lost.add(what)

    def _find(self, what: str) -> None:
        if what in self._lost:
            self._log.event("store found", doing=what.strip("_"))
        self._lost.discard(what)


class _Lease(NamedTuple):
    """A lease: its number in etcd (0 for none), and when to renew it."""

    number: int
    keep_at: float


def _is_written(before: tuple[Beat, bool] | None, beat: Beat, *, suspect: bool) -> bool:
    """Whether etcd has this already. A beat that only has a new number need not be written."""
    if before is None or before[1] != suspect:
        return False
    known = before[0]
    return (known.instance, known.state, known.body) == (beat.instance, beat.state, beat.body)


def _wait_for_others(table: Table, _: float) -> None:
    """The table is not complete until the other directories have said what they know."""
    table.knows_others = False
