"""A server as it announces itself: ``npucall.v1.Member``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from npucall.v1 import directory_service_pb2 as pb
from npucall.v1 import operator_service_pb2
from npucall.wire.replies import ServerIdentity, encode_identity
from npucall_server.access.identity import whose
from npucall_server.accounts.endings import Endings
from npucall_server.scheduling.executor import Executor
from npucall_server.scheduling.gate import Gate
from npucall_server.settings.server import ServerSettings


@dataclass(frozen=True)
class MemberParts:
    """The parts of the server that a member reports on."""

    settings: ServerSettings
    identity: ServerIdentity
    executor: Executor
    gate: Gate
    catalogue: Callable[[], int]
    is_serving: Callable[[], bool]
    endings: Endings | None = None


class Beats:
    """Makes beats, each with the next number. Safe to use from several threads."""

    def __init__(self, address: str, parts: MemberParts) -> None:
        self.address = address
        self._parts = parts
        self._sequence = 0
        self._gone = False
        self._lock = threading.Lock()
        settings, device = parts.settings, parts.executor.device
        path = settings.shared_memory
        self._lasting = pb.Member(
            address=address,
            server=encode_identity(parts.identity),
            product=device.product.soc,
            host=socket.gethostname(),
            catalogue=parts.catalogue(),
            labels=settings.labels,
            version=version("npucall-server"),
            memory_limit=settings.memory_limit,
            shared_memory_socket=str(path.absolute()) if path else "",
        )

    def next(self) -> bytes:
        """A beat with the current state."""
        endings = self._parts.endings
        slowed = len(endings.slowed()) if endings is not None else 0
        member = pb.Member(state=self._state(), load=self._load(), slowed_callers=slowed)
        member.MergeFrom(self._lasting)
        with self._lock:
            self._sequence += 1
            request = pb.AnnounceRequest(member=member, sequence=self._sequence)
        for person, each in endings.held_against().items() if endings is not None else ():
            tenant, name = whose(person)
            request.ended.add(tenant=tenant, name=name, processes=each.processes)
        return request.SerializeToString()

    def hear(self, answer: bytes) -> None:
        """Takes what a directory answers."""
        endings = self._parts.endings
        if endings is not None:
            told = pb.AnnounceResponse.FromString(answer).ended
            endings.hear(
                {
                    f"{each.tenant}/{each.name}": (
                        each.processes,
                        "" if each.member == self.address else each.member,
                    )
                    for each in told
                }
            )

    def end(self) -> None:
        """From now on the beats say that the server is gone."""
        self._gone = True

    def _state(self) -> pb.MemberState.ValueType:
        if self._gone:
            return pb.MEMBER_STATE_GONE
        serving = self._parts.is_serving()
        return pb.MEMBER_STATE_SERVING if serving else pb.MEMBER_STATE_DRAINING

    def _load(self) -> pb.MemberLoad:
        executor, shown = self._parts.executor, self._parts.gate.shown()
        reservation = None
        if shown is not None:
            reservation = operator_service_pb2.Reservation(
                ends_seconds=shown.ends_seconds, waiting=shown.waiting
            )
        return pb.MemberLoad(
            running=executor.turns.running,
            waiting=executor.turns.waiting,
            lanes=executor.device.lanes,
            bytes_in_flight=executor.bytes_in_flight,
            reservation=reservation,
        )
