"""Calls without end until its input ends; then what was seen, as JSON.

    python -m tests.pool_slurm.caller THREADS

Which pool it calls, and whom of it, the client's variables say.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from typing import NamedTuple

import numpy as np

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.threshold_backward import threshold_backward

SIZES = (1024, 1024, 1024, 600_000)
"""Elements: messages, and one call that travels in chunks."""


class Case(NamedTuple):
    """A call whose answer is exact on every device."""

    gradient: np.ndarray
    point: np.ndarray
    expected: np.ndarray


def main() -> None:
    drawn = np.random.default_rng(7)
    cases = [case(*drawn.standard_normal((2, size), np.float32)) for size in SIZES]
    over = threading.Event()
    with npucall_client.connect() as client:
        sights = [Sight(client, cases) for _ in range(int(sys.argv[1]))]
        threads = [threading.Thread(target=sight.calls, args=(over,)) for sight in sights]
        for thread in threads:
            thread.start()
        print("calls", flush=True)
        sys.stdin.read()
        over.set()
        for thread in threads:
            thread.join()
    told = {
        "right": sum(sight.right for sight in sights),
        "wrong": sum(sight.wrong for sight in sights),
        "errors": [error for sight in sights for error in sight.errors],
        "slowest": max(sight.slowest for sight in sights),
        "devices": sum((sight.devices for sight in sights), Counter()),
        "instances": sum((sight.instances for sight in sights), Counter()),
    }
    print(json.dumps(told), flush=True)


def case(gradient: np.ndarray, point: np.ndarray) -> Case:
    """The gradient where the point lies above a half, else 0."""
    return Case(gradient, point, np.where(point > 0.5, gradient, np.float32(0)))


class Sight:
    """What one thread saw."""

    def __init__(self, client: npucall_client.Client, cases: list[Case]) -> None:
        self._client, self._cases = client, cases
        self.right = self.wrong = 0
        self.errors: list[str] = []
        self.slowest = 0.0
        self.devices: Counter[str] = Counter()
        self.instances: Counter[str] = Counter()

    def calls(self, over: threading.Event) -> None:
        """Until it is over."""
        while not over.is_set():
            for each in self._cases:
                began = time.monotonic()
                try:
                    self._call(each)
                except NpucallError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                self.slowest = max(self.slowest, time.monotonic() - began)

    def _call(self, each: Case) -> None:
        answer = self._client.execute(threshold_backward, each.gradient, each.point, 0.5)
        same = np.array_equal(answer.value.view(np.uint32), each.expected.view(np.uint32))
        self.right += same
        self.wrong += not same
        self.devices[answer.server.device] += 1
        self.instances[answer.server.instance] += 1


if __name__ == "__main__":
    main()
