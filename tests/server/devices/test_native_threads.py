"""A thread has ended when the system says so, not when Python does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from npucall_server.devices import native_threads
from npucall_server.devices.native_threads import EndingThreads, NativeThread

PATIENCE = 20.0


class Running:
    """A thread that ends when it is told."""

    def __init__(self) -> None:
        self.made: list[NativeThread] = []
        self._end, known = threading.Event(), threading.Event()

        def run() -> None:
            self.made.append(NativeThread())
            known.set()
            self._end.wait(PATIENCE)

        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert known.wait(PATIENCE)

    def end(self) -> None:
        self._end.set()


def test_a_thread_that_runs_has_not_ended() -> None:
    running, ending = Running(), EndingThreads()
    ending.add(running.made[0])
    assert (running.made[0].has_ended, ending.wait(0.01)) == (False, 1)
    running.end()
    assert ending.wait(PATIENCE) == 0
    assert running.made[0].has_ended


def test_the_number_of_a_thread_may_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = NativeThread()
    assert not thread.has_ended
    monkeypatch.setattr(native_threads, "_start_time", lambda stat: "another one's")
    assert thread.has_ended


def test_where_nothing_is_known_of_threads_they_count_as_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native_threads, "Path", lambda _: tmp_path / "nothing")
    assert NativeThread().has_ended


def test_threads_that_have_ended_are_not_kept() -> None:
    ending = EndingThreads()
    for _ in range(5):
        running = Running()
        running.end()
        last = EndingThreads()
        last.add(running.made[0])
        assert last.wait(PATIENCE) == 0
        ending.add(running.made[0])
    assert len(ending._threads) == 1
