"""How calls are sent by each path: in messages and streams, in sessions, in shared memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import perf_counter_ns
from typing import Any

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import DeadlineError, InternalError, NpucallError, TooLargeError
from npucall.limits import INLINE_BYTES, MAX_MESSAGE_BYTES
from npucall.places import Digest, HandlePart, Keep, Place, RegionPart, StepOutput
from npucall.wire.messages import Response, split_response
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.link import Link
from npucall_client.sending.remote_sessions import uploaded
from npucall_client.sending.senders import finished
from npucall_client.sending.session_transport import HandleUpload
from npucall_client.sending.transfer import parts_of, size_of
from npucall_client.sessions.results import new_handle
from npucall_client.shared.memory import SharedMemory
from npucall_conformance.running.paths.path import (
    SECONDS,
    Fetch,
    OutOfReachError,
    PathCall,
    Resources,
    ended,
    outcome_of,
    request_of,
)
from npucall_conformance.wire import AnswerOrError, in_message

_PIECES = 3
"""A small call, or upload, is cut into so many chunks, and one more."""
_ALIGNMENT = 64
"""In a shared handle, tensors begin at a multiple of this; none is at the handle's beginning."""
_UNTOUCHED = 0x5A
"""Every byte of shared memory around what a call reads and writes."""
_BETWEEN = 64
"""Bytes between two tensors in shared memory; the first does not begin at the beginning."""


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

    return [ended(send(sample.request())) for sample in samples]


