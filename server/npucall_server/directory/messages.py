"""Reads the messages of servers and makes the messages for watching clients, as bytes."""

from __future__ import annotations

from collections.abc import Mapping

from npucall import membership
from npucall.errors import MessageError
from npucall.limits import MAX_MEMBER_BYTES, MAX_NAME_BYTES
from npucall.v1 import directory_service_pb2 as pb
from npucall.wire import protobuf
from npucall_server.directory.table import Beat, CallerEnds, ReportedState, TableChanges
from npucall_server.services.parsing import parse

_STATES = {
    pb.MEMBER_STATE_DRAINING: ReportedState.DRAINING,
    pb.MEMBER_STATE_GONE: ReportedState.GONE,
}
_MOST_PROCESSES = 1e9
_SUSPECT = pb.Member(state=pb.MEMBER_STATE_SUSPECT).SerializeToString()
"""Appended to a member: if a message has a field twice, the last one counts."""
_CHANGED = pb.WatchMembersResponse.DESCRIPTOR.fields_by_name["changed"].number


def read_beat(message: bytes) -> Beat:
    """Reads a beat. Raises MessageError."""
    if len(message) > MAX_MEMBER_BYTES:
        raise MessageError(
            f"member: expected at most {MAX_MEMBER_BYTES} bytes, found {len(message)}",
            limit=str(MAX_MEMBER_BYTES),
        )
    request = parse(pb.AnnounceRequest, message)
    member = request.member
    _check(member)
    if not request.sequence:
        raise MessageError("sequence: expected 1 or more, found 0")
    # Fields of a newer server that this directory does not know stay in the body.
    state = _STATES.get(member.state, ReportedState.SERVING)
    body = member.SerializeToString(deterministic=True)
    ended = tuple(
        CallerEnds(each.tenant, each.name, each.processes)
        for each in request.ended
        if 0 < each.processes < _MOST_PROCESSES  # no NaN
    )
    return Beat(member.address, member.server.instance, request.sequence, state, body, ended)


def answer(beat: Beat, ended: Mapping[CallerEnds, str]) -> bytes:
    """The answer to a beat; ``ended``: in all, and which member takes the caller's calls."""
    told = [
        pb.CallerEnded(tenant=each.tenant, name=each.name, processes=each.processes, member=member)
        for each, member in ended.items()
    ]
    return pb.AnnounceResponse(sequence=beat.sequence, ended=told).SerializeToString()


def members(changes: TableChanges) -> bytes:
    """The part of a message with the changes. It is the same for all watching clients."""
    parts = []
    for beat, suspect, _ in changes.members:
        member = beat.body + _SUSPECT if suspect else beat.body
        parts += [protobuf.header(_CHANGED, len(member)), member]
    rest = pb.WatchMembersResponse(gone=changes.gone).SerializeToString()
    return b"".join([*parts, rest])


def head(epoch: int, version: int, *, complete: bool) -> bytes:
    """The part that differs for each client. It goes before the other part."""
    return pb.WatchMembersResponse(
        epoch=epoch, version=version, complete=complete
    ).SerializeToString()


def _check(member: pb.Member) -> None:
    """Raises MessageError for a member that clients could not use."""
    try:
        membership.split_address(member.address)
    except ValueError as error:
        raise MessageError(f"address: {error}") from None
    if fault := membership.fault_of_labels(member.labels):
        raise MessageError(f"labels: {fault}")
    server = member.server
    texts = {
        "instance": server.instance, "device": server.device, "soc": server.soc,
        "product": member.product, "host": member.host, "version": member.version,
        "shared_memory_socket": member.shared_memory_socket,
    }  # fmt: skip
    for name, text in texts.items():
        if len(text.encode()) > MAX_NAME_BYTES or not text.isprintable():
            raise MessageError(
                f"{name}: expected at most {MAX_NAME_BYTES} bytes of printable characters, found "
                "something else"
            )
    if not server.instance:
        raise MessageError("instance: expected the id of the announcing process, found none")
