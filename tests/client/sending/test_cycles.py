"""A call that has ended leaves nothing that only the garbage collector finds."""

import gc
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from tests.client import fake_server as fake
from tests.rows import each

from npucall.errors import NpucallError, QueueFullError, ShapeError
from npucall_client import Client
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.stream import CallStream
from npucall_client.sending.writer import SentCall

Does: TypeAlias = Callable[[fake.FakeServer], None]
Calls: TypeAlias = Callable[[Client, Any], None]
OF_A_CALL = (Attempts, BoundCall, CallStream, LargeCall, SentCall)
PAIR, LARGE = fake.numbers(8), fake.numbers(5 * fake.MIB)
TIMES = 4


def left() -> int:
    return sum(isinstance(each, OF_A_CALL) for each in gc.get_objects())


def answered(client: Client, array: Any) -> None:
    fake.run(client, array)


def refused(client: Client, array: Any) -> None:
    with pytest.raises(NpucallError):
        fake.run(client.options(wait=False), array)


def late(client: Client, array: Any) -> None:
    with pytest.raises(NpucallError):
        fake.run(client.options(timeout=0.01), array)


def in_a_pipeline(client: Client, array: Any) -> None:
    with client.pipeline() as pipeline:
        for call in [fake.submit(pipeline, array) for _ in range(3)]:
            ended(call)


def ended(call: Any) -> None:
    """Waits for a call; the frames of this test keep nothing of it."""
    error = call.exception(fake.PATIENCE)
    if error is not None:
        error.__traceback__ = None


def cancelled(client: Client, array: Any) -> None:
    with client.pipeline() as pipeline:
        call = fake.submit(pipeline, array)
        call.cancel()
        ended(call)


def answers(server: fake.FakeServer) -> None:
    """As it does by itself."""


def refuses(server: fake.FakeServer) -> None:
    server.answer = fake.fail(QueueFullError("full", retry_after=9.0))
    server.behaviours = [fake.refusing(ShapeError("no"))] * 999


def is_silent(server: fake.FakeServer) -> None:
    server.answer = lambda *_: bytes(threading.Event().wait(0.2))
    server.behaviours = [fake.silent] * 999


def leaves_nothing(does: Does, calls: Calls, array: Any) -> None:
    server = fake.FakeServer()
    does(server)
    with fake.connected(server) as client:
        calls(client, array)
        before = left()
        for _ in range(TIMES):
            calls(client, array)
        fake.until(lambda: left() <= before, "nothing is left")


@pytest.mark.usefixtures("no_collector", "sender")
@each("array", [PAIR, LARGE])
@each(("does", "calls"), [(answers, answered), (refuses, refused), (is_silent, late)])
def test_a_call_that_has_ended_leaves_nothing(does: Does, calls: Calls, array: Any) -> None:
    leaves_nothing(does, calls, array)


@pytest.mark.usefixtures("no_collector")
@each("array", [PAIR, LARGE])
@each(
    ("does", "calls"),
    [
        (answers, in_a_pipeline),
        (answers, cancelled),
        (refuses, in_a_pipeline),
        (is_silent, cancelled),
    ],
)
def test_a_call_of_a_pipeline_leaves_nothing(does: Does, calls: Calls, array: Any) -> None:
    leaves_nothing(does, calls, array)
