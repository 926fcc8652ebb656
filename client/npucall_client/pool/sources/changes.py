"""Reads the messages of a directory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from npucall.errors import MessageError
from npucall.membership import check_address
from npucall.v1 import directory_service_pb2 as pb
from npucall_client.pool.members import Load, Member, MemberState

_STATES = {
    pb.MEMBER_STATE_DRAINING: MemberState.DRAINING,
    pb.MEMBER_STATE_SUSPECT: MemberState.SUSPECT,
}


class Changes(NamedTuple):
    """The changes in the table of a directory."""

    epoch: int
    complete: bool
    members: list[Member]
    gone: list[str]


def read(message: bytes) -> Changes:
    """Reads a message. Raises MessageError.

    A member with an invalid address is left out, so that no client connects to it.
    """
    try:
        told = pb.WatchMembersResponse.FromString(message)
    except DecodeError as error:
        raise MessageError(f"the directory's message cannot be read: {error}") from None
    living = [each for each in told.changed if each.state != pb.MEMBER_STATE_GONE]
    gone = {each.address for each in told.changed if each.state == pb.MEMBER_STATE_GONE}
    return Changes(told.epoch, told.complete, [*_members(living)], [*told.gone, *gone])


def _members(told: Iterable[pb.Member]) -> Iterable[Member]:
    for each in told:
        try:
            check_address(each.address)
        except ValueError:
            continue
        yield _member(each)


def _member(told: pb.Member) -> Member:
    load = told.load
    return Member(
        told.address,
        instance=told.server.instance,
        host=told.host,
        device=told.server.device,
        soc=told.server.soc,
        product=told.product,
        version=told.version,
        catalogue=told.catalogue,
        memory_limit=told.memory_limit,
        labels=dict(told.labels),
        state=_STATES.get(told.state, MemberState.SERVING),
        load=Load(
            load.running,
            load.waiting,
            load.lanes,
            load.bytes_in_flight,
            reserved=load.HasField("reservation"),
        ),
        slowed=told.slowed_callers,
    )
