"""Threads.start with a line: short tasks in one thread, and none waits for one that takes long."""

import pytest
from tests.server.fakes import until

from npucall_server.carriers.threads import TaskLine, Threads

from .test_threads import Bench, Clock, Task, all_begin, all_idle, begun, bench, clock, workers

__all__ = ["bench", "clock"]


def start(bench: Bench, subject: Threads, line: TaskLine, count: int) -> list[Task]:
    tasks = [Task() for _ in range(count)]
    bench.tasks(tasks)
    for task in tasks:
        subject.start(task, line)
    return tasks


def test_tasks_of_a_line_begin_one_after_the_other_in_one_thread(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=4, at_once=2)
    tasks = start(bench, subject, TaskLine(), 5)
    for done, task in enumerate(tasks):
        all_begin([task])
        assert begun(tasks) == done + 1
        task.may_end.set()
    all_idle(subject, 1)


def test_other_lines_and_tasks_do_not_wait_for_a_line(bench: Bench, clock: Clock) -> None:
    subject = bench.threads(most=4, at_once=3)
    first = start(bench, subject, TaskLine(), 2)
    second = start(bench, subject, TaskLine(), 2)
    other = bench.submit(subject, 1)
    all_begin([first[0], second[0], *other])
    assert begun(first) + begun(second) == 2


def test_what_is_behind_a_task_that_takes_long_begins_elsewhere_in_order(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=4, at_once=1)
    slow, *others = start(bench, subject, TaskLine(), 4)
    all_begin([slow])
    clock.tick(subject)
    for done, task in enumerate(others):
        all_begin([task])
        assert begun(others) == done + 1
        task.may_end.set()
    assert not slow.may_end.is_set()
    assert len(workers()) == 2


def test_a_task_that_comes_while_one_takes_long_begins_elsewhere(
    bench: Bench, clock: Clock
) -> None:
    subject, line = bench.threads(most=4, at_once=1), TaskLine()
    slow, short = start(bench, subject, line, 2)
    clock.tick(subject)
    all_begin([slow, short])
    short.may_end.set()
    (late,) = start(bench, subject, line, 1)
    all_begin([late])


def test_a_thread_that_took_long_leaves_the_line_to_the_other_one(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=4, at_once=1)
    slow, short, behind = start(bench, subject, TaskLine(), 3)
    clock.tick(subject)
    all_begin([slow, short])
    slow.may_end.set()
    until(lambda: len(subject._idle) == 1, "its thread is idle")
    assert not behind.begun.is_set()
    short.may_end.set()
    all_begin([behind])


@pytest.mark.parametrize("count", [1, 5])
def test_a_line_whose_tasks_are_done_is_used_again(bench: Bench, clock: Clock, count: int) -> None:
    subject, line = bench.threads(most=4, at_once=1), TaskLine()
    for _ in range(3):
        for task in start(bench, subject, line, count):
            all_begin([task])
            task.may_end.set()
        all_idle(subject, 1)


def test_tasks_of_a_line_are_done_before_the_threads_end(bench: Bench, clock: Clock) -> None:
    subject = bench.threads(most=4, at_once=1)
    tasks = start(bench, subject, TaskLine(), 5)
    subject.shutdown(wait=False)
    for task in tasks:
        all_begin([task])
        task.may_end.set()
    with pytest.raises(RuntimeError):
        subject.start(lambda: None)