def on_streams(
    resources: Resources, samples: Sequence[PathCall], *, whole: bool = False, early: bool = False
) -> list[AnswerOrError]:
    """A stream for each call, in chunks of an odd number of bytes, so that elements are cut.

    ``whole``: of the usual size. ``early``: outputs come as soon as they are computed; raises
    OutOfReachError if they are short, since they then come with the reply.
    """

    def sent(call: BoundCall) -> Awaitable[Response]:
        usual = resources.info.limits.chunk_bytes
        size = usual if whole else min(usual, size_of(call) // _PIECES | 1)

        def send(link: Link, attempts: Attempts) -> Awaitable[Response]:
            large = LargeCall(call, "", size, early_outputs=early)
            return link.exchange("ExecuteStream", attempts, large.run)

        work: Awaitable[Response] = resources.transport.ask(request_of(call), send)
        return work

    for sample in samples if early else ():
        if sum(sample.output_bytes.values()) <= INLINE_BYTES and not sample.is_refused:
            raise OutOfReachError("outputs of up to 1 MiB come with the reply")
    return [ended(sent(sample.request())) for sample in samples]


def by_pipeline(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """All at once, in a pipeline that stays open from case to case."""
    pending: list[Future[AnswerOrError]] = [Future() for _ in samples]
    for sample, future in zip(samples, pending, strict=True):
        finished(_piped(resources, sample.request(), future))
    return [_outcome(each) for each in pending]


async def _piped(resources: Resources, call: BoundCall, pending: Future[AnswerOrError]) -> None:
    start = perf_counter_ns()

    def end(how: Response | Exception) -> None:
        if not pending.done():
            pending.set_result(outcome_of(how, perf_counter_ns() - start))

    try:
        await resources.pipeline.send(request_of(call), end)
    except NpucallError as error:
        end(error)


def _outcome(pending: Future[AnswerOrError]) -> AnswerOrError:
    try:
        return pending.result(SECONDS)
    except TimeoutError:
        return DeadlineError(f"pipeline: no answer within {SECONDS:g} s")


# --- Sessions -------------------------------------------------------------------------------------


def by_handle(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Inputs are parts of handles, one for each call; all are filled before the first call."""

    def put(call: BoundCall) -> list[HandleUpload]:
        whole, handle = bytearray(_ALIGNMENT), new_handle()
        for name, data in call.data.items():
            call.storage[name] = HandlePart(handle, len(whole), len(data))
            whole += data
            whole += bytes(-len(whole) % _ALIGNMENT + _ALIGNMENT)
        return [HandleUpload(handle, bytes(whole))]

    return _with_uploads(resources, samples, put)


def by_digest(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The bytes are uploaded first; then the call names a storage by their SHA-256.

    If the call has two storages, the second is a handle whose bytes are also named by SHA-256.
    """

    def remember(call: BoundCall) -> list[HandleUpload]:
        uploads = []
        storages = [(name, data) for name, data in call.data.items() if len(data)]
        for turn, (name, data) in enumerate(storages[:2]):
            sent = HandleUpload(new_handle(), data, sha256(data).digest())
            uploads.append(sent)
            call.storage[name] = Digest(sent.digest)  # type: ignore[assignment]  # as others may send
            if turn:
                uploads.append(replace(sent, handle=new_handle(), by_digest=True))
                call.storage[name] = HandlePart(uploads[-1].handle, 0, len(data))
        return uploads

    return _with_uploads(resources, samples, remember)


def _with_uploads(
    resources: Resources,
    samples: Sequence[PathCall],
    placed: Callable[[BoundCall], list[HandleUpload]],
) -> list[AnswerOrError]:
    """Uploads what is placed of each call, and then sends the calls in reverse order."""
    calls, handles = [sample.request() for sample in samples], []
    try:
        for call in calls:
            call.home = resources.home
            for upload in placed(call):
                _upload(resources, upload)
                handles.append(upload.handle)
        return _executed(resources, calls[::-1])[::-1]
    finally:
        finished(resources.transport.sessions.release(resources.request(), handles))


def _upload(resources: Resources, upload: HandleUpload) -> None:
    """Uploads, if it travels, in chunks of an odd number of bytes. Raises NpucallError."""
    transport, request = resources.transport, resources.request()
    if not resources.is_remote:
        finished(transport.sessions.upload(request, upload, None))
        return

    def send(link: Link, attempts: Attempts) -> Awaitable[None]:
        short = min(link.limits.chunk_bytes, len(upload.data) // _PIECES | 1)
        return uploaded(link, attempts, upload, None, short)

    finished(transport.ask(request, send))


def by_kept_outputs(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Outputs stay in handles, from which they are downloaded."""
    calls = [sample.request() for sample in samples]
    kept = [{name: Keep(new_handle()) for name in sample.output_bytes} for sample in samples]
    for call, places in zip(calls, kept, strict=True):
        call.home, call.kept = resources.home, places
    try:
        return _executed(resources, calls, partial(_download, resources))
    finally:
        handles = [place.handle for places in kept for place in places.values()]
        finished(resources.transport.sessions.release(resources.request(), handles))


def _executed(
    resources: Resources, calls: Sequence[BoundCall], fetch: Fetch = in_message
) -> list[AnswerOrError]:
    return [ended(resources.transport.execute(request_of(call)), fetch) for call in calls]


def _download(resources: Resources, name: str, place: Place) -> bytes:
    """The bytes of an output that stayed on the server."""
    if not isinstance(place, HandlePart):
        raise InternalError(
            f"response: expected {name} in its handle, found {in_message(name, place)!r}"
        )
    memory = memoryview(bytearray(place.length))
    finished(resources.transport.sessions.download(resources.request(), place, memory, None))
    return bytes(memory)


def by_program(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The calls are steps of one program; calls that are refused are its last steps.

    If a step of a program is refused, the program gives no other answers.
    """
    order = sorted(samples, key=lambda sample: sample.is_refused)
    steps, start = [step_of(sample) for sample in order], perf_counter_ns()
    try:
        answers = finished(resources.transport.sessions.run_program(resources.request(), steps))
    except NpucallError as error:
        step = int(error.details.get("step", "0"))
        return [error if each is order[step] else each.answer for each in samples]
    outcomes = [outcome_of(answer, perf_counter_ns() - start) for answer in answers]
    return [outcomes[order.index(sample)] for sample in samples]


def step_of(sample: PathCall) -> BoundCall:
    """A step; if it takes an output of another step, that is the first step."""
    call = sample.request()
    if sample.takes is not None:
        name, output = sample.takes
        call.storage[name] = StepOutput(0, output)
    return call


# --- Shared memory --------------------------------------------------------------------------------


def by_shared_memory(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Inputs are read, and outputs written, in memory that client and server share."""
    return [_in_memory(resources, sample) for sample in samples]


def _in_memory(resources: Resources, sample: PathCall) -> AnswerOrError:
    call, outputs = sample.request(), sample.output_bytes
    memory, whole = _cleared(resources, [*map(len, call.data.values()), *outputs.values()])
    tensors = _placed(memory, call, outputs)
    before = {name: tensors[name].copy() for name in call.storage if name not in outputs}

    def fetch(name: str, place: Place) -> bytes:
        return tensors[name].tobytes() if isinstance(place, RegionPart) else in_message(name, place)

    outcome = ended(resources.transport.execute(request_of(call)), fetch)
    written = [name for name, array in before.items() if (tensors[name] != array).any()]
    for array in tensors.values():
        array[...] = _UNTOUCHED
    if (whole != _UNTOUCHED).any():
        written.append("the bytes beside the tensors")
    if written:
        text = ", ".join(written)
        return InternalError(f"shared memory: expected {text} left alone, found them written")
    return outcome


def _cleared(resources: Resources, sizes: Sequence[int]) -> tuple[SharedMemory, AnyArray]:
    """Memory with room for tensors of these sizes in bytes, and all of its bytes as an array."""
    try:
        memory = resources.memory(sum(size + 2 * _BETWEEN for size in (*sizes, 0)))
    except TooLargeError as error:
        raise OutOfReachError(str(error)) from error
    whole = memory.empty(memory.nbytes, np.uint8)
    whole[...] = _UNTOUCHED
    memory.clear()
    return memory, whole


def _placed(memory: SharedMemory, call: BoundCall, outputs: Mapping[str, int]) -> dict[str, Any]:
    """Places the storages of a call, and its outputs, in the memory."""
    tensors: dict[str, Any] = {}
    for name, data in [*call.data.items(), *((n, b"") for n in outputs if n not in call.data)]:
        memory.empty(_BETWEEN, np.uint8)
        tensors[name] = memory.empty(len(data) if name in call.data else outputs[name], np.uint8)
        tensors[name][...] = np.frombuffer(data, np.uint8) if name in call.data else _UNTOUCHED + 1
        if name in call.data:
            call.storage[name] = tensors[name].data
        if name in outputs:
            call.targets[name] = tensors[name]
    return tensors
