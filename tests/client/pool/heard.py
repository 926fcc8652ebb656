"""Hears what a source lists, and waits for what other threads do."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from npucall_client.pool.members import Member

PATIENCE = 60.0
"""Seconds after which a test gives up; none takes so long unless something is broken."""


class Heard:
    """What a source has told, the last word and how often it spoke."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.members: dict[str, Member] = {}
        self.complete = False
        self.updates: list[list[str]] = []

    def __call__(self, members: Sequence[Member], *, complete: bool) -> None:
        with self._changed:
            self.members = {member.address: member for member in members}
            self.complete = complete
            self.updates.append([member.address for member in members])
            self._changed.notify_all()

    def until(self, condition: Callable[[Heard], object]) -> None:
        """Waits until something holds."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE), self.members

    def until_listed(self, *addresses: str) -> None:
        """Waits until these are the members."""
        self.until(lambda heard: set(heard.members) == set(addresses))


def until(
    condition: Callable[[], object], what: str = "what was awaited", within: float = PATIENCE
) -> None:
    """Waits for something that another thread or process does."""
    never = threading.Event()
    for _ in range(int(within / 0.002)):
        if condition():
            return
        never.wait(0.002)
    raise AssertionError(f"did not happen: {what}")


def lasting_port() -> int:
    """For servers that end and start again there: the system gives it to nobody meanwhile."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 1000):  # not ephemeral
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("expected a free port")


def threads_named(name: str) -> list[threading.Thread]:
    """Those that live."""
    return [each for each in threading.enumerate() if each.name == name]
