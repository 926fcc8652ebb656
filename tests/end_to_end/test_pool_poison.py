"""A call that ends its server each time, in a pool: two members end, and no call of others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.keeper import Keeper, kept_server
from tests.mortal.npucall_mortal import KILLS

import npucall_client
from npucall.errors import PoisonedCallError
from npucall.operators.l1_loss_backward import l1_loss_backward

from .wire import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

PATIENCE = 120.0
MEMBERS, INNOCENTS = 3, 4
ONE = np.ones((), np.float32)


@pytest.fixture
def members() -> Iterator[list[Keeper]]:
    with ExitStack() as stack:
        yield [stack.enter_context(kept_server()) for _ in range(MEMBERS)]


def connected(members: list[Keeper]) -> Client:
    target = "pool:" + ",".join(each.target for each in members)
    return npucall_client.connect(target, timeout=PATIENCE)


def run(client: Client, first: int) -> None:
    inputs = np.ones((first, 4), np.float32), np.zeros((first, 4), np.float32)
    answer = client.run(l1_loss_backward, ONE, *inputs, reduction=2)
    assert np.unique(answer).tolist() == [1.0]


def endings(members: list[Keeper]) -> int:
    return sum(len(each.endings) for each in members)


def settled(members: list[Keeper], count: int) -> None:
    """Until at least so many have ended, and all run again."""
    until(lambda: endings(members) >= count, "members ended")
    for each in members:
        each.wait_until_ready()


@pytest.mark.more
def test_exactly_two_members_end(members: list[Keeper]) -> None:
    with connected(members) as client:
        for number in range(1, 4):
            with pytest.raises(PoisonedCallError) as caught:
                run(client, KILLS)
            assert caught.value.details["operator"] == "aclnnL1LossBackward"
            settled(members, 2 * number)
            assert endings(members) == 2 * number
            run(client, 4)


def test_others_lose_no_call_and_at_most_three_members_end(members: list[Keeper]) -> None:
    over = threading.Event()

    def works() -> int:
        count = 0
        with connected(members) as client:
            while not over.is_set():
                run(client, 4)
                count += 1
        return count

    with ThreadPoolExecutor(INNOCENTS) as threads:
        working = [threads.submit(works) for _ in range(INNOCENTS)]
        try:
            with connected(members) as client, pytest.raises(PoisonedCallError):
                run(client, KILLS)
        finally:
            over.set()
        assert all(each.result(PATIENCE) > 0 for each in working)
    settled(members, 2)
    assert endings(members) in (2, 3)
