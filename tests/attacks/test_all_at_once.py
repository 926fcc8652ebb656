"""All at once: three users of a pool work beside strangers, a greedy tenant and broken members.

On one member a stranger has 1,000 connections whose requests never end, and a tenant has 500
connections under 20 names. Three more members answer what is no answer, fail, and are of another
kind. The processor that the attackers take is taken in the quiet phase, too, by processes that
compute. A user whose calls travel over gRPC, as those of the greedy do, loses none either; but gRPC
hands calls over in the order in which they come, so behind 500 others his are as late as theirs.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.client import fake_server as fake
from tests.client.pool.test_broken_members import Server, serving

from npucall.errors import InternalError
from npucall.products import DEFAULT_SOC
from npucall_client.testing import running_server

from . import requests
from .clients import Seen, clients, polite
from .http2 import connected, message, pump
from .servers import Start
from .test_tenants import another, tenants, usage

pytestmark = pytest.mark.long

ATTACKS = "tests.attacks.test_all_at_once"
STRANGERS, NAMES, GREEDY = 1000, 20, 500
SECONDS = 20.0
OTHER_SOC = "Ascend310P3"
BROKEN_CALLS = 10
"""Of each user: what a member that fails gets before it rests, and when it comes back."""


@contextmanager
def broken_members() -> Iterator[list[str]]:
    """One that answers nothing, one that fails, one of another kind."""
    answers = [lambda *_: b"", fake.fail(InternalError("a bug"))]
    broken = [Server(DEFAULT_SOC, answer) for answer in answers]
    with serving(*broken) as found, running_server(f"--soc={OTHER_SOC}") as other:
        yield [*found, other.target]


def watched(users: list[Seen]) -> Seen:
    """What all users saw together."""
    seconds = [each for user in users for each in user.seconds]
    return Seen(seconds, [each for user in users for each in user.lost])


def test_users_of_a_pool_lose_nothing_whatever_comes_at_once(start: Start, tmp_path: Path) -> None:
    flags, token_of = tenants(tmp_path, users="", greedy="")
    names = [another(tmp_path, "greedy", f"name-{number}") for number in range(NAMES)]
    people = [another(tmp_path, "users", name) for name in ("anna", "ben", "cem")]
    with (
        start(*flags, limit=2**30) as server,
        running_server(*flags) as second,
        broken_members() as broken,
        ExitStack() as stack,
    ):
        target = "pool:" + ",".join([server.target, second.target, *broken])
        told = [stack.enter_context(polite(target, token=token)) for token in people]
        over_grpc = stack.enter_context(polite(target, token=people[0], carrier="grpc"))
        with ExitStack() as busy:
            for _ in range(2):
                busy.enter_context(clients(ATTACKS, "", "compute"))
            time.sleep(SECONDS)
            quiet, quiet_grpc = watched([seen() for seen in told]), over_grpc()
        with (
            clients(ATTACKS, server.target, "strangers"),
            clients(ATTACKS, server.target, "greedy", *names),
        ):
            time.sleep(SECONDS)
            beside, beside_grpc = watched([seen() for seen in told]), over_grpc()
            descriptors = server.descriptors()
        calls, held = usage(server.target, token_of["office"])
        server.note(
            f"quiet {quiet}", f"beside all {beside}", f"{calls} calls of all there",
            f"{descriptors} descriptors", f"over gRPC quiet {quiet_grpc}, beside all {beside_grpc}",
        )  # fmt: skip
        assert descriptors > STRANGERS // 2
        assert held["greedy"] > 0, "the greedy had answers too"
        for seen in quiet, beside, quiet_grpc, beside_grpc:
            assert len(seen.seconds) > 100
            assert set(seen.lost) <= {"InternalError"}, "from the member that fails, alone"
            assert len(seen.lost) <= BROKEN_CALLS * len(people)
        assert beside.p99 <= 2 * quiet.p99
        assert server.peak() < server.promise


def strangers(target: str) -> None:
    """Requests without an end, of which something moves all the time."""
    with connected(target, STRANGERS) as made:
        for each in made:
            each.call("Execute", end=False)
        print("begun", flush=True)
        while True:
            for each in made:
                each.allow(0, 1)
            pump(made, 0.5)


def greedy(target: str, *names: str) -> None:
    """A call on each connection, and the next one as soon as it has been answered."""
    small = message(requests.SMALL)
    with connected(target, GREEDY) as made:
        print("begun", flush=True)
        while True:
            for number, each in enumerate(made):
                if not each.open_streams:
                    each.call("Execute", *small, token=names[number % len(names)])
            pump(made, 0.05)


def compute(_: str) -> None:
    print("begun", flush=True)
    while True:
        pass


if __name__ == "__main__":
    os.nice(19)
    kind = {"strangers": strangers, "greedy": greedy, "compute": compute}[sys.argv[2]]
    kind(sys.argv[1], *sys.argv[3:])
