"""Threads of tests, and their ends."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread, get_native_id
from time import sleep


def in_thread(run: Callable[[], object]) -> object:
    """What ``run`` answers in a new thread."""
    answers: list[object] = []
    thread = Thread(target=lambda: answers.append(run()))
    thread.start()
    thread.join()
    return answers[0]


def native_end(run: Callable[[], object], behind: Callable[[], object] = lambda: None) -> None:
    """Runs this in a new thread, and returns when the system's thread has gone.

    ``behind`` is called as soon as Python takes the thread for ended, which is earlier.
    """
    numbers: list[int] = []

    def work() -> None:
        numbers.append(get_native_id())
        run()

    in_thread(work)
    behind()
    while Path(f"/proc/self/task/{numbers[0]}").exists():
        sleep(0.001)
