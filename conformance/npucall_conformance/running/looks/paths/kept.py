"""Paths of sessions: inputs that a session holds, outputs that stay there, programs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import perf_counter_ns
from typing import TYPE_CHECKING

from npucall.errors import InternalError, NpucallError
from npucall.places import Digest, HandlePart, Keep, StepOutput
from npucall_client.sending.senders import finished
from npucall_client.sending.server_limits import ServerLimits
from npucall_client.sending.session_transport import Upload
from npucall_client.sending.sessions import RemoteSessions
from npucall_client.sessions.results import new_handle
from npucall_conformance.running.looks.paths.path import (
    Outcome,
    Sample,
    attempt,
    in_message,
    outcome_of,
)
from npucall_conformance.running.looks.paths.ways import SECONDS
from npucall_conformance.running.looks.paths.wires import no_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.places import Place
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_conformance.running.looks.paths.ways import Ways

_PIECES = 3
"""An upload is cut into so many chunks, and one more."""
_ALIGNMENT = 64
"""In a shared handle, tensors begin at a multiple of this; none is at the handle's beginning."""


def nowhere(ways: Ways) -> str:
    """Why no server keeps anything."""
    return "" if ways.is_remote or ways.is_local else "nobody keeps anything here"


def no_sessions(ways: Ways) -> str:
    """Why there are no sessions."""
    limits = ways.info.limits
    held = limits.handle_memory and limits.session_lease_seconds
    return "" if held or ways.is_local else "the server holds no handles"


def no_handles(ways: Ways) -> str:
    """Why handles cannot be filled or read, which needs a stream."""
    return no_pipeline(ways) or no_sessions(ways)


def no_programs(ways: Ways) -> str:
    """Why there are no programs."""
    none = "" if ways.info.limits.program_steps else "the server runs no programs"
    return no_sessions(ways) or none


def no_digests(ways: Ways) -> str:
    """Why nothing is remembered by its digest."""
    remembers = ways.info.limits.digest_cache_bytes
    return no_handles(ways) or ("" if remembers else "the server remembers no digests")


def by_handle(ways: Ways, samples: Sequence[Sample]) -> list[Outcome]:
    """Inputs are parts of handles, one for each call; all are filled before the first call."""
    calls = [sample.request() for sample in samples]
    handles = [new_handle() for _ in calls]
    try:
        for call, handle in zip(calls, handles, strict=True):
            _put(ways, call, handle)
        # Calls are sent in reverse order, so not in the order in which their handles were filled.
        execute = ways.transport.execute
        outcomes = [attempt(partial(execute, call, SECONDS, "")) for call in reversed(calls)]
        return outcomes[::-1]
    finally:
        _release(ways, handles)


def by_kept_outputs(ways: Ways, samples: Sequence[Sample]) -> list[Outcome]:
    """Outputs stay in handles, and are downloaded once all calls have run."""
    kept = [{name: Keep(new_handle()) for name in each.output_bytes} for each in samples]
    try:
        ended = [_kept(ways, *each) for each in zip(samples, kept, strict=True)]
        fetch = partial(_download, ways)
        return [outcome_of(how, start, fetch) for how, start in ended]
    finally:
        _release(ways, [place.handle for places in kept for place in places.values()])


def _kept(
    ways: Ways, sample: Sample, places: Mapping[str, Keep]
) -> tuple[Response | Exception, int]:
    """How a call with outputs that stay ended, and when it began."""
    call = sample.request()
    call.home = ways.home
    call.kept.update(places)
    start = perf_counter_ns()
    try:
        return finished(ways.transport.execute(call, SECONDS, "")), start
    except NpucallError as error:
        return error, start


def _download(ways: Ways, name: str, place: Place) -> bytes:
    """The bytes of an output that stayed on the server."""
    if not isinstance(place, HandlePart):
        raise InternalError(
            f"response: expected {name} in its handle, found {in_message(name, place)!r}"
        )
    memory = memoryview(bytearray(place.length))
    finished(ways.transport.sessions.download(ways.home, place, memory, SECONDS, "", None))
    return bytes(memory)


def by_program(ways: Ways, samples: Sequence[Sample]) -> list[Outcome]:
    """The calls are steps of one program; calls that are refused are its last steps.

    If a step of a program is refused, the program gives no other answers.
    """
    order = sorted(samples, key=lambda sample: isinstance(sample.answer, NpucallError))
    steps = [step_of(sample) for sample in order]
    start = perf_counter_ns()
    try:
        answers = finished(ways.transport.sessions.run_program(ways.home, steps, SECONDS, ""))
    except NpucallError as error:
        step = int(error.details.get("step", "0"))
        return [error if each is order[step] else each.answer for each in samples]
    outcomes = [outcome_of(answer, start) for answer in answers]
    return [outcomes[order.index(sample)] for sample in samples]


def step_of(sample: Sample) -> BoundCall:
    """A step; if it takes an output of another step, that is the first step."""
    call = sample.request()
    if sample.takes is not None:
        name, output = sample.takes
        call.storage[name] = StepOutput(0, output)
    return call


def by_digest(ways: Ways, samples: Sequence[Sample]) -> list[Outcome]:
    """The bytes are uploaded first; then the call names a storage by their SHA-256.

    If the call has two storages, the second is a handle whose bytes are also named by SHA-256.
    """
    calls = [sample.request() for sample in samples]
    handles: list[bytes] = []
    try:
        for call in calls:
            handles += _remember(ways, call)
        execute = ways.transport.execute
        return [attempt(partial(execute, call, SECONDS, "")) for call in calls]
    finally:
        _release(ways, handles)


def _remember(ways: Ways, call: BoundCall) -> list[bytes]:
    """Uploads two storages of a call, and lets the call name them. Returns handles to release."""
    call.home = ways.home
    first, *rest = [item for item in call.data.items() if len(item[1])] or [("", b"")]
    if not first[0]:
        return []
    name, data = first
    uploads = [Upload(new_handle(), data, sha256(data).digest())]
    call.storage[name] = Digest(uploads[0].digest)  # type: ignore[assignment]  # as others may send
    for other, more in rest[:1]:
        sent = Upload(new_handle(), more, sha256(more).digest())
        uploads += [sent, replace(sent, handle=new_handle(), by_digest=True)]
        call.storage[other] = HandlePart(uploads[-1].handle, 0, len(more))
    for upload in uploads:
        _upload(ways, upload)
    return [upload.handle for upload in uploads]


def _upload(ways: Ways, upload: Upload) -> None:
    """Uploads, if it travels, in chunks of an odd number of bytes. Raises NpucallError."""
    sessions = ways.transport.sessions
    if ways.is_remote:
        limits = ServerLimits(ways.info.limits, 0)
        limits.chunk_bytes = min(limits.chunk_bytes, len(upload.data) // _PIECES | 1)
        sessions = RemoteSessions(ways.address, limits, ways.transport, ways.transport.at)
    finished(sessions.upload(ways.home, upload, SECONDS, "", None))


def _put(ways: Ways, call: BoundCall, handle: bytes) -> None:
    """Places the storages of a call in one handle. Raises NpucallError."""
    whole = bytearray(_ALIGNMENT)
    for name, data in call.data.items():
        call.storage[name] = HandlePart(handle, len(whole), len(data))
        whole += data
        whole += bytes(-len(whole) % _ALIGNMENT + _ALIGNMENT)
    call.home = ways.home
    _upload(ways, Upload(handle, bytes(whole)))


def _release(ways: Ways, handles: Sequence[bytes]) -> None:
    finished(ways.transport.sessions.release(ways.home, handles, SECONDS))
