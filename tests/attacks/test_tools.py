"""What the attacks are made with: calls by hand, and polite callers who notice what they lose."""

import time

import pytest

from . import requests
from .clients import polite
from .http2 import HEALTH, LONG, connected, message, over, pump
from .servers import MIB, Start


@pytest.mark.more
def test_calls_by_hand_are_answered_and_those_of_many_windows_travel_whole(start: Start) -> None:
    """So are the requests for working memory, which are small."""
    size = 3 * MIB
    made = [request_for(4096) for request_for in requests.WORKING_MEMORY.values()]
    assert max(map(len, made)) < 300
    with start() as server, connected(server.target) as (hand,):
        read = hand.call("Execute", *message(requests.large_answer(size)))
        wanted = requests.SMALL, requests.data(size), *made
        calls = [read, hand.call(HEALTH, *message(b""))]
        calls += [hand.call("Execute", *message(request)) for request in wanted]
        pump([hand], LONG, over)
        assert hand.ended == dict.fromkeys(calls, "0")
        assert hand.received[read] > size


@pytest.mark.long
def test_polite_callers_see_that_a_server_is_gone(start: Start) -> None:
    with start() as server, polite(server.target) as seen:
        server.process.kill()
        time.sleep(1)
        assert seen().lost
