"""What the attacks are made with: a polite call by hand, callers and checks on a quiet server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from npucall.v1 import operator_service_pb2 as pb

from . import requests
from .attacked import MIB
from .honest import honest
from .raw import HEALTH, connections, message, over, pump

if TYPE_CHECKING:
    from .attacked import Start

pytestmark = pytest.mark.more


def test_a_polite_call_by_hand_is_answered(start: Start) -> None:
    with start() as server, connections(server.target, 1) as (raw,):
        calls = [raw.call("Execute", *message(requests.small())), raw.call(HEALTH, *message(b""))]
        pump([raw], 10, over([raw]))
        assert raw.ended == dict.fromkeys(calls, "0")


def test_bodies_and_answers_of_many_windows_travel_whole(start: Start) -> None:
    size = 3 * MIB
    with start() as server, connections(server.target, 1) as (raw,):
        sent = raw.call("Execute", *message(requests.data(size)))
        read = raw.call("Execute", *message(requests.large_answer(size)))
        pump([raw], 20, over([raw]))
        assert raw.ended == {sent: "0", read: "0"}
        assert raw.received[read] > size


def test_the_requests_for_working_memory_are_small_and_valid(start: Start) -> None:
    made = [request_for(4096) for request_for in requests.WORKING_MEMORY.values()]
    assert max(map(len, made)) < 300
    with start() as server, connections(server.target, 1) as (raw,):
        calls = [raw.call("Execute", *message(request)) for request in made]
        pump([raw], 10, over([raw]))
        assert raw.ended == dict.fromkeys(calls, "0")


def test_a_claim_claims_what_it_says() -> None:
    frame = pb.ExecuteStreamRequest.FromString(requests.claims(1, 256 * MIB))
    shape = frame.begin.request.call.arguments[0].tensor.shape
    assert 4 * shape[0] * 4 == 256 * MIB  # three inputs and the output
    assert frame.begin.chunked


def test_honest_callers_of_a_quiet_server_are_all_served(start: Start) -> None:
    with start() as server, honest(server.target, "large") as callers:
        time.sleep(1)
        seen = callers.seen()
        assert seen.all_served, str(seen)


@pytest.mark.long
def test_honest_callers_see_that_a_server_is_gone(start: Start) -> None:
    with start() as server, honest(server.target) as callers:
        callers.seen()
        server.process.kill()
        time.sleep(1)
        seen = callers.seen()
        assert seen.lost > 0
        assert not seen.all_served
