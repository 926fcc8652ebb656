"""``make bench-pool``: what a pool costs a call, and what more servers give, on this machine.

A call of a pool of one member beside the same call on that server, in turns; the choice among 24
members alone; calls a second of many callers on 1, 2 and 4 servers. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.pool.members import Member
from npucall_client.pool.picking import Requirements, Wanted
from npucall_client.pool.table import Table
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall_client import Client

KIB = 1024
_WARM = 200
_MEMBERS = 24
_CALLERS = 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each throughput")
    options = parser.parse_args(arguments)
    print(f"choice among {_MEMBERS} members: {choice():.2f} us of CPU")
    print(beside(options.pairs))
    for size in (KIB, 1024 * KIB):
        found = {count: throughput(count, size, options.seconds) for count in (1, 2, 4)}
        told = ", ".join(f"{count}: {each:.0f}" for count, each in found.items())
        print(f"calls of {size // KIB} KiB a second by servers, {_CALLERS} callers: {told}")


def tensors(nbytes: int) -> tuple[Any, ...]:
    """Inputs of a call."""
    drawn = np.random.default_rng(0).standard_normal((2, nbytes // 4), np.float32)
    return np.ones(1, np.float32), *drawn


def choice(rounds: int = 20_000) -> float:
    """Microseconds of this thread's CPU for a choice and its end; the best of five."""
    table: Table[Any] = Table(Requirements())
    members = [Member(f"h{number}:1", instance="1", soc="A") for number in range(_MEMBERS)]
    table.update(members, complete=True)
    for each in table.known.values():
        each.link = each
        table.learn(each, each.member)  # as if each had said what it is
    wanted = Wanted("aclnnL1LossBackward", "", 3 * KIB)

    def once() -> float:
        began = time.thread_time()
        for _ in range(rounds):
            chosen = table.take(wanted)
            if chosen is not None:
                table.give_back(chosen, wanted.nbytes, well=True)
        return (time.thread_time() - began) / rounds * 1e6

    return min(once() for _ in range(5))


def beside(pairs: int) -> str:
    """Medians of calls in turns: on a server, and in a pool that has no other."""
    given = tensors(KIB)
    with (
        running_server("--log-calls", "errors") as server,
        npucall_client.connect(server.target) as direct,
        npucall_client.connect(f"pool:{server.target}") as pool,
    ):
        calls = [lambda c=c: c.run(l1_loss_backward, *given) for c in (direct, pool)]
        for call in calls * _WARM:
            call()
        times: list[list[float]] = [[], []]
        for number in range(pairs):
            for which in (0, 1) if number % 2 else (1, 0):
                times[which].append(seconds(calls[which]))
    own, other = map(statistics.median, times)
    return (
        f"1 KiB: p50 {own * 1e6:.0f} us on a server, {other * 1e6:.0f} us in a pool, "
        f"ratio {other / own:.3f}"
    )


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def throughput(servers: int, nbytes: int, lasts: float) -> float:
    """Calls a second."""
    given = tensors(nbytes)
    counts = [0] * _CALLERS
    over = threading.Event()

    def work(client: Client, number: int) -> None:
        while not over.is_set():
            client.run(l1_loss_backward, *given)
            counts[number] += 1

    with ExitStack() as stack:
        every = [
            stack.enter_context(running_server("--log-calls", "errors")) for _ in range(servers)
        ]
        target = "pool:" + ",".join(each.target for each in every)
        client = stack.enter_context(npucall_client.connect(target))
        threads = [threading.Thread(target=work, args=(client, n)) for n in range(_CALLERS)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        before, began = sum(counts), time.monotonic()
        time.sleep(lasts)
        rate = (sum(counts) - before) / (time.monotonic() - began)
        over.set()
        for thread in threads:
            thread.join()
    return rate


if __name__ == "__main__":
    sys.exit(main())
