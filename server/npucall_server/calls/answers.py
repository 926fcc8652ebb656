"""What a server answers to a call or a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from npucall.declare.prepare import Prepared
from npucall.errors import TooLargeError
from npucall.limits import MAX_ANSWER_BYTES
from npucall.places import Place
from npucall.programs import Program
from npucall_server.calls.known_call import KnownCall
from npucall_server.calls.open_places import OpenPlaces
from npucall_server.devices.base import Outputs
from npucall_server.scheduling.executor import Executor


class Answer(NamedTuple):
    """The answer to a call: the parts of an ``ExecuteResponse``."""

    reply: bytes
    timings: bytes
    storage: Sequence[Place]


class PlanAnswer(NamedTuple):
    """The answer to a call or a program without data."""

    steps: Sequence[tuple[bytes, int]]
    """The reply of each step, and its bytes of workspace."""
    timings: bytes
    peak: int
    """The most bytes of device memory that a program needs at a time."""


def most_in_one(executor: Executor) -> int:
    """The most bytes of outputs in one message."""
    return min(MAX_ANSWER_BYTES, executor.limits.memory_limit // 2)


def too_long(
    executor: Executor, asked: Prepared | Program, *, program: bool, streams: bool
) -> TooLargeError:
    """The error of a call whose outputs do not fit in a message.

    ``streams``: it points to ExecuteStream, which sends them in chunks.
    """
    limit = most_in_one(executor)
    found = (
        f"response: expected at most {limit} bytes of outputs in one message, found "
        f"{asked.replied_bytes}"
    )
    if program:
        text = f"{found}; keep outputs in handles and download them"
        return TooLargeError(text, limit=str(limit))
    executor.room_of(asked)  # a stream would refuse this too
    if not streams:
        return TooLargeError(found, limit=str(limit))
    return TooLargeError(
        f"{found}; ExecuteStream sends them in chunks", limit=str(limit), method="ExecuteStream"
    )


def replies_of(
    asked: Prepared | Program,
    outputs: Outputs | None,
    places: OpenPlaces | None,
    known: Callable[[Prepared], KnownCall],
) -> list[tuple[bytes, Sequence[Place]]]:
    """The reply of each step, and where its outputs are. ``outputs``: None if it had not to run."""
    calls = [step.call for step in asked.steps] if isinstance(asked, Program) else [asked]
    replies = []
    for number, call in enumerate(calls):
        found: Any = outputs[number] if outputs is not None else [None] * len(call.outputs)
        if places is not None:
            found = places.replied(number, found)
        replies.append((known(call).reply, found))
    return replies
