"""Ids of sessions and handles, guessed: none opens anything, and nobody learns from the refusal.

``GUESSES`` says how many are sent of each kind (20,000; the full number is 1,000,000).
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import Counter, deque
from statistics import median
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.end_to_end.session_caller import (
    METADATA,
    SessionCaller,
    negated,
    new_handle,
    part,
)
from tests.end_to_end.wire import PATIENCE, bare_channel, details_of

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as sessions

from .test_tenants import lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from .attacked import Figure, Start

    Fails = Callable[[], grpc.Future]

pytestmark = pytest.mark.long

GUESSES = int(os.environ.get("GUESSES", "20000"))
TIMED = 2000
IN_FLIGHT = 6
HEX = "0123456789abcdef"
DATA = b"secret--" * 128
LENGTH = len(DATA)


def guesses(real: str) -> Iterator[str]:
    """Ids with one character changed, each at each place; then others made as real ones are."""
    head, _, secret = real.rpartition("-")
    for at in range(len(secret)):
        for digit in HEX.replace(secret[at], ""):
            yield f"{head}-{secret[:at]}{digit}{secret[at + 1 :]}"
    yield from (f"{head}-{secret[::-1]}", f"{head}-{'0' * len(secret)}", f"{head}-{secret.upper()}")
    yield from (real[:-1], real + "0", head, "-", "0")
    while True:
        yield f"{head}-{secrets.token_hex(len(secret) // 2)}"


def in_flight(calls: Iterable[grpc.Future]) -> Iterator[Any]:
    """What so many calls at a time fail with; None for one that does not."""
    under_way: deque[grpc.Future] = deque()
    for call in calls:
        under_way.append(call)
        if len(under_way) >= IN_FLIGHT:
            yield under_way.popleft().exception(PATIENCE)
    for call in under_way:
        yield call.exception(PATIENCE)


def renew(channel: grpc.Channel, session: str, *more: tuple[str, str]) -> grpc.Future:
    method = channel.unary_unary("/npucall.v1.SessionService/Renew")
    return method.future(b"", metadata=((METADATA, session), *more), timeout=PATIENCE)


def victim(channel: grpc.Channel) -> tuple[SessionCaller, bytes]:
    caller = SessionCaller(channel)
    caller.open()
    return caller, caller.put(DATA)


def test_no_guessed_session_is_opened_and_all_are_refused_alike(
    start: Start, figure: Figure
) -> None:
    with start() as server, bare_channel(server.target) as channel:
        caller, handle = victim(channel)
        found = guesses(caller.session)
        with bare_channel(server.target) as other:
            calls = (renew(other, next(found)) for _ in range(GUESSES))
            told = Counter(details_of(error)[:2] for error in in_flight(calls))
        figure(f"{GUESSES} guessed sessions", dict(told))
        assert [(reason, count) for (reason, _), count in told.items()] == [
            ("SESSION_UNKNOWN", GUESSES)
        ]
        assert caller.download(part(handle, LENGTH)) == DATA


def test_no_guessed_handle_is_read_and_all_are_refused_alike(start: Start, figure: Figure) -> None:
    """Handles of another session too, by the very id that they have there."""
    with start() as server, bare_channel(server.target) as channel:
        caller, handle = victim(channel)
        with bare_channel(server.target) as other:
            attacker = SessionCaller(other)
            attacker.open()
            tried = [handle, *mutated(handle, GUESSES - 1)]
            calls = (read(attacker, each) for each in tried)
            texts = Counter(
                tuple(text.replace(each.hex(), "HANDLE") for text in details_of(error)[:2])
                for each, error in zip(tried, in_flight(calls), strict=True)
            )
        figure(f"{GUESSES} guessed handles", dict(texts))
        assert [(reason, count) for (reason, _), count in texts.items()] == [
            ("HANDLE_EMPTY", GUESSES)
        ]
        assert caller.download(part(handle, LENGTH)) == DATA


def test_anothers_session_is_refused_as_one_that_never_was(
    start: Start, figure: Figure, tmp_path: Path
) -> None:
    """By text; how long it takes is a figure."""
    tenants = lab(tmp_path, owner="", thief="")
    tokens = {name: ("authorization", f"Bearer {tenants.tokens[name]}") for name in tenants.tokens}
    with start(*tenants.flags) as server, bare_channel(server.target) as channel:
        open_session = channel.unary_unary("/npucall.v1.SessionService/OpenSession")
        answer = open_session(b"", metadata=(tokens["owner"],), timeout=PATIENCE)
        real = sessions.OpenSessionResponse.FromString(answer).session
        assert renew(channel, real, tokens["owner"]).exception(PATIENCE) is None
        head = real.rpartition("-")[0]
        kinds: dict[str, Fails] = {
            "another's": lambda: renew(channel, real, tokens["thief"]),
            "nobody's": lambda: renew(channel, f"{head}-{secrets.token_hex(16)}", tokens["thief"]),
        }
        told, seconds = compared(kinds)
    figure("a session that is another's, nobody's: median us", seconds)
    assert told["another's"] == told["nobody's"]
    assert [reason for reason, *_ in told["nobody's"]] == ["SESSION_UNKNOWN"]


def compared(
    kinds: dict[str, Fails],
) -> tuple[dict[str, set[tuple[str, str, str]]], dict[str, float]]:
    """What calls of each kind were told, and their median microseconds; kinds in random turns."""
    told: dict[str, set[tuple[str, str, str]]] = {name: set() for name in kinds}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(TIMED):
        for name in random.sample(list(kinds), len(kinds)):
            begin = time.perf_counter()
            reason, text, facts = details_of(kinds[name]().exception(PATIENCE))
            taken[name].append(time.perf_counter() - begin)
            facts.pop("request_id", None)
            told[name].add((reason, text, str(sorted(facts.items()))))
    return told, {name: round(median(each) * 1e6, 1) for name, each in taken.items()}


def mutated(handle: bytes, count: int) -> Iterator[bytes]:
    """Handles with one bit changed, each; then random ones."""
    number = int.from_bytes(handle)
    for each in range(count):
        yield (number ^ 1 << each).to_bytes(16) if each < 128 else new_handle()


def read(caller: SessionCaller, handle: bytes) -> grpc.Future:
    request = negated(part(handle, LENGTH), LENGTH // 4)
    return caller.begin("Execute", request, pb.ExecuteResponse, "/npucall.v1.OperatorService/")
