"""GetUsage and GetActivity over a real socket: who sees what, and what it says of whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tests.server.carriers.frames.peer import connected, framed
from tests.server.fakes import BlockingDevice, FakeClock, FakeDevice, until
from tests.server.people import BelievingGuard, Person, told
from tests.server.raw import channel_to, stream
from tests.server.serving import Served, serving

from npucall.v1 import access_service_pb2 as pb
from npucall.v1 import operator_service_pb2
from npucall_server.access.identity import Identity, KnownBy, anybody, whose
from npucall_server.devices.base import DeviceTurn
from npucall_server.settings.tenants import Role

L1 = "aclnnL1LossBackward"
People = tuple[Person, Person, Person]


class TimedDevice(FakeDevice):
    """Each call takes half a second of the fake clock."""

    clock: FakeClock

    def __init__(self) -> None:
        super().__init__(self._take_time)

    def _take_time(self, turn: DeviceTurn) -> None:
        with turn():
            self.clock.advance(0.5)


@contextmanager
def persons(served: Served) -> Iterator[People]:
    """Two of vision, and an administrator of another tenant."""
    who = "vision/ann/user", "vision/abe/user", "audio/ada/admin"
    with channel_to(served.target) as channel:
        ann, abe, ada = (Person(channel, each) for each in who)
        yield ann, abe, ada


@pytest.fixture
def served() -> Iterator[Served]:
    device = TimedDevice()
    with serving(device, BelievingGuard()) as served:
        device.clock = served.clock
        yield served


@pytest.fixture
def people(served: Served) -> Iterator[People]:
    with persons(served) as people:
        yield people


def usage(person: Person, **request: float) -> pb.GetUsageResponse:
    answer = person.begin("GetUsage", pb.GetUsageRequest(**request)).result()
    return pb.GetUsageResponse.FromString(answer)


def activity(person: Person) -> pb.GetActivityResponse:
    answer = person.begin("GetActivity", pb.GetActivityRequest()).result()
    return pb.GetActivityResponse.FromString(answer)


def lines_of(answer: pb.GetUsageResponse) -> list[tuple[str, str, str, int]]:
    return [(line.tenant, line.caller, line.operator, line.calls) for line in answer.lines]


def test_callers_see_their_own_usage_and_admins_everybodys(people: People) -> None:
    ann, abe, ada = people
    for person in ann, ann, abe:
        person.execute()
    assert lines_of(usage(ann)) == [("vision", "ann", L1, 2)]
    assert lines_of(usage(abe)) == [("vision", "abe", L1, 1)]
    assert lines_of(usage(ada)) == [
        ("vision", "abe", "", 1), ("vision", "abe", L1, 1),
        ("vision", "ann", "", 1), ("vision", "ann", L1, 2),
    ]  # fmt: skip


def test_a_line_has_bytes_device_time_and_refusals(people: People) -> None:
    ann, *_ = people
    ann.execute()
    with pytest.raises(grpc.RpcError):
        ann.execute(operator="aclnnNonsense")
    known, unknown = sorted(usage(ann).lines, key=lambda line: line.operator)[::-1]
    assert known.request_bytes > 3 * 8
    assert known.response_bytes > len(FakeDevice.result)
    assert known.device_seconds == 0.5
    assert dict(known.refusals) == {}
    assert dict(unknown.refusals) == {"OPERATOR_UNKNOWN": 1}


def test_seconds_that_cannot_be_are_refused(people: People) -> None:
    for seconds in -1.0, float("nan"):
        with pytest.raises(grpc.RpcError) as caught:
            usage(people[0], last_seconds=seconds)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert told(caught.value)[0] == "MESSAGE_MALFORMED"


def test_activity_tells_who_has_the_device_and_who_waits() -> None:
    device = BlockingDevice()
    with serving(device, BelievingGuard()) as served, persons(served) as (ann, abe, ada):
        calls = [ann.begin_execute(), abe.begin_execute()]
        until(lambda: served.executor.turns.waiting == 1, "one runs, one waits")
        seen = activity(ada)
        device.let_all_go()
        for call in calls:
            call.result()
    assert (seen.running, seen.waiting, seen.lanes) == (1, 1, 1)
    assert [(each.caller.tenant, each.caller.name, each.calls) for each in seen.callers] == [
        ("vision", "abe", 1), ("vision", "ann", 1),
    ]  # fmt: skip
    assert all(each.bytes > 0 for each in seen.callers)


def test_callers_see_their_own_activity_and_the_sums(served: Served, people: People) -> None:
    ann, abe, _ = people
    for person in ann, abe, abe:
        person.execute()
    until(served.is_idle, "its calls are dismissed")
    (own,) = activity(ann).callers
    everybody = activity(ann)
    assert (own.caller.tenant, own.caller.name, own.calls_answered) == ("vision", "ann", 1)
    assert own.caller.role == operator_service_pb2.CALLER_ROLE_USER
    assert (everybody.device_seconds, own.device_seconds) == (1.5, 0.5)


def test_usage_and_activity_say_how_many_calls_came_in_frames(tmp_path: Path) -> None:
    with framed(tmp_path) as served, channel_to(served.target) as channel:
        with connected(served) as peer:
            for _ in range(2):
                peer.execute()
                assert peer.receive().response
        person = Person(channel, "")
        person.execute()
        until(served.is_idle, "its calls are dismissed")
        lines = [each for each in usage(person).lines if each.operator == L1]
        active = activity(person).callers
    assert [(line.calls, line.calls_in_frames) for line in lines] == [(3, 2)]
    assert sum(each.calls_in_frames for each in active) == 2


def test_activity_counts_streams_by_caller() -> None:
    with serving() as served, stream(served) as peer, channel_to(served.target) as channel:
        peer.begin(1)
        peer.receive()
        (line,) = activity(Person(channel, "")).callers
        assert (line.caller.name, line.streams) == ("ipv4:127.0.0.1", 1)


def test_an_owner_tells_whose_it_is() -> None:
    assert whose(anybody("ipv4:127.0.0.1:5").owner) == ("", "ipv4:127.0.0.1")
    assert whose(anybody("unix:/run/x.sock").owner) == ("", "ipv4:127.0.0.1")
    job = Identity("ci", "repo:a/b", Role.USER, KnownBy.JWT)
    assert whose(job.owner) == ("ci", "repo:a/b")


# --- Whom the server does not know ----------------------------------------------------------------

PERSONS = {
    "ipv4:127.0.0.1:40312": "ipv4:127.0.0.1",
    "ipv6:%5B::1%5D:40312": "ipv6:%5B::1%5D",
    "unix:": "ipv4:127.0.0.1",
    "unix:/run/npucall.sock": "ipv4:127.0.0.1",
    "": "",
}


@pytest.mark.parametrize(("peer", "person"), PERSONS.items())
def test_anybody_is_known_by_the_address_without_the_port_and_holds_as_a_connection(
    peer: str, person: str
) -> None:
    assert anybody(peer).person == person
    assert anybody(peer).owner == peer
