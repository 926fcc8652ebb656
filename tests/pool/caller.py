"""Calls without end until its input says stop; then what was seen, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from itertools import cycle
from typing import Any

import numpy as np

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward

ONE = np.ones(1, np.float32)
MIB = 2**20
_ERRORS = 5


class Case:
    """A call of a size, with the answer that it must have."""

    def __init__(self, nbytes: int, seed: int) -> None:
        drawn = np.random.default_rng(seed).standard_normal((2, nbytes // 4), np.float32)
        self.inputs = (ONE, drawn[0], drawn[1])
        self.weight = 1.0 + sum(each.nbytes for each in self.inputs) / MIB
        with npucall_client.connect("local:") as here:
            self.expected = bits(here.run(l1_loss_backward, *self.inputs))


def bits(array: Any) -> np.ndarray[Any, Any]:
    """Bits, so that NaN and zeros are compared too."""
    return np.asarray(array).view(np.uint32)


class Caller:
    """One thread, and what it saw."""

    def __init__(self, cases: list[Case], client: npucall_client.Client) -> None:
        self.cases, self.client = cases, client
        self.right = self.wrong = 0
        self.errors: list[str] = []
        self.slowest = 0.0
        self.by_server: Counter[str] = Counter()

    def calls(self, over: threading.Event) -> None:
        for case in cycle(self.cases):
            if over.is_set():
                return
            self.call(case)

    def call(self, case: Case) -> None:
        began = time.monotonic()
        try:
            answer = self.client.execute(l1_loss_backward, *case.inputs)
        except NpucallError as error:
            self.errors.append(f"after {time.monotonic() - began:.2f} s {error!r}")
            return
        self.slowest = max(self.slowest, time.monotonic() - began)
        same = np.array_equal(bits(answer.value), case.expected)
        self.right += same
        self.wrong += not same
        self.by_server[answer.server.instance] += case.weight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 4096, 4096, 262_144])
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args()
    made = {size: Case(size, size) for size in options.sizes}
    cases = [made[size] for size in options.sizes]
    over = threading.Event()
    clients = [
        npucall_client.connect(options.target, timeout=options.timeout)
        for _ in range(options.clients)
    ]
    callers = [
        Caller(cases[turn % len(cases) :] + cases[: turn % len(cases)], client)
        for client in clients
        for turn in range(options.threads)
    ]
    threads = [threading.Thread(target=caller.calls, args=(over,)) for caller in callers]
    callers[0].call(cases[0])
    for thread in threads:
        thread.start()
    print("calls", flush=True)
    sys.stdin.readline()
    over.set()
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
        "fewest": min(caller.right for caller in callers),
    }


if __name__ == "__main__":
    main()
