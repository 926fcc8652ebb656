"""Greedy callers in a process of their own: ``python -m tests.attacks.greedy TARGET KIND CALLERS``.

They take all that the server gives them, until they are killed. ``NPUCALL_TOKEN`` says who they
are. They run with the lowest priority, since they stand for other machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

_REFUSED_SECONDS = 0.02
_STEPS, _LABELS, _CLASSES = 400, 100, 64


@contextmanager
def greedy(target: str, token: str, kind: str, callers: int) -> Iterator[None]:
    """Callers of one kind, who have begun."""
    command = [sys.executable, "-m", "tests.attacks.greedy", target, kind, str(callers)]
    environment = {**os.environ, "NPUCALL_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield
        finally:
            process.kill()


@contextmanager
def all_greedy(target: str, token: str, *kinds: str, callers: int) -> Iterator[None]:
    """Of each kind so many."""
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(greedy(target, token, kind, callers))
        yield


# --- In their process -----------------------------------------------------------------------------


def _elementwise(client: Client, size: int) -> Callable[[], object]:
    numbers = np.ones(size // 4, np.float32)
    one, zero = np.float32(1), np.float32(0)
    return lambda: client.run(l1_loss_backward, one, numbers, zero, reduction=2)


def _pipeline(client: Client) -> Callable[[], object]:
    call: Any = (l1_loss_backward, np.float32(1), np.ones(65_536, np.float32), np.float32(0))

    def many() -> None:
        with client.pipeline() as pipeline:
            for future in [pipeline.submit(*call, reduction=2) for _ in range(64)]:
                future.result()

    return many


def _ctc(client: Client) -> Callable[[], object]:
    rolls = np.random.default_rng(1)
    log_probs = rolls.standard_normal((_STEPS, 1, _CLASSES)).astype(np.float32)
    states = 2 * _LABELS + 1
    arguments: dict[str, Any] = {
        "grad_out": np.ones(1, np.float32),
        "log_probs": log_probs - np.log(np.exp(log_probs).sum(-1, keepdims=True)),
        "targets": rolls.integers(1, _CLASSES, (1, _LABELS)),
        "input_lengths": [_STEPS],
        "target_lengths": [_LABELS],
        "neg_log_likelihood": np.full(1, 500, np.float32),
        "log_alpha": np.full((1, _STEPS, states), -5, np.float32),
        "blank": 0,
        "zero_infinity": False,
    }
    return lambda: client.run("aclnnCtcLossBackward", **arguments)


def call_of(client: Client, kind: str) -> Callable[[], object]:
    """What a caller of that kind does again and again."""
    if kind == "ctc":
        return _ctc(client)
    if kind == "streams":
        return _pipeline(client)
    return _elementwise(client, {"small": 4096, "unary": 2**20, "large": 64 * 2**20}[kind])


def main(target: str, kind: str, callers: int) -> None:
    os.nice(19)
    begun = threading.Semaphore(0)

    def ask() -> None:
        with npucall_client.connect(target, wait=False) as client:
            call = call_of(client, kind)
            begun.release()
            while True:
                try:
                    call()
                except NpucallError as error:
                    if error.code.name != "RESOURCE_EXHAUSTED":
                        raise
                    time.sleep(_REFUSED_SECONDS)

    for _ in range(callers):
        threading.Thread(target=ask, daemon=True).start()
    for _ in range(callers):
        begun.acquire()
    print("begun", flush=True)
    time.sleep(1e6)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
