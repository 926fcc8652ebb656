"""The attacks: each is let loose on an address, and answers with its connections still open.

The tests look at the server then; the soak lets them loose again and again.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from tests.end_to_end import wire

from . import requests
from .raw import HEALTH, REFLECTION, Raw, answered, connections, message, over, pump, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

MIB = 2**20
_AHEAD = 2**14
"""Bytes of resets that wait for the socket, so that what is counted is what was sent."""
HEADERS = {
    "Execute": "Execute",
    "GetServerInfo": "GetServerInfo",
    "health": HEALTH,
    "reflection": REFLECTION,
    "streams": "ExecuteStream",
}
"""Where calls can be opened that never say anything."""


@contextmanager
def working_memory(target: str, operator: str, share: int, calls: int = 4) -> Iterator[list[Raw]]:
    """Calls of some hundred bytes at a time, each with a tensor of ``share`` bytes.

    On streams, where an answer may be as long as memory allows; none is read.
    """
    frame = requests.whole(1, requests.WORKING_MEMORY[operator](share))
    with connections(target, calls, window=0) as raws:
        for raw in raws:
            raw.call("ExecuteStream", *message(frame), end=False)
        pump(raws, 90, answered(raws))
        yield raws


@contextmanager
def bodies_one_byte_short(target: str, calls: int, size: int) -> Iterator[list[Raw]]:
    """Requests of which all has come but the last byte."""
    body = bytes(size - 1)
    with connections(target, 4) as raws:
        for number in range(calls):
            raws[number % 4].call("Execute", *message(body, short=1), end=False)
        pump(raws, 30, sent(raws))
        pump(raws, 1)
        yield raws


@contextmanager
def gzip_bombs(target: str, path: str, bomb: bytes, calls: int = 1) -> Iterator[Raw]:
    """Messages that are many times as large once they are unpacked."""
    with connections(target, 1) as (raw,):
        for _ in range(calls):
            raw.call(path, *message(bomb, compressed=True), grpc_encoding="gzip")
        pump([raw], 20, over([raw]))
        yield raw


@contextmanager
def padding(target: str, calls: int, size: int) -> Iterator[list[Raw]]:
    """Calls behind unknown fields, more of them than are computed in a second."""
    parts = requests.padded(size)
    prefix = bytes(1) + sum(map(len, parts)).to_bytes(4)
    with connections(target, 4) as raws:
        for number in range(calls):
            raws[number % 4].call("Execute", prefix, *parts)
        pump(raws, 40, over(raws))
        yield raws


@contextmanager
def small_fields(target: str, kind: str, size: int, calls: int = 4) -> Iterator[list[Raw]]:
    """Messages that are full of small fields."""
    path, body = requests.crowded(size)[kind]
    with connections(target, calls) as raws:
        for raw in raws:
            raw.call(path, *message(body))
        pump(raws, 50, over(raws))
        yield raws


@contextmanager
def unread_answers(target: str, calls: int, size: int) -> Iterator[list[Raw]]:
    """Small requests with large answers, each begun before the next is asked for, none read."""
    request = requests.large_answer(size)
    with connections(target, 1, window=0) as raws:
        end = time.monotonic() + 25
        while raws[0].opened < calls and time.monotonic() < end:
            raws[0].call("Execute", *message(request))
            pump(raws, 5, answered(raws))
        yield raws


@contextmanager
def endless_steps(target: str, calls: int = 2) -> Iterator[list[Raw]]:
    """Calls of 3 million steps, of some hundred bytes."""
    request = requests.ctc(steps=3_000_000)
    with connections(target, calls) as raws:
        for raw in raws:
            raw.call("Execute", *message(request))
        pump(raws, 1)
        yield raws


@contextmanager
def silence(target: str, path: str, calls: int) -> Iterator[Raw]:
    """Calls on one connection that are opened and say nothing."""
    with connections(target, 1) as (raw,):
        for _ in range(calls):
            raw.call(path, end=False)
        pump([raw], 1)
        yield raw


@contextmanager
def frames(target: str, streams: int, *bodies: bytes, window: int = 2**31 - 1) -> Iterator[Raw]:
    """Streams on one connection that send these frames and then nothing."""
    parts = [part for body in bodies for part in message(body)]
    with connections(target, 1, window=window) as (raw,):
        for _ in range(streams):
            raw.call("ExecuteStream", *parts, end=False)
        pump([raw], 1)
        yield raw


@contextmanager
def a_claim_on_everything(target: str, size: int) -> Iterator[Raw]:
    """One begin of some hundred bytes, which wants nearly all the memory there is."""
    with frames(target, 1, requests.claims(1, size * 3 // 4)) as raw:
        yield raw


@contextmanager
def streams_that_do_not_read(target: str, size: int) -> Iterator[Raw]:
    """Three streams with as many answers each as they may have, none of which is read."""
    request = requests.large_answer(size)
    bodies = [requests.whole(number, request) for number in range(1, 33)]
    with frames(target, 3, *bodies, window=0) as raw:
        yield raw


@contextmanager
def calls_without_bytes(target: str) -> Iterator[Raw]:
    """66 calls of some bytes which never come, on three streams."""
    with frames(target, 3, *[requests.claims(number, 64) for number in range(1, 23)]) as raw:
        yield raw


@contextmanager
def resets(target: str, seconds: float) -> Iterator[Raw]:
    """Calls that are opened and reset, as fast as this process can."""
    parts = message(requests.small())
    with connections(target, 1) as (raw,):

        def more() -> bool:
            while raw.unsent < _AHEAD:
                raw.reset(raw.call("Execute", *parts))
            return False

        pump([raw], seconds, more)
        yield raw


@contextmanager
def idle_connections(target: str, count: int) -> Iterator[list[Raw]]:
    """Connections that greet and say nothing more."""
    with connections(target, count) as raws:
        pump(raws, 3)
        yield raws


def let_loose(target: str, limit: int) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Every attack, by name, small enough to be repeated for as long as a soak lasts."""
    part, bomb = min(limit // 40, 7 * MIB), requests.gzip_of_zeros(200)
    return {
        **{
            operator: partial(working_memory, target, operator, limit // 4, 2)
            for operator in requests.WORKING_MEMORY
        },
        **{path: partial(silence, target, path, 138) for path in HEADERS.values()},
        **{
            kind: partial(small_fields, target, kind, part, 2)
            for kind in ("places in a storage", "arguments in a begin")
        },
        "bodies one byte short": partial(bodies_one_byte_short, target, 20, part),
        "gzip": partial(gzip_bombs, target, "GetServerInfo", bomb),
        "padding": partial(padding, target, 20, part),
        "unread answers": partial(unread_answers, target, 20, part),
        "endless steps": partial(endless_steps, target),
        "a claim": partial(a_claim_on_everything, target, limit),
        "streams that do not read": partial(streams_that_do_not_read, target, limit // 200),
        "idle streams": partial(frames, target, 64),
        "calls without bytes": partial(calls_without_bytes, target),
        "resets": partial(resets, target, 5),
        "idle connections": partial(idle_connections, target, 100),
    }


def refusals(raws: list[Raw]) -> str:
    """How the calls ended, for a figure: each status with how often it came."""
    ends = [end for raw in raws for end in raw.ended.values()]
    shown = [f"{ends.count(end)} of status {end}" for end in sorted(set(ends))]
    unread = sum(raw.open_streams and len(raw.received.keys() - raw.ended) for raw in raws)
    shown += [f"{unread} answers begun"] if unread else []
    closed = sum(raw.closed for raw in raws)
    shown += [f"{closed} connections closed"] if closed else []
    return ", ".join(shown) or "none ended"


def health_answers(target: str) -> bool:
    """Whether a fresh connection is told that the server serves, within a second."""
    with wire.bare_channel(target) as channel:
        try:
            channel.unary_unary(HEALTH)(b"", timeout=1)
        except grpc.RpcError:
            return False
    return True
