"""Calls a target until SIGTERM, compares every answer, and prints a line of JSON about them.

Before that it prints "calling", once each caller has had an answer.

A program of its own, since it runs in a container that has the client alone.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

import numpy as np

import npucall_client

CALLERS = 4
ELEMENTS = 16_384


class Load:
    """Callers with a client each, and the sums of what they saw."""

    def __init__(self, target: str) -> None:
        self.ended = threading.Event()
        self.right, self.wrong, self.slowest = 0, 0, 0.0
        self.errors: list[str] = []
        self._target = target
        self._lock = threading.Lock()
        self.calling = threading.Barrier(CALLERS, action=lambda: print("calling", flush=True))

    def call(self, seed: int) -> None:
        """Calls one after the other with numbers of its own."""
        generator = np.random.default_rng(seed)
        arrays = [generator.random(ELEMENTS, np.float32) for _ in range(3)]
        with npucall_client.connect("local:") as reference:
            expected = reference.run("aclnnKlDivBackward", *arrays)
        with npucall_client.connect(self._target) as client:
            client.run("aclnnKlDivBackward", *arrays)
            self.calling.wait()
            while not self.ended.is_set():
                start = time.monotonic()
                try:
                    answer = client.run("aclnnKlDivBackward", *arrays)
                except Exception as error:  # noqa: BLE001  # each is counted, whatever it is
                    self._count(error=f"{type(error).__name__}: {error}")
                    continue
                same = np.array_equal(answer, expected)
                self._count(same=same, seconds=time.monotonic() - start)

    def _count(self, *, same: bool = False, seconds: float = 0.0, error: str = "") -> None:
        with self._lock:
            self.right += same
            self.wrong += not same and not error
            self.errors += [error] if error else []
            self.slowest = max(self.slowest, seconds)

    def shown(self) -> str:
        """One line of JSON."""
        seen = {"right": self.right, "wrong": self.wrong, "slowest": round(self.slowest, 3)}
        return json.dumps({**seen, "errors": self.errors[:5]})


def main() -> None:
    """Calls the target of the command line."""
    load = Load(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: load.ended.set())
    threads = [threading.Thread(target=load.call, args=(seed,)) for seed in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(load.shown(), flush=True)


if __name__ == "__main__":
    main()
