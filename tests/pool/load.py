"""Calls without end until SIGTERM, and compares each answer; then says what was seen, as JSON.

Prints "calls" once each caller has had an answer, "enough" after ``--enough`` of them. A program of
its own, since it runs on hosts and in containers that have the client alone.
"""

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from itertools import cycle
from typing import Any

import numpy as np

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.threshold_backward import threshold_backward

MIB = 2**20
_ERRORS = 5


class Case:
    """A call of a size. Its answer is exact on every device."""

    def __init__(self, nbytes: int) -> None:
        drawn = np.random.default_rng(nbytes).standard_normal((2, nbytes // 4), np.float32)
        self.gradient, self.point = drawn
        self.weight = 1.0 + drawn.nbytes / MIB
        self.expected = np.where(self.point > 0.5, self.gradient, np.float32(0)).view(np.uint32)


class Caller:
    """One thread, and what it saw."""

    def __init__(self, cases: list[Case], client: npucall_client.Client) -> None:
        self.cases, self.client = cases, client
        self.right = self.wrong = 0
        self.errors: list[str] = []
        self.slowest = 0.0
        self.by_server: Counter[str] = Counter()
        self.devices: Counter[str] = Counter()

    def calls(self, over: threading.Event) -> None:
        for case in cycle(self.cases):
            if over.is_set():
                return
            self.call(case)

    def call(self, case: Case) -> None:
        began = time.monotonic()
        try:
            answer = self.client.execute(threshold_backward, case.gradient, case.point, 0.5)
        except NpucallError as error:
            self.errors.append(f"after {time.monotonic() - began:.2f} s {error!r}")
            return
        self.slowest = max(self.slowest, time.monotonic() - began)
        same = np.array_equal(answer.value.view(np.uint32), case.expected)
        self.right += same
        self.wrong += not same
        self.by_server[answer.server.instance] += case.weight
        self.devices[answer.server.device] += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="?")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 4096, 4096, 262_144])
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--enough", type=int, default=sys.maxsize)
    options = parser.parse_args()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    made = {size: Case(size) for size in options.sizes}
    cases = [made[size] for size in options.sizes]
    clients = [
        npucall_client.connect(options.target, timeout=options.timeout)
        for _ in range(options.clients)
    ]
    callers = [
        Caller(cases[turn % len(cases) :] + cases[: turn % len(cases)], client)
        for client in clients
        for turn in range(options.threads)
    ]
    for caller in callers:
        caller.call(cases[0])
    threads = [threading.Thread(target=caller.calls, args=(over,)) for caller in callers]
    for thread in threads:
        thread.start()
    print("calls", flush=True)
    while not over.wait(0.1) and sum(caller.right for caller in callers) < options.enough:
        pass
    print("enough", flush=True)
    over.wait()
    for thread in threads:
        thread.join()
    print(json.dumps(seen(callers)), flush=True)
    for client in clients:
        client.close()


def seen(callers: list[Caller]) -> dict[str, Any]:
    """The sum of all."""
    return {
        "right": sum(caller.right for caller in callers),
        "wrong": sum(caller.wrong for caller in callers),
        "errors": [error for caller in callers for error in caller.errors][:_ERRORS],
        "slowest": max(caller.slowest for caller in callers),
        "by_server": dict(sum((caller.by_server for caller in callers), Counter())),
        "devices": dict(sum((caller.devices for caller in callers), Counter())),
        "fewest": min(caller.right for caller in callers),
    }


if __name__ == "__main__":
    main()
