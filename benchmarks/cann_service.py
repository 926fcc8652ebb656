"""The complete server: simulated NPUs against the CPU device, in turn, in one run."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from ways import tensors

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall_client import Client

SERVERS = {
    "npu": ("--device", "cann:0"),
    "npu, waiting": ("--device", "cann:0", "--staging-limit", "0"),
    "cpu": ("--device", "cpu"),
}
"""Flags of each; waiting: copies that wait, without pinned memory."""
KIB, MIB = 1 << 10, 1 << 20


class Compared(NamedTuple):
    """A figure of an NPU server and its ratio to that of the CPU server: medians over rounds."""

    name: str
    unit: str
    better: str
    absolute: float
    ratio: float
    spread: float
    """The largest ratio less the smallest."""


def compare(rounds: int, calls: int) -> list[Compared]:
    """Small calls of one and of eight callers, and large ones with and without pinned memory."""
    with ExitStack() as stack:
        clients = {}
        for name, flags in SERVERS.items():
            server = stack.enter_context(running_server(*flags))
            clients[name] = stack.enter_context(npucall_client.connect(server.target))
        runs = {
            (name, size): _run(client, size)
            for name, client in clients.items()
            for size in (KIB, 16 * MIB)
        }
        small = [runs["npu", KIB], runs["cpu", KIB]]
        large = {name: [runs[name, 16 * MIB], runs["cpu", 16 * MIB]] for name in clients}
        for run in runs.values():
            _p50(run, 8)
        return [
            _compared("1 KiB, 1 caller, p50", "ms", "lower", rounds, small,
                      lambda run: _p50(run, calls) * 1e3),
            _compared("1 KiB, 1 caller, calls a second", "1/s", "higher", rounds, small,
                      lambda run: _rate(run, 1, calls)),
            _compared("1 KiB, 8 callers, calls a second", "1/s", "higher", rounds, small,
                      lambda run: _rate(run, 8, calls * 2)),
            _compared("16 MiB, 1 caller, p50", "ms", "lower", rounds, large["npu"],
                      lambda run: _p50(run, 8) * 1e3),
            _compared("16 MiB, waiting, 1 caller, p50", "ms", "lower", rounds,
                      large["npu, waiting"], lambda run: _p50(run, 8) * 1e3),
        ]  # fmt: skip


def _run(client: Client, size: int) -> Callable[[], object]:
    given = tensors(size, "float32")
    return lambda: client.run(kl_div_backward, *given)


def _compared(  # noqa: PLR0913  # as the figures of latency.py
    name: str,
    unit: str,
    better: str,
    rounds: int,
    pair: Sequence[Callable[[], object]],
    measure: Callable[[Callable[[], object]], float],
) -> Compared:
    measured: tuple[list[float], list[float]] = [], []
    for index in range(rounds):  # whoever is first in one round is second in the next
        for which in (index % 2, 1 - index % 2):
            measured[which].append(measure(pair[which]))
    npu, cpu = measured
    ratios = [ours / theirs for ours, theirs in zip(npu, cpu, strict=True)]
    spread = max(ratios) - min(ratios)
    return Compared(name, unit, better, statistics.median(npu), statistics.median(ratios), spread)


def _p50(run: Callable[[], object], calls: int) -> float:
    """Median seconds of a call."""
    spent = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def _rate(run: Callable[[], object], callers: int, calls: int) -> float:
    """Calls a second of several callers, a thread each."""

    def caller(_: int) -> None:
        for _ in range(calls // callers):
            run()

    with ThreadPoolExecutor(callers) as pool:
        start = time.perf_counter()
        list(pool.map(caller, range(callers)))
    return calls / (time.perf_counter() - start)
