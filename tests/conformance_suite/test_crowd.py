"""Callers at once: outcomes stay in order, crowds ask for different things, as often as told."""

from __future__ import annotations

from collections import Counter
from threading import Event
from typing import TYPE_CHECKING

from npucall_client.conformance.cases.select import Selection, select
from npucall_client.conformance.running.callers import CALLERS, in_order
from npucall_client.conformance.running.judged import judged
from npucall_client.conformance.running.runner import Runner
from npucall_client.conformance.statements import statements
from npucall_client.local import LocalTransport

from .servers import client_of, failed

if TYPE_CHECKING:
    from npucall.wire.messages import Response
    from npucall_client.arguments import BoundCall

ADD = "aclnnAdd"
PATIENCE = 30.0
"""Seconds after which a test is stuck."""


class Counting(LocalTransport):
    """Counts calls by operator, and by all of their bytes."""

    def __init__(self) -> None:
        super().__init__("Ascend910B1")
        self.by_operator: Counter[str] = Counter()
        self.by_bytes: Counter[tuple[bytes, ...]] = Counter()

    async def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        self.by_operator[call.operator] += 1
        self.by_bytes[call.call, *map(bytes, call.data.values())] += 1
        return await super().execute(call, timeout, request_id)


def crowd_of(operator: str, *, rounds: int, repeat: int) -> Counting:
    transport = Counting()
    cases = select(statements(), Selection(operators=(operator,), blocks=("crowd",)))
    runner = Runner(judged(client_of(transport), "local:"), rounds=rounds, repeat=repeat)
    assert failed([next(iter(runner.run(cases)))]) == []
    return transport


def test_what_is_found_comes_in_order_though_the_last_is_found_first() -> None:
    last = Event()

    def work(number: int) -> int:
        if number == 2:
            last.set()
        return number if last.wait(PATIENCE) else -1

    assert list(in_order(work, range(3), 3, alone=lambda _: False)) == [0, 1, 2]


def test_nothing_is_worked_on_beside_what_is_to_be_alone() -> None:
    under_way: set[int] = set()
    beside: list[set[int]] = []

    def work(number: int) -> int:
        under_way.add(number)
        if number == 5:
            beside.append(set(under_way))
        under_way.discard(number)
        return number

    found = list(in_order(work, range(9), 4, alone=lambda number: number == 5))
    assert (found, beside) == (list(range(9)), [{5}])


def test_a_crowd_asks_for_several_operators_and_has_a_call_twice_with_different_numbers() -> None:
    asked = crowd_of(ADD, rounds=1, repeat=1)
    assert len(asked.by_operator) > CALLERS // 3
    assert Counter(call for call, *_ in asked.by_bytes).most_common(1)[0][1] == 2


def test_each_call_of_a_crowd_is_asked_in_every_round_and_one_as_often_as_a_run_repeats() -> None:
    times = crowd_of(ADD, rounds=3, repeat=20).by_bytes
    # Each once for its truth; the first before that as every case is.
    assert sorted(times.values()) == [4] * (CALLERS - 1) + [1 + 1 + 20]
