"""Paths of other connections: a client for asyncio, and a pool whose only member is the server."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.errors import DeadlineError, NpucallError
from npucall_conformance.running.looks.paths.message_paths import sent_together
from npucall_conformance.running.looks.paths.path import (
    AnswerOrError,
    PathCall,
    attempt,
    outcome_of,
)
from npucall_conformance.running.looks.paths.resources import SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_conformance.running.looks.paths.resources import Resources


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
    return [attempt(partial(execute, sample.request(), SECONDS, "")) for sample in samples]


def by_pool_pipeline(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, in a pipeline of a pool; the pipeline stays open."""
    return sent_together(resources.pool_pipeline, samples)


def by_asyncio(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Sends all at once, from tasks of an event loop."""
    loop, requests = resources.loop, [sample.request() for sample in samples]

    async def send(call: BoundCall) -> AnswerOrError:
        start = perf_counter_ns()
        try:
            ended: Response | Exception = await loop.transport.execute(call, SECONDS, "")
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
                await lanes.send(call, SECONDS, "", end)
                return await over
        except TimeoutError:
            return DeadlineError(f"pipeline: no answer within {SECONDS:g} s")
        except NpucallError as error:
            return error

    async def all_of_them() -> list[AnswerOrError]:
        lanes = loop.transport.calls()
        try:
            return list(await asyncio.gather(*(send(lanes, call) for call in requests)))
        finally:
            await lanes.close()

    return loop.done(all_of_them())
