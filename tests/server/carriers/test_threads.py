"""Threads: few at short tasks, whoever waits keeps nobody waiting, and nothing is lost."""

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest
from tests.server.fakes import PATIENCE, until

from npucall_server.carriers import threads
from npucall_server.carriers.threads import Threads

T = TypeVar("T")

NAME = "subject"
SHORT = threads._SHORT_SECONDS
AFTER_TEST = float("inf")
"""What the test's clock shows when the test is over; whoever sleeps then sleeps in earnest."""


class Clock:
    """Stands in for the module ``time``; its time passes only when the test says so."""

    def __init__(self) -> None:
        self._now, self._sleeps, self._sleepers = 0.0, 0, 0
        self._changed = threading.Condition()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        with self._changed:
            end = self._now + seconds
            self._sleeps += 1
            self._sleepers += 1
            self._changed.wait_for(lambda: self._now > end, None if end < AFTER_TEST else SHORT)
            self._sleepers -= 1

    def advance(self, seconds: float) -> None:
        with self._changed:
            self._now += seconds
            self._changed.notify_all()

    def tick(self, subject: Threads) -> None:
        """A short time passes, and the watch has seen it."""
        until(lambda: self._sleepers == 1, "the watch sleeps")
        sleeps = self._sleeps
        self.advance(2 * SHORT)
        until(lambda: self._sleeps > sleeps or not subject._watched, "the watch has looked")


