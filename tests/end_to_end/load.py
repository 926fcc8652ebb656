"""Callers of every kind at once, who notice a call that is lost and an answer that is wrong."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

    def wait_for_answers(self, count: int = 1, within: float = wire.PATIENCE) -> None:
        """Returns once each caller has so many further answers, or has lost as many calls."""
        before = [steps + count for steps in self._steps]
        wire.until(
            lambda: all(now >= then for now, then in zip(self._steps, before, strict=True)),
            "each caller gets an answer",
            within,
        )

    def check(self) -> None:
        assert (self.wrong[:5], self.lost[:5]) == ([], [])

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
                if self._ended.is_set() or kind == "newcomer":  # who connects for each call
                    return

    def _judge(self, answer: Any, number: int) -> None:
        if not (answer == -number).all():
            self.wrong.append(f"expected {-number}, found {np.unique(answer)[:5]}")


def _call_of(target: Any) -> tuple[Any, ...]:
    return kl_div_backward, ONE, target, target, 2


def _one_by_one(size: int, client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    for number in numbers:
        judge(client.run(*_call_of(np.full(size, number, np.float32))), number)
        yield


def _unary(*arguments: Any) -> Iterator[None]:
    return _one_by_one(SMALL, *arguments)


def _large(*arguments: Any) -> Iterator[None]:
    return _one_by_one(LARGE, *arguments)


def _pipeline(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    with client.pipeline() as pipeline:
        while True:
            pending = []
            for size, number in zip((SMALL, SMALL, LARGE, SMALL), numbers, strict=False):
                call = pipeline.submit(*_call_of(np.full(size, number, np.float32)))
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
                judge(writing.run(*_call_of(target)), number)
                yield


KINDS = {
    "unary": _unary,
    "large": _large,
    "newcomer": _unary,
    "pipeline": _pipeline,
    "shared": _shared,
}
