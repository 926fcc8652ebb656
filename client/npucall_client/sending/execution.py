"""One attempt at a call on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_client.calls.answers import response_to
from npucall_client.sending.frames.frame_region import REGION_FROM
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.server_limits import CHECKED_FROM
from npucall_client.sending.transfer import parts_of, place_nothing_in_chunks

if TYPE_CHECKING:
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.link import Link


async def executed(link: Link, attempts: Attempts) -> Response:
    """One attempt at a call: in one message, or in chunks on a stream of its own."""
    call, limits = attempts.request.call, link.limits
    if link.memories.regions:
        link.memories.place(call)
    in_frames = link.frames.is_offered and call.progress is None
    if in_frames and link.frames.memory.suits(call) and not attempts.in_chunks:
        response = await link.placed(call, attempts)
        if response is not None:
            return response
    if attempts.in_chunks or limits.travels_in_chunks(call, in_frames=in_frames):
        return await _in_chunks(link, attempts, call)
    message = parts_of(call)
    size = sum(map(len, message))
    if size >= CHECKED_FROM:
        limits.check_message(call, size, await link.frames.most_bytes(attempts))
    answer = await link.send_once("Execute", message, attempts)
    response = response_to(call, answer)
    if in_frames and len(answer) >= REGION_FROM:
        link.frames.memory.note(call, response)
    return response


async def _in_chunks(link: Link, attempts: Attempts, call: BoundCall) -> Response:
    chunk_bytes, early = link.limits.chunk_bytes, link.limits.early_outputs
    if not link.limits.chunks_beside_places:
        place_nothing_in_chunks(call, chunk_bytes)
    link.limits.check_room(call)
    large = LargeCall(call, attempts.request.request_id, chunk_bytes, early_outputs=early)
    return await link.exchange("ExecuteStream", attempts, large.run)