class Task:
    """Begins, and ends when the test says so; its result is the thread that does it."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.future: Future[threading.Thread] = Future()

    def __call__(self) -> threading.Thread:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return threading.current_thread()

    def end(self) -> threading.Thread:
        self.may_end.set()
        return self.future.result(PATIENCE)


def submitted(subject: Threads, work: Callable[..., T], *args: object) -> Future[T]:
    """What becomes of a task."""
    future: Future[T] = Future()

    def settle() -> None:
        future.set_result(work(*args))

    subject.submit(settle)
    return future


class Thing:
    """Something that a weak reference can be to."""


class Bench:
    """Threads and tasks for them. At the end every task is ended, and every thread must end."""

    def __init__(self) -> None:
        self._subjects: list[Threads] = []
        self._tasks: list[Task] = []

    def threads(self, most: int, at_once: int) -> Threads:
        subject = Threads(most, NAME, at_once)
        self._subjects.append(subject)
        return subject

    def tasks(self, tasks: list[Task]) -> None:
        """These are to be ended too."""
        self._tasks += tasks

    def submit(self, subject: Threads, count: int) -> list[Task]:
        tasks = [Task() for _ in range(count)]
        self.tasks(tasks)
        for task in tasks:
            task.future = submitted(subject, task)
        return tasks

    def close(self) -> None:
        for task in self._tasks:
            task.may_end.set()
        for subject in self._subjects:
            subject.shutdown(wait=False)
        until(lambda: not workers(), "all threads ended")
        left = [len(subject._waiting) for subject in self._subjects]
        for subject in self._subjects:
            subject._waiting.clear()
        until(lambda: not alive(), "the watch ended")
        assert not any(left)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def clock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(threads, "time", clock)
    yield clock
    clock.advance(AFTER_TEST)


def alive() -> list[threading.Thread]:
    """The threads of the subject that live, its watch among them."""
    return [one for one in threading.enumerate() if one.name.startswith(NAME)]


def workers() -> list[threading.Thread]:
    return [one for one in alive() if not one.name.endswith("-watch")]


def at_work(subject: Threads) -> int:
    return len(workers()) - len(subject._idle)


def begun(tasks: list[Task]) -> int:
    """How many have begun, after those that could have."""
    return sum(task.begun.is_set() for task in tasks)


def all_idle(subject: Threads, count: int) -> None:
    until(lambda: len(subject._idle) == count, f"{count} threads are idle")
    assert not subject._counted
    assert len(workers()) == count


def all_begin(tasks: list[Task]) -> None:
    for task in tasks:
        assert task.begun.wait(PATIENCE)


def block(clock: Clock, subject: Threads, tasks: list[Task]) -> None:
    """Lets time pass until these tasks, which wait, have all begun."""
    for _ in tasks:
        if subject._waiting:
            clock.tick(subject)
    all_begin(tasks)


def idle(bench: Bench, clock: Clock, subject: Threads, count: int) -> list[threading.Thread]:
    """Starts that many threads, which are idle then; the last one worked last."""
    tasks = bench.submit(subject, count)
    block(clock, subject, tasks)
    done = []
    for rest, task in enumerate(tasks):
        done.append(task.end())
        until(lambda rest=rest: len(subject._idle) == rest + 1, "one more thread is idle")  # type: ignore[misc]
    return done


def together(work: Callable[[int], T], count: int) -> list[T]:
    """What threads of the test return that begin at the same moment."""
    barrier = threading.Barrier(count, timeout=PATIENCE)

    def begin(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@pytest.mark.parametrize("at_once", [1, 3])
def test_tasks_begin_in_the_order_in_which_they_came(
    bench: Bench, clock: Clock, at_once: int
) -> None:
    """All but one of the threads that may be at work are held, so that one does all the others."""
    subject = bench.threads(most=3, at_once=at_once)
    held = bench.submit(subject, at_once)
    order: list[int] = []
    futures = [submitted(subject, order.append, number) for number in range(50)]
    held[0].end()
    for future in futures:
        future.result(PATIENCE)
    assert order == list(range(50))


def test_of_several_idle_threads_those_that_worked_last_work(bench: Bench, clock: Clock) -> None:
    subject = bench.threads(most=4, at_once=4)
    *_, last_but_one, last = idle(bench, clock, subject, 4)
    first, second = bench.submit(subject, 2)
    assert (first.end(), second.end()) == (last, last_but_one)


def test_after_many_tasks_that_wait_only_so_many_are_at_short_ones(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=32, at_once=2)
    for _ in range(2):
        waiting = bench.submit(subject, 20)
        block(clock, subject, waiting)
        assert at_work(subject) == 20
        for task in waiting:
            task.end()
        all_idle(subject, 20)
        short = bench.submit(subject, 5)
        assert at_work(subject) == 2
        for task in short:
            assert task.begun.wait(PATIENCE)
            assert at_work(subject) <= 2
            task.end()
        all_idle(subject, 20)


def test_a_thread_that_waited_does_not_go_on_while_enough_others_are_at_work(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=4, at_once=1)
    waited, short, behind = bench.submit(subject, 3)
    clock.tick(subject)
    all_begin([waited, short])
    thread = waited.end()
    until(lambda: len(subject._idle) == 1, "the thread that waited is idle")
    assert not behind.begun.is_set()
    clock.tick(subject)
    assert behind.end() is thread
    short.end()
    all_idle(subject, 2)


def test_a_task_that_has_just_begun_keeps_the_next_waiting(bench: Bench, clock: Clock) -> None:
    subject = bench.threads(most=4, at_once=1)
    first, second, third = bench.submit(subject, 3)
    until(lambda: clock._sleepers == 1, "the watch sleeps")
    clock.advance(0.75 * SHORT)
    first.end()
    all_begin([second])
    sleeps = clock._sleeps
    clock.advance(0.5 * SHORT)
    until(lambda: clock._sleeps > sleeps, "the watch has looked")
    assert len(workers()) == 1
    assert not third.begun.is_set()
    clock.tick(subject)
    all_begin([third])


def test_the_watch_rests_while_no_task_waits(bench: Bench, clock: Clock) -> None:
    subject = bench.threads(most=4, at_once=1)
    for _ in range(3):
        first, second = bench.submit(subject, 2)
        clock.tick(subject)
        all_begin([first, second])
        until(lambda: not subject._watched, "the watch rests")
        assert clock._sleepers == 0
        first.end()
        second.end()
        all_idle(subject, 2)


def test_when_all_threads_wait_a_task_runs_as_soon_as_one_is_free(
    bench: Bench, clock: Clock
) -> None:
    subject = bench.threads(most=3, at_once=2)
    waiting = bench.submit(subject, 3)
    block(clock, subject, waiting)
    (behind,) = bench.submit(subject, 1)
    for _ in range(3):
        clock.tick(subject)
        assert len(workers()) == 3
        assert not behind.begun.is_set()
    thread = waiting[1].end()
    assert behind.end() is thread
    waiting[0].end()
    waiting[2].end()
    all_idle(subject, 3)


@pytest.mark.parametrize("kind", [None, ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_thread_lives_on_whatever_its_task_raises_and_keeps_nothing_of_it(
    bench: Bench, no_collector: None, kind: type[BaseException] | None
) -> None:
    """No collector is needed."""
    subject = bench.threads(most=1, at_once=1)

    def work(_: Thing, *, scale: Thing) -> None:
        if kind is not None:
            raise kind("planned")

    held = bench.submit(subject, 1)[0]
    thing, scale = Thing(), Thing()
    known = [weakref.ref(thing), weakref.ref(scale)]
    assert subject.submit(work, thing, scale=scale).done()
    thread = held.end()
    assert bench.submit(subject, 1)[0].end() is thread
    all_idle(subject, 1)
    del thing, scale
    assert [each() for each in known] == [None, None]


def test_threads_have_the_name_and_keep_no_process_alive(bench: Bench) -> None:
    thread = bench.submit(bench.threads(most=1, at_once=1), 1)[0].end()
    assert thread.name == f"{NAME}_0"
    assert all(one.daemon for one in alive())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_shutdown_waits_for_tasks_that_run_and_tasks_that_wait_for_a_thread(
    bench: Bench, clock: Clock, count: int
) -> None:
    """A second time does nothing. Threads and watch have ended."""
    subject = bench.threads(most=2, at_once=2)
    idle(bench, clock, subject, 2 if count else 0)
    tasks = bench.submit(subject, count)

    def end_them() -> None:
        until(lambda: subject._closed, "the shutdown has begun")
        for task in tasks:
            task.end()

    helper = threading.Thread(target=end_them)
    helper.start()
    subject.shutdown()
    assert all(task.future.done() for task in tasks)
    assert not workers()
    helper.join()
    subject.shutdown()
    clock.advance(AFTER_TEST)
    until(lambda: not alive(), "the watch ended")
    with pytest.raises(RuntimeError, match="closed"):
        subject.submit(print)


@pytest.mark.parametrize("threads_before", [0, 1, 3])
def test_after_shutdown_too_tasks_that_wait_keep_no_other_waiting(
    bench: Bench, clock: Clock, threads_before: int
) -> None:
    subject = bench.threads(most=3, at_once=1)
    idle(bench, clock, subject, threads_before)
    tasks = bench.submit(subject, 3)
    subject.shutdown(wait=False)
    for count in (1, 2):
        all_begin(tasks[:count])
        clock.tick(subject)
        assert len(subject._waiting) == 2 - count
    all_begin(tasks)
    for task in tasks:
        task.end()
    until(lambda: not workers(), "the threads ended")


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_each_of_many_submitters_tasks_runs_once(bench: Bench, clock: Clock, at_once: int) -> None:
    """And in the order of its submitter, where one thread does all tasks."""
    subject = bench.threads(most=4, at_once=at_once)
    lock = threading.Lock()
    ran: list[tuple[int, int]] = []
    working, most = 0, 0

    def task(submitter: int, number: int) -> int:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        with lock:
            ran.append((submitter, number))
            working -= 1
        return number

    def submit(submitter: int) -> list[Future[int]]:
        return [submitted(subject, task, submitter, number) for number in range(60)]

    for futures in together(submit, 5):
        assert [future.result(PATIENCE) for future in futures] == list(range(60))
    assert sorted(ran) == [(one, number) for one in range(5) for number in range(60)]
    assert most <= min(4, at_once)
    if at_once == 1:
        assert all(
            [number for who, number in ran if who == one] == list(range(60)) for one in range(5)
        )
    until(lambda: at_work(subject) == 0, "all threads are idle")
    assert not subject._counted


def test_nothing_hangs_when_tasks_of_many_submitters_wait_for_tasks_behind_them(
    bench: Bench,
) -> None:
    """A thread for each submitter's task that waits, and one for what it waits for."""
    subject = bench.threads(most=6, at_once=1)

    def submit(_: int) -> int:
        ended = 0
        for _round in range(5):
            event = threading.Event()
            futures = [
                submitted(subject, event.wait, PATIENCE),
                submitted(subject, event.is_set),
            ]
            submitted(subject, event.set).result(PATIENCE)
            ended += futures[0].result(PATIENCE)
            futures[1].result(PATIENCE)
        return ended

    assert together(submit, 5) == [5] * 5
    assert len(workers()) <= 6
    until(lambda: at_work(subject) == 0, "all threads are idle")
    assert not subject._counted


