"""One session: what fills its handles, what reads them, and when their memory goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.fakes import PATIENCE, FakeCaller, until
from tests.server.serving import Offline, filled, part, read
from tests.server.sessions.raw import A, B

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

ONE, TWO = b"1" * 32, b"2" * 32


@pytest.fixture
def server() -> Offline:
    return Offline()


@pytest.fixture
def session(server: Offline) -> Iterator[Session]:
    opened = server.open()
    yield opened
    close(server, opened)
    assert server.is_empty


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def close(server: Offline, session: Session) -> None:
    server.sessions.close(FakeCaller(session=session))


def begun(
    threads: ThreadPoolExecutor, wait: Callable[..., Any], caller: FakeCaller | None = None
) -> Future[Any]:
    """Somebody who waits by now."""
    caller = caller or FakeCaller()
    future = threads.submit(wait, caller)
    until(lambda: bool(caller._callbacks), "somebody waits")
    return future


def data_of(found: Any) -> bytes:
    return bytes(found.memory.read(found.offset, found.length))


# --- Filling --------------------------------------------------------------------------------------


def test_a_retry_joins_what_fills(session: Session, threads: ThreadPoolExecutor) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    waiting = begun(threads, retry.wait)
    filling.succeed()
    waiting.result(PATIENCE)


def test_who_joins_what_turns_out_to_be_something_else_is_told_so(session: Session) -> None:
    filling = session.fill(A, 4, None)
    call, upload = session.fill(A, 4, TWO), session.fill(A, 4, None)
    filling.succeed(ONE)
    for wait in (lambda: call.wait(FakeCaller()), lambda: upload.wait(FakeCaller(), TWO)):
        with pytest.raises(HandleExistsError):
            wait()
    upload.wait(FakeCaller(), ONE)


def test_a_retry_raises_what_it_joined_failed_with(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    first = DeviceError("the device said no", phase="run")
    filling.fail(first)
    with pytest.raises(DeviceError, match="said no") as caught:
        retry.wait(FakeCaller())
    caught.value.details["request_id"] = "of the retry"
    assert first.details == {"phase": "run"}


def test_a_retry_of_a_call_that_its_caller_gave_up_is_to_be_repeated(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    filling.fail(CancelledError("call: cancelled by the caller"))
    with pytest.raises(BusyError, match=r"retry in 0\.1 s"):
        retry.wait(FakeCaller())
    filled(session, A)


def test_a_bug_is_not_told_to_others(session: Session) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    filling.fail(ZeroDivisionError("a secret"))
    with pytest.raises(InternalError) as caught:
        retry.wait(FakeCaller())
    assert "secret" not in str(caught.value)
    with pytest.raises(HandleEmptyError) as empty:
        session.read(part(A), "x")
    assert "secret" not in str(empty.value)


def test_a_handle_that_could_not_be_filled_may_be_filled_by_another(session: Session) -> None:
    session.fill(A, 4, ONE).fail(DeviceError("no"))
    filling = session.fill(A, 4, TWO)
    filling.memory.write(0, b"data")
    filling.succeed()
    filling.fail(DeviceError("too late"))  # only the first end counts
    filling.succeed()
    assert read(session, A) == b"data"


# --- Reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True])
def test_who_reads_waits_until_the_handle_is_filled(
    server: Offline, session: Session, threads: ThreadPoolExecutor, released: bool
) -> None:
    """Even if it is released meanwhile."""
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    waiting = begun(threads, reading.wait)
    session.release([A] if released else [])
    filling.memory.write(0, b"data")
    filling.succeed()
    assert data_of(waiting.result(PATIENCE)) == b"data"
    reading.done()
    assert server.device.allocated == (0 if released else 4)


def test_who_reads_is_told_that_filling_failed(
    session: Session, threads: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "target")
    waiting = begun(threads, reading.wait)
    filling.fail(DeviceError("the device said no"))
    with pytest.raises(HandleEmptyError, match=r"target: .* the device said no"):
        waiting.result(PATIENCE)
    reading.done()
    assert session.held == 0
    with pytest.raises(HandleEmptyError, match="the device said no"):
        session.read(part(A), "target")


@pytest.mark.parametrize("how", ["the session closes", "it cancels"])
def test_who_reads_waits_no_longer_when(
    server: Offline, session: Session, threads: ThreadPoolExecutor, how: str
) -> None:
    filling, caller = session.fill(A, 4, ONE), FakeCaller()
    reading = session.read(part(A), "x")
    waiting = begun(threads, reading.wait, caller)
    if how == "it cancels":
        caller.cancel()
    else:
        close(server, session)
    with pytest.raises(CancelledError if how == "it cancels" else SessionUnknownError):
        waiting.result(PATIENCE)
    reading.done()
    filling.succeed()


@pytest.mark.parametrize(("limit", "own"), [(0.01, None), (PATIENCE, 0.01)])
def test_who_reads_waits_no_longer_than_its_deadline_or_the_server_lets_a_call_wait(
    limit: float, own: float | None
) -> None:
    session = Offline(call_timeout=limit).open()
    session.fill(A, 4, ONE)
    with pytest.raises(DeadlineError, match=None if own else "call_timeout = 0.01") as caught:
        session.read(part(A), "x").wait(FakeCaller(remaining=own))
    assert own or caught.value.details["setting"] == "call_timeout"


# --- What is held ---------------------------------------------------------------------------------


def test_the_same_once_more_has_nothing_to_do_and_something_else_is_refused(
    session: Session,
) -> None:
    filled(session, A, identity=ONE)
    again = session.fill(A, 4, ONE)
    assert not again.is_new
    again.wait(FakeCaller())
    assert session.held == 4
    with pytest.raises(HandleExistsError):
        session.fill(A, 4, TWO)
    assert read(session, A, 2, offset=1) == b"at"


def test_a_part_has_to_be_inside_from_when_filling_began(session: Session) -> None:
    filling = session.fill(A, 4, ONE)
    with pytest.raises(TensorLayoutError, match="4 bytes of handle"):
        session.read(part(A, 1, 4), "target")
    filling.succeed()


def test_a_released_handle_keeps_its_memory_until_the_last_reader_is_done(
    server: Offline, session: Session
) -> None:
    filled(session, A)
    first, second = session.read(part(A), "x"), session.read(part(A), "x")
    session.release([A])
    with pytest.raises(HandleReleasedError):
        session.read(part(A), "x")
    assert data_of(first.wait(FakeCaller())) == b"data"
    first.done()
    first.done()
    assert server.device.allocated == session.held == 4
    second.done()
    assert server.device.allocated == session.held == 0


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_filled_after_its_release_or_the_end_is_dropped(
    server: Offline, session: Session, closed: bool
) -> None:
    filling = session.fill(A, 4, ONE)
    if closed:
        close(server, session)
    else:
        session.release([A])
    assert server.device.allocated == 4
    filling.memory.write(0, b"data")
    filling.succeed()
    assert server.device.allocated == session.held == 0


def test_what_is_read_when_the_session_closes_is_read_to_its_end(
    server: Offline, session: Session
) -> None:
    filled(session, A)
    filled(session, B)
    reading = session.read(part(A), "x")
    close(server, session)
    assert server.device.allocated == 4
    assert data_of(reading.wait(FakeCaller())) == b"data"
    reading.done()
    assert server.is_empty


def test_releasing_what_nobody_has_named_is_no_error_and_keeps_it_from_being_filled(
    session: Session,
) -> None:
    session.release([A, A])
    with pytest.raises(HandleReleasedError):
        session.fill(A, 4, ONE)


def test_nothing_can_be_done_with_a_session_that_has_ended(
    server: Offline, session: Session
) -> None:
    close(server, session)
    for act in (
        lambda: session.read(part(A), "x"),
        lambda: session.fill(A, 4, ONE),
        lambda: session.use().__enter__(),
    ):
        with pytest.raises(SessionUnknownError):
            act()
    session.release([A])
