"""Calls on streams to a server that is full: they are sent again when it may have room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.errors import CancelledError, QueueFullError
from npucall.wire.status import to_status

from .stream_script import (
    MIB,
    ONE,
    PATIENCE,
    StreamScript,
    answer,
    connected,
    echo,
    numbers,
    run,
    until,
)

if TYPE_CHECKING:
    import grpc

    from npucall_client.pipeline import PendingCall, Pipeline

    from .stream_script import Answers, Behaviour, Frames

pytestmark = pytest.mark.usefixtures("sender")

SOON, NEVER = 0.01, 1000.0


@pytest.fixture
def script() -> StreamScript:
    return StreamScript()


def submit(pipeline: Pipeline, array: Any, **options: Any) -> PendingCall[Any]:
    return pipeline.submit("aclnnL1LossBackward", array, self=ONE, target=ONE, **options)


def full_at_first(times: int, retry_after: float = SOON) -> Behaviour:
    """Refuses so many calls at their first frame, and answers the others."""
    left = [times]

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        refused: set[int] = set()
        for frame in frames:
            if frame.HasField("begin") and left[0]:
                left[0] -= 1
                refused.add(frame.call_id)
                error = QueueFullError("the queue is full", retry_after=retry_after)
                yield answer(frame.call_id, error=to_status(error).SerializeToString())
            elif frame.call_id not in refused:
                yield from echo(_whole(frame, frames, refused), context)

    return behaviour


def _whole(frame: Any, frames: Frames, refused: set[int]) -> Frames:
    """The frames of a call, of which this is the first one; nothing else is sent meanwhile."""
    yield frame
    while frame.HasField("chunk") or (frame.HasField("begin") and frame.begin.chunked):
        frame = next(each for each in frames if each.call_id not in refused)
        yield frame


def test_a_refused_call_is_sent_again_on_the_same_stream_under_another_id(
    script: StreamScript,
) -> None:
    script.behaviours = [full_at_first(3)]
    with connected(script) as client, client.pipeline() as pipeline:
        found = submit(pipeline, numbers(8)).result(PATIENCE)
    np.testing.assert_array_equal(found, numbers(8))
    assert (len(script.begins), script.streams) == (4, 1)


def test_many_are_refused_and_all_are_answered(script: StreamScript) -> None:
    script.behaviours = [full_at_first(20)]
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(1, 13)]
        for size, call in enumerate(calls, 1):
            np.testing.assert_array_equal(call.result(PATIENCE), numbers(4 * size))
    assert len(script.begins) == 32


def test_a_large_call_is_sent_again_from_its_first_byte(script: StreamScript) -> None:
    script.behaviours = [full_at_first(1), full_at_first(1)]
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, numbers(8 * MIB)), numbers(8 * MIB))


def test_a_large_call_of_a_pipeline_too(script: StreamScript) -> None:
    script.behaviours = [full_at_first(2)]
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(8 * MIB)), submit(pipeline, numbers(8))]
        np.testing.assert_array_equal(calls[0].result(PATIENCE), numbers(8 * MIB))
        np.testing.assert_array_equal(calls[1].result(PATIENCE), numbers(8))


def test_a_delay_that_ends_after_the_timeout_is_told_now(script: StreamScript) -> None:
    script.behaviours = [full_at_first(1, NEVER)]
    with connected(script) as client, client.pipeline() as pipeline:
        error = submit(pipeline, numbers(8)).exception(PATIENCE)
    assert isinstance(error, QueueFullError)
    assert error.retry_after == NEVER


def test_who_waits_can_be_cancelled(script: StreamScript) -> None:
    script.behaviours = [full_at_first(1, NEVER)]
    with connected(script, timeout=2 * NEVER) as client, client.pipeline() as pipeline:
        call = submit(pipeline, numbers(8))
        until(lambda: len(script.begins) == 1, "it was sent")
        call.cancel()
        assert isinstance(_failure(call), CancelledError)
        np.testing.assert_array_equal(submit(pipeline, numbers(8)).result(PATIENCE), numbers(8))


def test_a_stream_that_breaks_meanwhile_sends_it_again_on_the_next_one(
    script: StreamScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.remote.retry.PAUSES", (0.0,))
    refused = full_at_first(1, NEVER)

    def breaks(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield next(refused(frames, context))

    script.behaviours = [breaks]
    with connected(script, timeout=2 * NEVER) as client, client.pipeline() as pipeline:
        found = submit(pipeline, numbers(8)).result(PATIENCE)
    np.testing.assert_array_equal(found, numbers(8))
    assert script.streams == 2


def test_closing_waits_for_it(script: StreamScript) -> None:
    script.behaviours = [full_at_first(2)]
    with connected(script) as client:
        with client.pipeline() as pipeline:
            call = submit(pipeline, numbers(8))
        np.testing.assert_array_equal(call.result(0), numbers(8))


def _failure(call: PendingCall[Any]) -> BaseException | None:
    try:
        return call.exception(PATIENCE)
    except BaseException as error:  # noqa: BLE001  # asyncio's own
        return CancelledError(str(error)) if "ancelled" in type(error).__name__ else error