def test_a_shutdown_amid_many_submitters_loses_no_task_that_was_taken(bench: Bench) -> None:
    subject = bench.threads(most=4, at_once=2)
    ran: list[tuple[int, int]] = []

    def submit(submitter: int) -> list[tuple[int, int]]:
        taken = []
        for number in range(100):
            if (submitter, number) == (0, 50):
                subject.shutdown(wait=False)
            try:
                subject.submit(ran.append, (submitter, number))
            except RuntimeError:
                break
            taken.append((submitter, number))
        return taken

    taken = together(submit, 4)
    until(lambda: not workers(), "the threads ended")
    assert sorted(ran) == sorted(one for some in taken for one in some)
    assert len(taken[0]) == 50


def refuse_to_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("others", [0, 1])
def test_without_a_further_thread_a_task_waits_for_others_or_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    subject = bench.threads(most=2, at_once=2)
    first = bench.submit(subject, others)
    all_begin(first)
    with monkeypatch.context() as patched:
        patched.setattr(threads._Thread, "start", refuse_to_start)
        if not first:
            with pytest.raises(RuntimeError, match="can't start"):
                subject.submit(Task())
        second = bench.submit(subject, others)
        assert [task.end() for task in first] == [task.end() for task in second]
    bench.submit(subject, 1)[0].end()
