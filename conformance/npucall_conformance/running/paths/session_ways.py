"""Paths of sessions: inputs that a session holds, outputs that stay there, programs."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import perf_counter_ns
from typing import TYPE_CHECKING

from npucall.errors import InternalError, NpucallError
from npucall.places import Digest, HandlePart, Keep, Place, StepOutput
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.link import Link
from npucall_client.sending.remote_sessions import uploaded
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.session_transport import HandleUpload
from npucall_client.sessions.results import new_handle
from npucall_conformance.running.paths.path import AnswerOrError, PathCall, ended, outcome_of
from npucall_conformance.running.paths.resources import SECONDS, request_of
from npucall_conformance.wire import in_message

if TYPE_CHECKING:
    from npucall_conformance.running.paths.path import Fetch
    from npucall_conformance.running.paths.resources import Resources

_PIECES = 3
"""An upload is cut into so many chunks, and one more."""
_ALIGNMENT = 64
"""In a shared handle, tensors begin at a multiple of this; none is at the handle's beginning."""


def by_handle(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Inputs are parts of handles, one for each call; all are filled before the first call."""
    calls = [sample.request() for sample in samples]
    handles = [new_handle() for _ in calls]
    try:
        for call, handle in zip(calls, handles, strict=True):
            _put(resources, call, handle)
        # Calls are sent in reverse order, so not in the order in which their handles were filled.
        return _executed(resources, calls[::-1])[::-1]
    finally:
        _release(resources, handles)


def by_kept_outputs(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """Outputs stay in handles, from which they are downloaded."""
    calls = [sample.request() for sample in samples]
    kept = [{name: Keep(new_handle()) for name in sample.output_bytes} for sample in samples]
    for call, places in zip(calls, kept, strict=True):
        call.home = resources.home
        call.kept = places
    try:
        return _executed(resources, calls, partial(_download, resources))
    finally:
        _release(resources, [place.handle for places in kept for place in places.values()])


def _executed(
    resources: Resources, calls: Sequence[BoundCall], fetch: Fetch = in_message
) -> list[AnswerOrError]:
    execute = resources.transport.execute
    return resources.server.each([ended(execute(request_of(call)), fetch) for call in calls])


def _download(resources: Resources, name: str, place: Place) -> bytes:
    """The bytes of an output that stayed on the server."""
    if not isinstance(place, HandlePart):
        raise InternalError(
            f"response: expected {name} in its handle, found {in_message(name, place)!r}"
        )
    memory = memoryview(bytearray(place.length))
    request = Request(SECONDS, home=resources.home)
    finished(resources.transport.sessions.download(request, place, memory, None))
    return bytes(memory)


def by_program(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The calls are steps of one program; calls that are refused are its last steps.

    If a step of a program is refused, the program gives no other answers.
    """
    order = sorted(samples, key=lambda sample: isinstance(sample.answer, NpucallError))
    steps = [step_of(sample) for sample in order]
    start = perf_counter_ns()
    try:
        request = Request(SECONDS, home=resources.home)
        answers = finished(resources.transport.sessions.run_program(request, steps))
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


def by_digest(resources: Resources, samples: Sequence[PathCall]) -> list[AnswerOrError]:
    """The bytes are uploaded first; then the call names a storage by their SHA-256.

    If the call has two storages, the second is a handle whose bytes are also named by SHA-256.
    """
    calls = [sample.request() for sample in samples]
    handles: list[bytes] = []
    try:
        for call in calls:
            handles += _remember(resources, call)
        return _executed(resources, calls)
    finally:
        _release(resources, handles)


def _remember(resources: Resources, call: BoundCall) -> list[bytes]:
    """Uploads two storages of a call, and lets the call name them. Returns handles to release."""
    call.home = resources.home
    first, *rest = [item for item in call.data.items() if len(item[1])] or [("", b"")]
    if not first[0]:
        return []
    name, data = first
    uploads = [HandleUpload(new_handle(), data, sha256(data).digest())]
    call.storage[name] = Digest(uploads[0].digest)  # type: ignore[assignment]  # as others may send
    for other, more in rest[:1]:
        sent = HandleUpload(new_handle(), more, sha256(more).digest())
        uploads += [sent, replace(sent, handle=new_handle(), by_digest=True)]
        call.storage[other] = HandlePart(uploads[-1].handle, 0, len(more))
    for upload in uploads:
        _upload(resources, upload)
    return [upload.handle for upload in uploads]


def _upload(resources: Resources, upload: HandleUpload) -> None:
    """Uploads, if it travels, in chunks of an odd number of bytes. Raises NpucallError."""
    transport, request = resources.transport, Request(SECONDS, home=resources.home)
    if not resources.is_remote:
        finished(transport.sessions.upload(request, upload, None))
        return

    def send(link: Link, attempts: Attempts) -> Awaitable[None]:
        short = min(link.limits.chunk_bytes, len(upload.data) // _PIECES | 1)
        return uploaded(link, attempts, upload, None, short)

    finished(transport.ask(request, send))


def _put(resources: Resources, call: BoundCall, handle: bytes) -> None:
    """Places the storages of a call in one handle. Raises NpucallError."""
    whole = bytearray(_ALIGNMENT)
    for name, data in call.data.items():
        call.storage[name] = HandlePart(handle, len(whole), len(data))
        whole += data
        whole += bytes(-len(whole) % _ALIGNMENT + _ALIGNMENT)
    call.home = resources.home
    _upload(resources, HandleUpload(handle, bytes(whole)))


def _release(resources: Resources, handles: Sequence[bytes]) -> None:
    request = Request(SECONDS, home=resources.home)
    finished(resources.transport.sessions.release(request, handles))
