"""One session: what fills its handles, what reads them, and when their memory goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.scripted import PATIENCE, ScriptedCaller, until
from tests.server.sessions.held import ONE, TWO, A, B, Held, User, filled, part, read

from npucall.errors import (
    BusyError,
    CancelledError,
    DeadlineError,
    DeviceError,
    HandleEmptyError,
    HandleExistsError,
    HandleReleasedError,
    InternalError,
    SessionUnknownError,
    TensorLayoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from npucall_server.sessions.session import Session


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def session(held: Held) -> Iterator[Session]:
    opened = held.open()
    yield opened
    held.sessions.close(User(opened))
    assert held.is_empty


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def begun(
    threads: ThreadPoolExecutor, wait: Callable[..., Any], caller: ScriptedCaller
) -> Future[Any]:
    """Somebody who waits by now."""
    future = threads.submit(wait, caller)
    until(lambda: bool(caller._callbacks), "somebody waits")
    return future


def test_a_handle_holds_what_filled_it(session: Session) -> None:
    filled(session, A, b"data")
    assert read(session, A, 2, offset=1) == b"at"
    assert session.held == 4


def test_a_handle_without_bytes_is_one_too(session: Session) -> None:
    filled(session, A, b"")
    assert read(session, A, 0) == b""


def test_the_same_once_more_has_nothing_to_do(session: Session) -> None:
    filled(session, A)
    again = session.fill(A, 4, ONE)
    assert not again.is_new
    again.wait(ScriptedCaller())
    assert session.held == 4


def test_something_else_does_not_fill_a_handle_again(session: Session) -> None:
    filled(session, A)
    with pytest.raises(HandleExistsError):
        session.fill(A, 4, TWO)


def test_a_part_has_to_be_inside_from_when_filling_began(session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    with pytest.raises(TensorLayoutError, match="4 bytes of handle"):
        session.read(part(A, 1, 4), "target")
    filling.succeed()


def test_who_reads_waits_until_the_handle_is_filled(
    session: Session, threads: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    waiting = begun(threads, reading.wait, ScriptedCaller())
    filling.memory.write(0, b"data")
    filling.succeed()
    assert bytes(waiting.result(PATIENCE).memory.read(0, 4)) == b"data"
    reading.done()


def test_who_reads_is_told_that_filling_failed(
    session: Session, threads: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "target")
    waiting = begun(threads, reading.wait, ScriptedCaller())
    filling.fail(DeviceError("the device said no"))
    with pytest.raises(HandleEmptyError, match=r"target: .* the device said no"):
        waiting.result(PATIENCE)
    reading.done()
    assert session.held == 0
    with pytest.raises(HandleEmptyError, match="the device said no"):
        session.read(part(A), "target")


def test_who_reads_is_released_when_the_session_closes(
    held: Held, session: Session, threads: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    waiting = begun(threads, reading.wait, ScriptedCaller())
    held.sessions.close(User(session))
    with pytest.raises(SessionUnknownError):
        waiting.result(PATIENCE)
    reading.done()
    filling.succeed()


def test_who_reads_may_cancel(session: Session, threads: ThreadPoolExecutor) -> None:
    filling = session.fill(A, 4, ONE)
    reading, caller = session.read(part(A), "x"), ScriptedCaller()
    waiting = begun(threads, reading.wait, caller)
    caller.cancel()
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE)
    reading.done()
    filling.succeed()


def test_who_reads_waits_no_longer_than_its_deadline(session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    with pytest.raises(DeadlineError):
        reading.wait(ScriptedCaller(remaining=0.01))
    reading.done()
    filling.succeed()


def test_who_reads_waits_no_longer_than_the_server_lets_a_call_wait() -> None:
    session = Held(call_timeout=0.01).open()
    session.fill(A, 4, ONE)
    with pytest.raises(DeadlineError, match="call_timeout") as caught:
        session.read(part(A), "x").wait(ScriptedCaller())
    assert caught.value.details["setting"] == "call_timeout"


def test_a_retry_joins_what_fills(session: Session, threads: ThreadPoolExecutor) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    waiting = begun(threads, retry.wait, ScriptedCaller())
    filling.succeed()
    waiting.result(PATIENCE)


def test_who_joins_what_turns_out_to_be_something_else_is_told_so(session: Session) -> None:
    filling = session.fill(A, 4, None)
    call, upload = session.fill(A, 4, TWO), session.fill(A, 4, None)
    filling.succeed(ONE)
    for wait in (lambda: call.wait(ScriptedCaller()), lambda: upload.wait(ScriptedCaller(), TWO)):
        with pytest.raises(HandleExistsError):
            wait()
    upload.wait(ScriptedCaller(), ONE)


def test_a_retry_raises_what_it_joined_failed_with(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    first = DeviceError("the device said no", phase="run")
    filling.fail(first)
    with pytest.raises(DeviceError, match="said no") as caught:
        retry.wait(ScriptedCaller())
    caught.value.details["request_id"] = "of the retry"
    assert first.details == {"phase": "run"}


def test_a_retry_of_a_call_that_its_caller_gave_up_is_to_be_repeated(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    filling.fail(CancelledError("call: cancelled by the caller"))
    with pytest.raises(BusyError, match=r"retry in 0\.1 s"):
        retry.wait(ScriptedCaller())
    filled(session, A)


def test_a_bug_is_not_told_to_others(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    filling.fail(ZeroDivisionError("a secret"))
    with pytest.raises(InternalError) as caught:
        retry.wait(ScriptedCaller())
    assert "secret" not in str(caught.value)
    with pytest.raises(HandleEmptyError) as empty:
        session.read(part(A), "x")
    assert "secret" not in str(empty.value)


def test_a_handle_that_could_not_be_filled_may_be_filled_by_another(session: Session) -> None:
    session.fill(A, 4, ONE).fail(DeviceError("no"))
    filled(session, A, identity=TWO)
    assert read(session, A) == b"data"


def test_only_the_first_end_counts(session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    filling.memory.write(0, b"data")
    filling.succeed()
    filling.fail(DeviceError("too late"))
    filling.succeed()
    assert read(session, A) == b"data"


def test_a_released_handle_keeps_its_memory_until_the_last_reader_is_done(
    held: Held, session: Session
) -> None:
    filled(session, A)
    first, second = session.read(part(A), "x"), session.read(part(A), "x")
    session.release([A])
    with pytest.raises(HandleReleasedError):
        session.read(part(A), "x")
    assert bytes(first.wait(ScriptedCaller()).memory.read(0, 4)) == b"data"
    first.done()
    first.done()
    assert held.device.live == session.held == 4
    second.done()
    assert held.device.live == session.held == 0


def test_who_waits_for_a_handle_that_is_released_gets_it(
    held: Held, session: Session, threads: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    waiting = begun(threads, reading.wait, ScriptedCaller())
    session.release([A])
    filling.memory.write(0, b"data")
    filling.succeed()
    assert bytes(waiting.result(PATIENCE).memory.read(0, 4)) == b"data"
    reading.done()
    assert held.device.live == 0


def test_what_is_filled_after_its_release_is_dropped(held: Held, session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    session.release([A])
    assert held.device.live == 4
    filling.succeed()
    assert held.device.live == session.held == 0


def test_what_is_filled_after_the_session_closed_is_dropped(held: Held, session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    held.sessions.close(User(session))
    filling.memory.write(0, b"data")
    filling.succeed()
    assert held.is_empty


def test_what_is_read_when_the_session_closes_is_read_to_its_end(
    held: Held, session: Session
) -> None:
    filled(session, A)
    filled(session, B)
    reading = session.read(part(A), "x")
    held.sessions.close(User(session))
    assert held.device.live == 4
    assert bytes(reading.wait(ScriptedCaller()).memory.read(0, 4)) == b"data"
    reading.done()
    assert held.is_empty


def test_releasing_what_nobody_has_named_is_no_error_and_keeps_it_from_being_filled(
    session: Session,
) -> None:
    session.release([A, A])
    with pytest.raises(HandleReleasedError):
        session.fill(A, 4, ONE)


def test_nothing_can_be_done_with_a_session_that_has_ended(held: Held, session: Session) -> None:
    held.sessions.close(User(session))
    for act in (
        lambda: session.read(part(A), "x"),
        lambda: session.fill(A, 4, ONE),
        lambda: session.use().__enter__(),
    ):
        with pytest.raises(SessionUnknownError):
            act()
    session.release([A])
