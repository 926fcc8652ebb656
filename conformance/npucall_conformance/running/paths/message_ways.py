"""Paths of messages: one message, a stream, chunks, a pipeline; by asyncio, and over a pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.errors import DeadlineError, NpucallError
from npucall.limits import INLINE_BYTES, MAX_MESSAGE_BYTES
from npucall.wire.messages import Response, split_response
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.link import Link
from npucall_client.sending.pipeline import Calls
from npucall_client.sending.transfer import parts_of, size_of
from npucall_conformance.running.paths.path import (
    AnswerOrError,
    OutOfReachError,
    PathCall,
    ended,
    outcome_of,
)
from npucall_conformance.running.paths.resources import SECONDS, request_of

if TYPE_CHECKING:
    from npucall_conformance.running.paths.resources import Resources

    Send = Callable[[Resources, Sequence[PathCall]], list[AnswerOrError]]

_PIECES = 3
"""A small call is cut into so many chunks, and one more."""


def by_execute(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """One message there and one back. Raises OutOfReachError if a call does not fit into one."""
    most = resources.info.limits.max_message_bytes or MAX_MESSAGE_BYTES

    async def send(call: BoundCall) -> Response:
        message = b"".join(parts_of(call))
        if len(message) > most:
            raise OutOfReachError(f"no message of the server has more than {most} bytes")

        def once(link: Link, attempts: Attempts) -> Awaitable[bytes]:
            return link.send_once("Execute", message, attempts)

        return split_response(await resources.transport.ask(request_of(call), once))

    return resources.server.each([ended(send(sample.request())) for sample in samples])


def by_stream(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """A stream for each call, as large calls have it."""
    return _on_streams(resources, samples, whole=True)


def by_chunks(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """A stream for each call, on which even a small one is in chunks that cut its elements."""
    return _on_streams(resources, samples)


def by_early_outputs(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The same, with outputs that come as soon as they are computed.

    Raises OutOfReachError if they are short, since they then come with the reply.
    """
    for sample in samples:
        short = sum(sample.output_bytes.values()) <= INLINE_BYTES
        if short and not isinstance(sample.answer, NpucallError):
            raise OutOfReachError("outputs of up to 1 MiB come with the reply")
    return _on_streams(resources, samples, early=True)


def _on_streams(
    resources: Resources, samples: Sequence[PathCall], *, whole: bool = False, early: bool = False
) -> list[AnswerOrError]:
    """In chunks of an odd number of bytes, so that elements are cut, or of the usual size."""

    def sent(call: BoundCall) -> Coroutine[Any, Any, Response]:
        usual = resources.info.limits.chunk_bytes
        size = usual if whole else min(usual, size_of(call) // _PIECES | 1)

        def send(link: Link, attempts: Attempts) -> Awaitable[Response]:
            large = LargeCall(call, "", size, early_outputs=early)
            return link.exchange("ExecuteStream", attempts, large.run)

        work: Coroutine[Any, Any, Response] = resources.transport.ask(request_of(call), send)
        return work

    return resources.server.each([ended(sent(sample.request())) for sample in samples])


def by_calls(route: str) -> Send:
    """As the client of that route sends calls: a pool, or asyncio, which sends all at once."""

    def send(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
        through = getattr(resources, route)
        execute = through.transport.execute
        works = [ended(execute(request_of(sample.request()))) for sample in samples]
        return list(through.each(works))

    return send


def by_pipeline(route: str) -> Send:
    """All at once, in a pipeline of that route, which stays open from case to case."""

    def send(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
        through, lanes = resources.pipeline(route)
        pending: list[Future[AnswerOrError]] = [Future() for _ in samples]
        calls = [sample.request() for sample in samples]
        through.each([_sent(lanes, *each) for each in zip(calls, pending, strict=True)])
        return [_outcome(each) for each in pending]

    return send


async def _sent(lanes: Calls, call: BoundCall, pending: Future[AnswerOrError]) -> None:
    start = perf_counter_ns()

    def end(how: Response | Exception) -> None:
        if not pending.done():
            pending.set_result(outcome_of(how, perf_counter_ns() - start))

    try:
        await lanes.send(request_of(call), end)
    except NpucallError as error:
        end(error)


def _outcome(pending: Future[AnswerOrError]) -> AnswerOrError:
    try:
        return pending.result(SECONDS)
    except TimeoutError:
        return DeadlineError(f"pipeline: no answer within {SECONDS:g} s")
