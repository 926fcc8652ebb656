"""A million guessed ids of sessions, and of handles: none opens anything, all are refused alike.

In this process, where a guess takes microseconds; ``tests/attacks`` sends some over a socket.
"""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from tests.server.sessions.held import Held, User, filled, part, read

from npucall.errors import HandleEmptyError, SessionUnknownError

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = [20_000, pytest.param(1_000_000, marks=pytest.mark.long)]
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
    held = Held()
    session = held.open()
    guessed = User(session)
    told: Counter[str] = Counter()
    for text in islice(ids(session.id), count):
        guessed.metadata = {"npucall-session": text}  # type: ignore[misc]
        with pytest.raises(SessionUnknownError) as caught:
            held.sessions.of(guessed)
        told[str(caught.value)] += 1
    assert list(told.values()) == [count]
    assert held.sessions.of(User(session)) is session


@pytest.mark.parametrize("count", COUNTS)
def test_no_guessed_handle_is_read(count: int) -> None:
    held = Held()
    victim, session = held.open(), held.open()
    handle = secrets.token_bytes(16)
    filled(victim, handle)
    told: Counter[str] = Counter()
    for guess in islice(handles(handle), count):
        with pytest.raises(HandleEmptyError) as caught:
            session.read(part(guess), "x")
        told[str(caught.value).replace(guess.hex(), "HANDLE")] += 1
    assert list(told.values()) == [count]
    assert read(victim, handle) == b"data"
