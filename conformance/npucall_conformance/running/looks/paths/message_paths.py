"""Paths of messages: one message, a stream, chunks, a pipeline; by asyncio, and over a pool."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.errors import DeadlineError, NpucallError
from npucall.limits import INLINE_BYTES, MAX_MESSAGE_BYTES
from npucall.wire.messages import split_response
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.senders import finished
from npucall_client.sending.transfer import message_of, size_of
from npucall_conformance.running.looks.paths.path import (
    AnswerOrError,
    OutOfReachError,
    PathCall,
    attempt,
    outcome_of,
)
from npucall_conformance.running.looks.paths.resources import SECONDS, request_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.link import Link
    from npucall_client.sending.pipeline import Calls
    from npucall_conformance.running.looks.paths.resources import Resources

_PIECES = 3
"""A small call is cut into so many chunks, and one more."""


def no_messages(resources: Resources) -> str:
    """Why no messages travel."""
    return "" if resources.is_remote else "nothing travels here"


def no_streams(resources: Resources) -> str:
    """Why calls do not travel on streams."""
    return "" if resources.info.limits.stream_window else "the server has no streams"


def no_early_outputs(resources: Resources) -> str:
    """Why outputs do not come before all inputs have been sent."""
    return no_streams(resources) or (
        "" if resources.info.limits.early_outputs else "the server sends no outputs early"
    )


def no_pipeline(resources: Resources) -> str:
    """Why there is no pipeline."""
    return no_streams(resources) if resources.is_remote else ""


def by_execute(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """One message there and one back. Raises OutOfReachError if a call does not fit into one."""
    most = resources.info.limits.max_message_bytes or MAX_MESSAGE_BYTES

    async def send(call: BoundCall) -> Response:
        message = message_of(call)
        if len(message) > most:
            raise OutOfReachError(f"no message of the server has more than {most} bytes")

        def once(link: Link, attempts: Attempts) -> Awaitable[bytes]:
            return link.send_once("Execute", message, attempts)

        return split_response(await resources.transport.ask(request_of(call), once))

    return [attempt(partial(send, sample.request())) for sample in samples]


def by_stream(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """A stream for each call, as large calls have it."""
    chunk_bytes = resources.info.limits.chunk_bytes
    return [_on_stream(resources, each.request(), chunk_bytes, early=False) for each in samples]


def by_chunks(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """A stream for each call, on which even a small one is in chunks that cut its elements."""
    return [_in_short_chunks(resources, each.request(), early=False) for each in samples]


def by_early_outputs(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The same, with outputs that come as soon as they are computed.

    Raises OutOfReachError if they are short, since they then come with the reply.
    """
    for sample in samples:
        if not isinstance(sample.answer, NpucallError) and _is_short(sample):
            raise OutOfReachError("outputs of up to 1 MiB come with the reply")
    return [_in_short_chunks(resources, each.request(), early=True) for each in samples]


def _is_short(sample: PathCall) -> bool:
    return sum(sample.output_bytes.values()) <= INLINE_BYTES


def _in_short_chunks(resources: Resources, call: BoundCall, *, early: bool) -> AnswerOrError:
    """Sends a call in chunks of an odd number of bytes, so that elements are cut."""
    short = min(resources.info.limits.chunk_bytes, size_of(call) // _PIECES | 1)
    return _on_stream(resources, call, short, early=early)


def _on_stream(
    resources: Resources, call: BoundCall, chunk_bytes: int, *, early: bool
) -> AnswerOrError:
    def send(link: Link, attempts: Attempts) -> Awaitable[Response]:
        large = LargeCall(call, "", chunk_bytes, early_outputs=early)
        return link.exchange("ExecuteStream", attempts, large.run)

    return attempt(lambda: resources.transport.ask(request_of(call), send))


def by_pipeline(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, on a stream that stays open from case to case."""
    return sent_together(resources.pipeline, samples)


def sent_together(lanes: Calls, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """How the calls of a blocking pipeline ended."""
    pending = [_Pending(lanes, sample.request()) for sample in samples]
    return [each.ended() for each in pending]


class _Pending:
    """A call of a pipeline."""

    def __init__(self, lanes: Calls, call: BoundCall) -> None:
        self._over = threading.Event()
        self._outcome: AnswerOrError = DeadlineError(f"pipeline: no answer within {SECONDS:g} s")
        self._start = perf_counter_ns()
        try:
            finished(lanes.send(request_of(call), self._end))
        except NpucallError as error:
            self._end(error)

    def _end(self, ended: Response | Exception) -> None:
        self._outcome = outcome_of(ended, self._start)
        self._over.set()

    def ended(self) -> AnswerOrError:
        """Waits until the call has ended."""
        self._over.wait(SECONDS)
        return self._outcome


def no_pool(resources: Resources) -> str:
    """Why the server cannot be a member of a pool."""
    if not resources.is_remote:
        return "nothing travels here"
    return "no pool has members on Unix sockets" if resources.address.startswith("unix") else ""


def no_asyncio(resources: Resources) -> str:
    """Why the client for asyncio does not reach the server."""
    return "" if resources.is_remote or resources.is_local else "asyncio's client does not reach it"


def by_pool(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends the calls through a pool."""
    execute: Any = resources.pool.execute
    return [attempt(partial(execute, request_of(sample.request()))) for sample in samples]


def by_pool_pipeline(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, in a pipeline of a pool; the pipeline stays open."""
    return sent_together(resources.pool_pipeline, samples)


def by_asyncio(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, from tasks of an event loop."""
    loop, requests = resources.loop, [sample.request() for sample in samples]

    async def send(call: BoundCall) -> AnswerOrError:
        start = perf_counter_ns()
        try:
            ended: Response | Exception = await loop.transport.execute(request_of(call))
        except Exception as error:  # noqa: BLE001  # the call's own
            ended = error
        return outcome_of(ended, start)

    async def all_of_them() -> list[AnswerOrError]:
        return list(await asyncio.gather(*map(send, requests)))

    return loop.done(all_of_them())


def by_asyncio_pipeline(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, in a pipeline of an event loop."""
    loop, requests = resources.loop, [sample.request() for sample in samples]

    async def send(lanes: Any, call: BoundCall) -> AnswerOrError:
        over: asyncio.Future[AnswerOrError] = asyncio.get_running_loop().create_future()
        start = perf_counter_ns()

        def end(ended: Response | Exception) -> None:
            if not over.done():
                over.set_result(outcome_of(ended, start))

        try:
            async with asyncio.timeout(SECONDS):
                await lanes.send(request_of(call), end)
                return await over
        except NpucallError as error:
            return error
        except TimeoutError:
            return DeadlineError(f"pipeline: no answer within {SECONDS:g} s")

    async def all_of_them() -> list[AnswerOrError]:
        lanes = loop.transport.calls()
        try:
            return list(await asyncio.gather(*(send(lanes, call) for call in requests)))
        finally:
            await lanes.close()

    return loop.done(all_of_them())
