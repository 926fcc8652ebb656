"""Callers of every kind at once, who notice a call that is lost and an answer that is wrong."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client.remote.retry import Attempts
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from npucall.dtypes import AnyArray
    from npucall.errors import NpucallError
    from npucall_client import Client

    Judge = Callable[[Any, int], None]
    """Hears an answer, and the number that it was asked for."""

SMALL, LARGE = 256, 2**19
STREAM_FROM = 2**20
"""Less than the bytes of a LARGE tensor, so that it travels in chunks."""
ONE = np.ones((), np.float32)


class Load:
    """Callers that call until they are stopped, each in a thread with a client of its own.

    ``kinds``: one a caller, of the names of ``KINDS``.
    """

    def __init__(self, target: str, *kinds: str) -> None:
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.right: Counter[str] = Counter()
        """Answers, by the kind of their caller."""
        self._target = target
        self._ended = threading.Event()
        self._steps = [0] * len(kinds)
        self._threads = [
            threading.Thread(target=self._call, args=(number, kind))
            for number, kind in enumerate(kinds)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for_answers()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answers(self, within: float = wire.PATIENCE) -> None:
        """Returns once each caller has a further answer, or has lost a call."""
        before = list(self._steps)
        wire.until(
            lambda: all(now > then for now, then in zip(self._steps, before, strict=True)),
            "each caller gets an answer",
            within,
        )

    def check(self) -> None:
        assert not self.wrong, self.wrong[:5]
        assert not self.lost, self.lost[:5]

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.right.items()))
        return (
            f"{self.right.total():,} answers ({kinds}), {len(self.lost)} calls lost, "
            f"{len(self.wrong)} answers wrong"
        )

    def _call(self, caller: int, kind: str) -> None:
        numbers = itertools.cycle(range(1000 * caller + 1, 1000 * caller + 1000))  # nobody else's
        while not self._ended.is_set():
            try:
                self._call_until_one_is_lost(caller, kind, numbers)
            except Exception as error:  # noqa: BLE001  # whatever it is, a call is lost
                self.lost.append(f"{kind}: {type(error).__name__}: {error}")
                self._steps[caller] += 1

    def _call_until_one_is_lost(self, caller: int, kind: str, numbers: Iterator[int]) -> None:
        with npucall_client.connect(
            self._target, stream_from=STREAM_FROM, connect_timeout=wire.PATIENCE
        ) as client:
            for _ in KINDS[kind](client, numbers, self._judge):
                self.right[kind] += 1
                self._steps[caller] += 1
                if self._ended.is_set():
                    return

    def _judge(self, answer: Any, number: int) -> None:
        if not (answer == -number).all():
            self.wrong.append(f"expected {-number}, found {np.unique(answer)[:5]}")


def _run(client: Client, target: AnyArray) -> AnyArray:
    return client.run(kl_div_backward, ONE, target, target, reduction=2)


def _unary(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    for number in numbers:
        judge(_run(client, np.full(SMALL, number, np.float32)), number)
        yield


def _large(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    for number in numbers:
        judge(_run(client, np.full(LARGE, number, np.float32)), number)
        yield


def _newcomer(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    """Connects for one call; who calls it begins anew."""
    number = next(numbers)
    judge(_run(client, np.full(SMALL, number, np.float32)), number)
    yield


def _pipeline(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    with client.pipeline() as pipeline:
        while True:
            pending = []
            for size in (SMALL, SMALL, LARGE, SMALL):
                number = next(numbers)
                target = np.full(size, number, np.float32)
                call = pipeline.submit(kl_div_backward, ONE, target, target, reduction=2)
                pending.append((call, number))
            for call, number in pending:
                judge(call.result(), number)
                yield


def _shared(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    while True:
        with client.shared(2**20) as memory:
            target, out = memory.empty(2**16, np.float32), memory.empty(2**16, np.float32)
            writing = client.options(outputs={"out": out})
            for number in itertools.islice(numbers, 10):
                target[:], out[:] = number, 0
                judge(_run(writing, target), number)
                yield


KINDS = {
    "unary": _unary,
    "large": _large,
    "newcomer": _newcomer,
    "pipeline": _pipeline,
    "shared": _shared,
}


class Supervised:
    """A server that is started again at once when it has ended, at the same address."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self._stack = ExitStack()
        self._server = self._stack.enter_context(running_server(*flags))
        self.target = self._server.target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def drain(self) -> None:
        assert self._server.stop() == 0
        self._restart()

    def kill(self) -> None:
        self._server.process.kill()
        self._server.process.wait()
        self._restart()

    def _restart(self) -> None:
        self._stack.close()
        self._server = self._stack.enter_context(running_server(*self._flags, listen=self.target))


@contextmanager
def counted_repeats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often calls of this process are sent once more, by what happened to them."""
    repeats: Counter[str] = Counter()
    pause_after = Attempts.pause_after

    def counting(self: Attempts, error: NpucallError) -> float | None:
        pause = pause_after(self, error)
        if pause is not None:
            repeats[type(error).__name__] += 1
        return pause

    with monkeypatch.context() as patch:
        patch.setattr(Attempts, "pause_after", counting)
        yield repeats
