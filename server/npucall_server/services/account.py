"""The account and the current activity, of ``npucall.v1.AccessService``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from npucall.errors import MessageError
from npucall.v1 import access_service_pb2 as pb
from npucall.v1.operator_service_pb2 import CallerInfo
from npucall_server.access.callers import Caller
from npucall_server.access.guard import require
from npucall_server.access.identity import Identity, whose
from npucall_server.accounts.endings import Endings
from npucall_server.accounts.ledger import Ledger
from npucall_server.accounts.usage import Usage, UsageLine
from npucall_server.scheduling.executor import Executor
from npucall_server.scheduling.gate import Gate
from npucall_server.services.parsing import parse
from npucall_server.services.who import caller_info, reservation
from npucall_server.settings.tenants import Role
from npucall_server.telemetry.log import Record

_NOTHING = UsageLine()


@dataclass(frozen=True)
class AccountService:
    """The methods, from bytes to bytes. ``streams``: the places of streams."""

    usage: Usage
    executor: Executor
    streams: Ledger
    gate: Gate
    endings: Endings | None = None

    def get_usage(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """How long each caller used the device."""
        last = parse(pb.GetUsageRequest, request).last_seconds
        if not last >= 0:
            raise MessageError(f"last_seconds: expected 0 or more, found {last:g}")
        lines = [
            pb.UsageLine(
                tenant=key.tenant,
                caller=key.caller,
                operator=key.operator,
                calls=line.calls,
                request_bytes=line.request_bytes,
                response_bytes=line.response_bytes,
                device_seconds=line.device_ns / 1e9,
                refusals=line.refusals,
                calls_in_frames=line.in_frames,
            )
            for key, line in self.usage.lines(last).items()
            if _sees(caller.identity, key.tenant, key.caller)
        ]
        return pb.GetUsageResponse(lines=lines, since=self.usage.since).SerializeToString()

    def get_activity(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Who uses the device now."""
        parse(pb.GetActivityRequest, request)
        executor, told = self.executor, caller.identity
        minute = self.usage.last_minute()
        return pb.GetActivityResponse(
            callers=self._activities(told, minute),
            running=executor.turns.running,
            waiting=executor.turns.waiting,
            lanes=executor.device.lanes,
            device_seconds=sum(line.device_ns for line in minute.values()) / 1e9,
            reservation=reservation(self.gate.shown(), told),
        ).SerializeToString()

    def _activities(
        self, told: Identity, minute: dict[tuple[str, str], UsageLine]
    ) -> Iterator[pb.CallerActivity]:
        """The activities of the callers that the asking caller may see."""
        calls = _by_caller(self.executor.calls_by_owner())
        held = _by_caller(self.executor.memory.owners)
        streams = _by_caller(self.streams.owners)
        ended = self.endings.held_against() if self.endings is not None else {}
        by_who = {whose(person): each for person, each in ended.items()}
        for who in sorted({*calls, *held, *streams, *minute, *by_who}):
            if _sees(told, *who):
                line = minute.get(who, _NOTHING)
                yield pb.CallerActivity(
                    caller=_info(who, told),
                    calls=calls[who],
                    bytes=held[who],
                    streams=streams[who],
                    device_seconds=line.device_ns / 1e9,
                    calls_answered=line.calls,
                    calls_in_frames=line.in_frames,
                    processes_ended=by_who[who].processes if who in by_who else 0.0,
                    pause_seconds=by_who[who].pause if who in by_who else 0.0,
                )

    def lift_pause(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Forgets what somebody's calls have ended."""
        require(caller.identity, Role.ADMIN, "lift the pause between a caller's calls")
        asked = parse(pb.LiftPauseRequest, request)
        if self.endings is not None:
            self.endings.lift(f"{asked.tenant}/{asked.name}")
        return pb.LiftPauseResponse().SerializeToString()


def _sees(told: Identity, tenant: str, name: str) -> bool:
    """Callers see their own lines, admins everybody's."""
    return told.role >= Role.ADMIN or (told.tenant, told.name) == (tenant, name)


def _by_caller(owners: dict[str, int]) -> Counter[tuple[str, str]]:
    """Sums by caller. If nothing proved who a caller is, its connections are added up."""
    sums: Counter[tuple[str, str]] = Counter()
    for owner, amount in owners.items():
        sums[whose(owner)] += amount
    return sums


def _info(who: tuple[str, str], told: Identity) -> CallerInfo:
    if who == (told.tenant, told.name):
        return caller_info(told, told)
    tenant, name = who
    return CallerInfo(tenant=tenant, name=name)
