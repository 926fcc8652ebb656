"""What a server answers to a call or a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import TooLargeError
from npucall.limits import MAX_ANSWER_BYTES
from npucall.wire.replies import Timings, encode_timings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.declare.prepare import Prepared
    from npucall.places import Place
    from npucall.programs import Program
    from npucall_server.scheduling.executor import Completed, Executor
    from npucall_server.telemetry.log import Record


class Answer(NamedTuple):
    """The answer to a call: the parts of an ``ExecuteResponse``."""

    reply: bytes
    timings: bytes
    storage: Sequence[Place]


class Plan(NamedTuple):
    """The answer to a call or a program without data."""

    steps: Sequence[tuple[bytes, int]]
    """The reply of each step, and its bytes of workspace."""
    timings: bytes
    peak: int
    """The most bytes of device memory that a program needs at a time."""


def timings_of(record: Record, completed: Completed | None = None) -> bytes:
    """The timings of a call, of which the record gets those of its run."""
    if completed is not None:
        record.queue_ns = completed.queue_ns
        phases = completed.phases
        record.copy_in_ns, record.plan_ns, record.run_ns, record.copy_out_ns = phases
    return encode_timings(
        Timings(
            record.decode_ns, record.check_ns, record.queue_ns, record.run_ns,
            record.encode_ns, record.copy_in_ns, record.plan_ns, record.copy_out_ns,
        )
    )  # fmt: skip


def check_program_answer(executor: Executor, program: Program) -> None:
    """Raises TooLargeError if the outputs of a program do not fit in a message."""
    limit = most_in_one(executor)
    if (size := program.replied_bytes) > limit:
        raise TooLargeError(
            f"response: expected at most {limit} bytes of outputs in one message, found {size}; "
            "keep outputs in handles and download them",
            limit=str(limit),
        )


def check_call_answer(executor: Executor, asked: Prepared | Program, *, streams: bool) -> None:
    """Raises TooLargeError if the outputs of a call do not fit in a message.

    ``streams``: the error then points to ExecuteStream, which sends them in chunks.
    """
    limit, size = most_in_one(executor), asked.replied_bytes
    if size <= limit:
        return
    executor.room_of(asked)  # a stream would refuse this too
    found = f"response: expected at most {limit} bytes of outputs in one message, found {size}"
    if not streams:
        raise TooLargeError(found, limit=str(limit))
    raise TooLargeError(
        f"{found}; ExecuteStream sends them in chunks", limit=str(limit), method="ExecuteStream"
    )


def most_in_one(executor: Executor) -> int:
    """The most bytes of outputs in one message."""
    return min(MAX_ANSWER_BYTES, executor.limits.memory_limit // 2)
