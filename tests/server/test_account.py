"""GetUsage and GetActivity over a real socket: who sees what, and what it says."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from npucall.v1 import access_service_pb2 as pb
from npucall.v1 import operator_service_pb2, tensor_pb2
from npucall_server.access.guard import OpenGuard
from npucall_server.access.identity import Identity, KnownBy, Role, anybody, whose
from npucall_server.services.access import NAME
from npucall_server.services.operators import NAME as OPERATORS

from .scripted import PATIENCE, ScriptedDevice, until
from .streams import Served, call_of, info_of, serving, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall_server.devices.base import Turn

ELEMENTS = 2
L1 = "aclnnL1LossBackward"
PEOPLE = {
    "ann": Identity("vision", "ann", Role.USER, KnownBy.TOKEN),
    "abe": Identity("vision", "abe", Role.USER, KnownBy.TOKEN),
    "ada": Identity("audio", "ada", Role.ADMIN, KnownBy.TOKEN),
}


class KnowsByName(OpenGuard):
    """Believes what callers say in their metadata."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], context: grpc.ServicerContext
    ) -> Identity:
        return PEOPLE[str(metadata["name"])]


class Person:
    """A caller of a server, known by a name."""

    def __init__(self, channel: grpc.Channel, name: str) -> None:
        self._channel, self._metadata = channel, (("name", name),)

    def execute(self, operator: str = L1) -> Any:
        storage = [tensor_pb2.Storage(data=bytes(4 * ELEMENTS))] * 3
        call = call_of(ELEMENTS, operator)
        request = operator_service_pb2.ExecuteRequest(call=call, storage=storage)
        return self._future(OPERATORS, "Execute", request)

    def usage(self, **request: float) -> pb.GetUsageResponse:
        answer = self._future(NAME, "GetUsage", pb.GetUsageRequest(**request)).result()
        return pb.GetUsageResponse.FromString(answer)

    def activity(self) -> pb.GetActivityResponse:
        answer = self._future(NAME, "GetActivity", pb.GetActivityRequest()).result()
        return pb.GetActivityResponse.FromString(answer)

    def _future(self, service: str, method: str, request: Any) -> Any:
        send: Any = self._channel.unary_unary(f"/{service}/{method}")
        data = request.SerializeToString()
        return send.future(data, timeout=PATIENCE, metadata=self._metadata)


def with_a_turn(turn: Turn) -> None:
    with turn():
        pass


@contextmanager
def people(device: ScriptedDevice | None = None) -> Iterator[tuple[Served, dict[str, Person]]]:
    with (
        serving(device or ScriptedDevice(with_a_turn), guard=KnowsByName()) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        yield served, {name: Person(channel, name) for name in PEOPLE}


def lines_of(answer: pb.GetUsageResponse) -> list[tuple[str, str, str, int]]:
    return [(line.tenant, line.caller, line.operator, line.calls) for line in answer.lines]


def test_callers_see_their_own_usage_and_admins_everybodys() -> None:
    with people() as (_, of):
        for name in "ann", "ann", "abe":
            of[name].execute().result()
        assert lines_of(of["ann"].usage()) == [("vision", "ann", L1, 2)]
        assert lines_of(of["abe"].usage()) == [("vision", "abe", L1, 1)]
        assert lines_of(of["ada"].usage()) == [
            ("vision", "abe", "", 1), ("vision", "abe", L1, 1),
            ("vision", "ann", "", 1), ("vision", "ann", L1, 2),
        ]  # fmt: skip


def test_a_line_has_bytes_device_time_and_refusals() -> None:
    with people() as (_, of):
        of["ann"].execute().result()
        with pytest.raises(grpc.RpcError):
            of["ann"].execute("aclnnNonsense").result()
        known, unknown = sorted(of["ann"].usage().lines, key=lambda line: line.operator)[::-1]
    assert known.request_bytes > 3 * 4 * ELEMENTS
    assert known.response_bytes > 4 * ELEMENTS
    assert known.device_seconds > 0
    assert dict(known.refusals) == {}
    assert dict(unknown.refusals) == {"OPERATOR_UNKNOWN": 1}


def test_seconds_that_cannot_be_are_refused() -> None:
    with people() as (_, of):
        for seconds in -1.0, float("nan"):
            with pytest.raises(grpc.RpcError) as caught:
                of["ann"].usage(last_seconds=seconds)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            trailers: Any = dict(caught.value.trailing_metadata())
            assert info_of(trailers["grpc-status-details-bin"]).reason == "MESSAGE_MALFORMED"


def test_activity_tells_who_has_the_device_and_who_waits() -> None:
    goes_on = threading.Event()

    def run(turn: Turn) -> None:
        with turn():
            goes_on.wait(PATIENCE)

    with people(ScriptedDevice(run)) as (served, of):
        calls = [of["ann"].execute(), of["abe"].execute()]
        until(lambda: served.executor.turns.waiting == 1, "one runs, one waits")
        seen = of["ada"].activity()
        goes_on.set()
        for call in calls:
            call.result()
    assert (seen.running, seen.waiting, seen.lanes) == (1, 1, 1)
    assert [(each.caller.tenant, each.caller.name, each.calls) for each in seen.callers] == [
        ("vision", "abe", 1), ("vision", "ann", 1),
    ]  # fmt: skip
    assert all(each.bytes > 0 for each in seen.callers)


def test_callers_see_their_own_activity_and_the_sums() -> None:
    with people() as (served, of):
        for name in "ann", "abe", "abe":
            of[name].execute().result()
        until(served.is_idle, "its calls are dismissed")
        (own,) = of["ann"].activity().callers
        everybody = of["ann"].activity()
    assert (own.caller.tenant, own.caller.name, own.calls_answered) == ("vision", "ann", 1)
    assert own.caller.role == operator_service_pb2.CALLER_ROLE_USER
    assert everybody.device_seconds > own.device_seconds > 0


def test_activity_counts_streams_by_caller() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1)
        peer.receive()
        with grpc.insecure_channel(served.target) as channel:
            (line,) = Person(channel, "nobody asks").activity().callers
        assert (line.caller.name, line.streams) == ("ipv4:127.0.0.1", 1)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (PEOPLE["ann"].owner, ("vision", "ann")),
        (anybody("ipv4:127.0.0.1:5").owner, ("", "ipv4:127.0.0.1")),
        (anybody("unix:/run/x.sock").owner, ("", "unix:/run/x.sock")),
        (Identity("ci", "repo:a/b", Role.USER, KnownBy.JWT).owner, ("ci", "repo:a/b")),
    ],
)
def test_an_owner_tells_whose_it_is(owner: str, expected: tuple[str, str]) -> None:
    assert whose(owner) == expected
