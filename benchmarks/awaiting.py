"""``make bench-aio``: calls a second with 32 in flight, by threads and by asyncio, in turns.

Small calls of 1 KiB: as calls of their own, and in a pipeline. Each round measures both clients on
the same server; what counts is the median of the rounds' ratios. The CPU of this process a call is
told too: where the machine is busy, threads get more of it than a loop. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

import npucall_client
import npucall_client.aio
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

IN_FLIGHT = 32
_KIB = np.ones(1024 // 4, np.float32)
GIVEN = _KIB[:1], _KIB, _KIB
"""Inputs of a call."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000, help="of a round, for each client")
    options = parser.parse_args(arguments)
    with running_server("--log-calls", "errors") as server:
        for line in asyncio.run(measured(server.target, options.rounds, options.calls)):
            print(line)


async def measured(target: str, rounds: int, calls: int) -> list[str]:
    """A line for each way in which calls travel."""
    async with npucall_client.aio.connect(target) as client:
        with (
            npucall_client.connect(target) as blocking,
            ThreadPoolExecutor(IN_FLIGHT) as threads,
        ):
            return [
                await _compared(
                    "calls",
                    lambda: _in_threads(blocking, threads, calls),
                    lambda: _in_tasks(client, calls),
                    rounds,
                    calls,
                ),
                await _compared(
                    "pipeline",
                    lambda: _in_a_pipeline(blocking, calls),
                    lambda: _in_an_awaited_pipeline(client, calls),
                    rounds,
                    calls,
                ),
            ]


async def _compared(
    name: str,
    blocking: Callable[[], object],
    awaited: Callable[[], Awaitable[object]],
    rounds: int,
    calls: int,
) -> str:
    """Both in turns, the loop idle while threads call."""
    rates: dict[str, list[float]] = {"threads": [], "asyncio": []}
    costs: dict[str, list[float]] = {"threads": [], "asyncio": []}
    for number in range(rounds + 1):
        for which in ("threads", "asyncio") if number % 2 else ("asyncio", "threads"):
            began, cpu = time.perf_counter(), time.process_time()
            if which == "threads":
                await asyncio.to_thread(blocking)
            else:
                await awaited()
            rates[which].append(calls / (time.perf_counter() - began))
            costs[which].append((time.process_time() - cpu) / calls * 1e6)
    ours, theirs = rates["asyncio"][1:], rates["threads"][1:]  # the first round warms up
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return (
        f"{name}: {statistics.median(theirs):.0f} a second by threads, "
        f"{statistics.median(ours):.0f} by asyncio, ratio {statistics.median(ratios):.2f}; "
        f"{statistics.median(costs['threads']):.0f} us of the client's CPU a call, and "
        f"{statistics.median(costs['asyncio']):.0f}"
    )


def _in_threads(client: npucall_client.Client, threads: ThreadPoolExecutor, calls: int) -> None:
    def some(count: int) -> None:
        for _ in range(count):
            client.run(l1_loss_backward, *GIVEN)

    list(threads.map(some, _shares(calls)))


async def _in_tasks(client: npucall_client.aio.Client, calls: int) -> None:
    async def some(count: int) -> None:
        for _ in range(count):
            await client.run(l1_loss_backward, *GIVEN)

    await asyncio.gather(*map(some, _shares(calls)))


def _in_a_pipeline(client: npucall_client.Client, calls: int) -> None:
    with client.pipeline() as pipeline:
        waiting: list[Any] = []
        for _ in range(calls):
            if len(waiting) == IN_FLIGHT:
                waiting.pop(0).result()
            waiting.append(pipeline.submit(l1_loss_backward, *GIVEN))
        for call in waiting:
            call.result()


async def _in_an_awaited_pipeline(client: npucall_client.aio.Client, calls: int) -> None:
    async with client.pipeline() as pipeline:
        waiting: list[Any] = []
        for _ in range(calls):
            if len(waiting) == IN_FLIGHT:
                await waiting.pop(0)
            waiting.append(await pipeline.submit(l1_loss_backward, *GIVEN))
        for call in waiting:
            await call


def _shares(calls: int) -> list[int]:
    """How many calls each of those in flight makes, one after the other."""
    return [calls // IN_FLIGHT + (number < calls % IN_FLIGHT) for number in range(IN_FLIGHT)]


if __name__ == "__main__":
    main()
