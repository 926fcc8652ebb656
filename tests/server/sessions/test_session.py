"""One session: who waits for its handles, and how long they are held (and ``test_model.py``)."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

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
    InternalError,
    SessionUnknownError,
)
from npucall_server.sessions.session import OpenSession

ONE, TWO = b"1" * 32, b"2" * 32


@pytest.fixture
def server() -> Offline:
    return Offline()


@pytest.fixture
def session(server: Offline) -> Iterator[OpenSession]:
    opened = server.open()
    yield opened
    close(server, opened)
    assert server.is_empty


def close(server: Offline, session: OpenSession) -> None:
    server.sessions.close(FakeCaller(session=session))


def begun(
    pool: ThreadPoolExecutor, wait: Callable[..., Any], caller: FakeCaller | None = None
) -> Future[Any]:
    """Somebody who waits by now."""
    caller = caller or FakeCaller()
    future = pool.submit(wait, caller)
    until(lambda: bool(caller._callbacks), "somebody waits")
    return future


def data_of(found: Any) -> bytes:
    return bytes(found.memory.read(found.offset, found.length))


def test_a_retry_joins_what_fills(session: OpenSession, pool: ThreadPoolExecutor) -> None:
    filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
    waiting = begun(pool, retry.wait)
    filling.succeed()
    waiting.result(PATIENCE)


def test_who_joins_what_turns_out_to_be_something_else_is_told_so(session: OpenSession) -> None:
    filling = session.fill(A, 4, None)
    call, upload = session.fill(A, 4, TWO), session.fill(A, 4, None)
    filling.succeed(ONE)
    for wait in (lambda: call.wait(FakeCaller()), lambda: upload.wait(FakeCaller(), TWO)):
        with pytest.raises(HandleExistsError):
            wait()
    upload.wait(FakeCaller(), ONE)


def test_a_retry_raises_what_it_joined_failed_with_and_of_a_bug_no_word(
    session: OpenSession,
) -> None:
    """Of a call that its caller gave up: that it is to be repeated."""
    for fault, told, said in (
        (DeviceError("the device said no"), DeviceError, "said no"),
        (CancelledError("call: cancelled by the caller"), BusyError, r"retry in 0\.1 s"),
        (ZeroDivisionError("a secret"), InternalError, r"^(?!.*secret)"),
    ):
        filling, retry = session.fill(A, 4, ONE), session.fill(A, 4, ONE)
        filling.fail(fault)
        with pytest.raises(told, match=said) as caught:
            retry.wait(FakeCaller())
        caught.value.details["request_id"] = "of the retry"
        assert not getattr(fault, "details", {})
    with pytest.raises(HandleEmptyError) as empty:
        session.read(part(A), "x")
    assert "secret" not in str(empty.value)


def test_a_handle_that_could_not_be_filled_may_be_filled_by_another(session: OpenSession) -> None:
    session.fill(A, 4, ONE).fail(DeviceError("no"))
    filling = session.fill(A, 4, TWO)
    filling.memory.write(0, b"data")
    filling.succeed()
    filling.fail(DeviceError("too late"))  # only the first end counts
    filling.succeed()
    assert read(session, A) == b"data"


@pytest.mark.parametrize("released", [False, True])
def test_who_reads_waits_until_the_handle_is_filled(
    server: Offline, session: OpenSession, pool: ThreadPoolExecutor, released: bool
) -> None:
    """Even if it is released meanwhile."""
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "x")
    waiting = begun(pool, reading.wait)
    session.release([A] if released else [])
    filling.memory.write(0, b"data")
    filling.succeed()
    assert data_of(waiting.result(PATIENCE)) == b"data"
    reading.give_back()
    assert server.device.allocated == (0 if released else 4)


def test_who_reads_is_told_that_filling_failed(
    session: OpenSession, pool: ThreadPoolExecutor
) -> None:
    filling = session.fill(A, 4, ONE)
    reading = session.read(part(A), "target")
    waiting = begun(pool, reading.wait)
    filling.fail(DeviceError("the device said no"))
    with pytest.raises(HandleEmptyError, match=r"target: .* the device said no"):
        waiting.result(PATIENCE)
    reading.give_back()
    assert session.held == 0
    with pytest.raises(HandleEmptyError, match="the device said no"):
        session.read(part(A), "target")


@pytest.mark.parametrize("how", ["the session closes", "it cancels"])
def test_who_reads_waits_no_longer_when(
    server: Offline, session: OpenSession, pool: ThreadPoolExecutor, how: str
) -> None:
    filling, caller = session.fill(A, 4, ONE), FakeCaller()
    reading = session.read(part(A), "x")
    waiting = begun(pool, reading.wait, caller)
    if how == "it cancels":
        caller.cancel()
    else:
        close(server, session)
    with pytest.raises(CancelledError if how == "it cancels" else SessionUnknownError):
        waiting.result(PATIENCE)
    reading.give_back()
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


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_read_or_filled_stays_until_that_is_done_though_it_was_released(
    server: Offline, session: OpenSession, closed: bool
) -> None:
    """Or its session has ended."""
    filled(session, A)
    filling, first, second = session.fill(B, 4, ONE), *(session.read(part(A), "x") for _ in "12")
    if closed:
        close(server, session)
    else:
        session.release([A, B])
    assert data_of(first.wait(FakeCaller())) == b"data"
    first.give_back()
    first.give_back()
    assert server.device.allocated == 8
    second.give_back()
    assert server.device.allocated == 4
    filling.memory.write(0, b"data")
    filling.succeed()
    assert server.device.allocated == session.held == 0
