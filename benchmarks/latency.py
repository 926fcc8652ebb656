"""Small calls: the complete service against the yardstick, in turn, in one run."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from yardstick import YardstickClient, running_yardstick

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP_BYTES = 16 << 20


@dataclass(frozen=True)
class Figure:
    """A ratio to the yardstick: median over rounds, and how far the rounds lie apart."""

    name: str
    ratio: float
    spread: float
    better: str
    must: float
    absolute: float
    unit: str

    @property
    def reached(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio <= self.must if self.better == "lower" else self.ratio >= self.must


def tensors(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Three float32 tensors of that many bytes each."""
    random = np.random.default_rng(1)
    return tuple(random.random(size // 4, np.float32) for _ in range(3))


def p50(run: Callable[[], object], calls: int) -> float:
    """Median seconds of a call."""
    spent = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def rate(run: Callable[[], object], callers: int, calls: int) -> float:
    """Calls a second of several callers, a thread each."""

    def caller(_: int) -> None:
        for _ in range(calls // callers):
            run()

    with ThreadPoolExecutor(callers) as pool:
        start = time.perf_counter()
        list(pool.map(caller, range(callers)))
    return calls / (time.perf_counter() - start)


def measure(rounds: int, calls: int) -> list[Figure]:
    """The figures at 1 KiB: median latency of one caller, rate of 8 and of 32."""
    with (
        running_yardstick() as yardstick_target,
        running_server("--queue-length", "64") as server,
        YardstickClient(yardstick_target) as yardstick,
        npucall_client.connect(server.target) as client,
    ):
        small, large = tensors(1024), tensors(WARM_UP_BYTES)

        def run_yardstick() -> object:
            return yardstick.run(*small)

        def run_npucall() -> object:
            return client.run(kl_div_backward, *small)

        np.testing.assert_array_equal(run_npucall(), run_yardstick())
        yardstick.run(*large)
        client.run(kl_div_backward, *large)
        figures = [
            _figure("1 KiB, 1 caller, p50", "lower", 1.15, "ms", rounds, 1e3, run_npucall,
                    run_yardstick, lambda run: p50(run, calls)),
        ]  # fmt: skip
        for callers, must in (8, 0.9), (32, 0.8):
            figures.append(
                _figure(f"1 KiB, {callers} callers, calls a second", "higher", must, "1/s", rounds,
                        1.0, run_npucall, run_yardstick,
                        lambda run, callers=callers: rate(run, callers, calls * 2)),
            )  # fmt: skip
    return figures


def _figure(  # noqa: PLR0913
    name: str,
    better: str,
    must: float,
    unit: str,
    rounds: int,
    scale: float,
    candidate: Callable[[], object],
    yardstick: Callable[[], object],
    measure_one: Callable[[Callable[[], object]], float],
) -> Figure:
    pairs = []
    for index in range(rounds):  # whoever is first in one round is second in the next
        if index % 2:
            ours, theirs = measure_one(candidate), measure_one(yardstick)
        else:
            theirs, ours = measure_one(yardstick), measure_one(candidate)
        pairs.append((ours / theirs, ours))
    ratios = [ratio for ratio, _ in pairs]
    spread = max(ratios) - min(ratios)
    absolute = statistics.median(ours for _, ours in pairs) * scale
    return Figure(name, statistics.median(ratios), spread, better, must, absolute, unit)
