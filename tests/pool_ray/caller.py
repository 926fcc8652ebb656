"""A user's program on a pool, without Ray: compares every answer until its input is closed.

Prints "calling" after its first answers, and at the end what happened, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

import numpy as np

from npucall.errors import NpucallError
from npucall_client import Client, connect

THREADS = 3
ELEMENTS = 16_384
SECONDS = 60.0
"""Timeout of a call."""


@dataclass
class Story:
    right: int = 0
    wrong: int = 0
    slowest: float = 0.0
    errors: list[str] = field(default_factory=list)


def main() -> None:
    story, lock, ending = Story(), threading.Lock(), threading.Event()
    given = np.random.default_rng(7).standard_normal((3, ELEMENTS)).astype(np.float32)
    tensors = dict(zip(("grad_output", "self", "target"), given, strict=True))

    def computed(client: Client) -> bytes:
        answer = client.run("aclnnKlDivTargetBackward", variant="builtin", reduction=0, **tensors)
        return bytes(answer.tobytes())

    with connect("local:") as local:
        expected = computed(local)
    with connect(sys.argv[1], timeout=SECONDS) as pool:

        def work() -> None:
            while not ending.is_set():
                began = time.monotonic()
                try:
                    is_right = computed(pool) == expected
                except NpucallError as error:
                    with lock:
                        story.errors.append(f"{type(error).__name__}: {error}")
                    time.sleep(0.1)
                    continue
                took = time.monotonic() - began
                with lock:
                    story.right += is_right
                    story.wrong += not is_right
                    story.slowest = max(story.slowest, took)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        while story.right < THREADS and not story.errors:
            time.sleep(0.05)
        print("calling", flush=True)
        sys.stdin.read()
        ending.set()
        for thread in threads:
            thread.join()
    print(json.dumps({**asdict(story), "errors": story.errors[:5], "failed": len(story.errors)}))


if __name__ == "__main__":
    main()
