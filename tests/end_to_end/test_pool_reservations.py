"""Reservations over a pool: what servers log is the witness that no two of them overlap."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import ReservedError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

MEMBERS, HOLDERS = 3, 3
INPUTS = np.ones(1, np.float32), np.ones(4, np.float32), np.zeros(4, np.float32)


@pytest.fixture(scope="module")
def members() -> Iterator[list[ServerProcess]]:
    flags = "--reservation-gap=0", "--log-calls=errors"
    with ExitStack() as stack:
        yield [stack.enter_context(running_server(*flags)) for _ in range(MEMBERS)]


@pytest.mark.long
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), marks=pytest.mark.more),
        pytest.param(range(8, 208), marks=pytest.mark.long),
    ],
)
def test_no_two_reservations_of_a_member_overlap(
    members: list[ServerProcess], seeds: range
) -> None:
    target = "pool:" + ",".join(each.target for each in members)
    granted = sum(schedule(target, random.Random(seed)) for seed in seeds)
    assert granted > len(seeds)
    logged = [witnessed(each) for each in members]
    assert all(logged)


def schedule(target: str, drawn: random.Random) -> int:
    """Holders who want some members for a while, at the same time; answers how many got them."""
    wants = [
        [(drawn.randint(1, MEMBERS), drawn.uniform(0, 0.05)) for _ in range(2)]
        for _ in range(HOLDERS)
    ]
    with ExitStack() as stack, ThreadPoolExecutor(HOLDERS) as threads:
        clients = [stack.enter_context(npucall_client.connect(target, timeout=60.0)) for _ in wants]
        return sum(threads.map(hold, clients, wants))


def hold(client: Client, wants: list[tuple[int, float]]) -> int:
    """Reserves and calls; answers how often that was granted."""
    granted = 0
    for count, seconds in wants:
        try:
            with client.reserve(30, wait=5, count=count) as own:
                granted += 1
                answered = {
                    own.execute(l1_loss_backward, *INPUTS).server.instance for _ in range(3)
                }
                assert len(answered) <= count
                time.sleep(seconds)
        except ReservedError:
            continue
    return granted


def witnessed(server: ServerProcess) -> int:
    """How many reservations a server logged, of which each had ended before the next one began."""
    lines = (json.loads(line) for line in server.log.read_text().splitlines())
    told = [line["event"] for line in lines if line.get("event", "").startswith("reserv")]
    begun = told[::2]
    assert set(begun) <= {"reserved"}
    assert "reserved" not in told[1::2]
    return len(begun)
