"""Hostile callers in a process of their own: ``python -m tests.attacks.hostile TARGET LIMIT``.

They let loose one attack after the other, in any order, until somebody ends them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import grpc

from .attacks import let_loose
from .raw import Raw, pump

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLD_SECONDS = 4.0
"""For which an attack stands, with its connections open."""


@contextmanager
def hostile(target: str, limit: int, processes: int) -> Iterator[None]:
    """So many processes of hostile callers against a server of that memory_limit."""
    command = [sys.executable, "-m", "tests.attacks.hostile", target, str(limit)]
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        yield


def main(target: str, limit: int) -> None:
    attacks = list(let_loose(target, limit).values())
    while True:
        with suppress(OSError, grpc.RpcError), random.choice(attacks)() as held:
            pump([held] if isinstance(held, Raw) else held, HOLD_SECONDS)
        time.sleep(0.1)  # a server that refuses all connections


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
