"""AccessService over a real socket: who may reserve, what others are told, what works always."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.fakes import PATIENCE, BlockingDevice, FakeDevice, until, waiting
from tests.server.people import BelievingGuard, Person, told
from tests.server.raw import channel_to, stream
from tests.server.serving import serving

from npucall.v1 import operator_service_pb2 as pb
from npucall_server.scheduling import gate as gate_module
from npucall_server.scheduling.executor import going_down
from npucall_server.services.access_service import MOST_WAITING, NAME
from npucall_server.services.operators import NAME as OPERATORS
from npucall_server.serving import core

ANNA, BERT, CARL = "a/anna/bench", "b/bert/bench", "b/carl/user"
ROOT = "ops/root/admin"


class Reserving:
    """A server and the people who call it."""

    def __init__(self, served: Any, guard: BelievingGuard, channel: Any) -> None:
        self.served, self.guard, self._channel = served, guard, channel
        self.anna, self.bert, self.carl, self.root = map(self.person, (ANNA, BERT, CARL, ROOT))

    def person(self, who: str) -> Person:
        return Person(self._channel, who)

    def until_waiting(self, count: int) -> None:
        until(lambda: self.served.gate.waiting == count, f"{count} wait for a reservation")


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def here(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reserving]:
    monkeypatch.setattr(core, "GAP_SECONDS", 0.0)
    guard = BelievingGuard()
    with (
        serving(device, guard) as served,
        channel_to(served.target) as channel,
    ):
        yield Reserving(served, guard, channel)


def refused(call: Callable[..., object], *arguments: Any, matching: str | None = None) -> str:
    """The reason with which a call ends."""
    with pytest.raises(grpc.RpcError, match=matching) as raised:
        call(*arguments)
    return told(raised.value)[0]


def test_calls_of_others_are_refused_by_name_and_those_of_the_holder_run(here: Reserving) -> None:
    key = here.anna.reserve()
    for other in here.bert, here.carl, here.root, here.anna:
        for call in other.execute, other.plan:
            with pytest.raises(grpc.RpcError) as raised:
                call()
            assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            why, facts = told(raised.value)
            assert (why, facts["ends_seconds"], facts["position"]) == ("RESERVED", "60.000", "1")
    here.anna.execute(key)
    here.anna.plan(key)
    here.anna.release(key)
    here.bert.execute()


def test_calls_of_streams_need_the_key_with_the_stream(here: Reserving) -> None:
    key = here.anna.reserve()
    own_metadata = [("npucall-reservation", key), ("test-person", ANNA)]
    with stream(here.served) as peer:
        peer.begin(1)
        peer.begin_chunked(2)
        assert peer.reasons(2) == {1: "RESERVED", 2: "RESERVED"}
        with stream(here.served, metadata=own_metadata) as own:
            own.begin(1)
            assert own.kinds(1) == ["reply"]
        here.anna.release(key)
        peer.begin(3)
        assert peer.kinds(1) == ["reply"]


def test_info_health_and_listings_are_answered_meanwhile(here: Reserving) -> None:
    here.anna.reserve()
    here.bert.begin("ListOperators", pb.ListOperatorsRequest(), "", OPERATORS).result()
    assert here.bert.info().reservation.waiting == 0
    with grpc.insecure_channel(here.served.target) as channel:
        request = health_pb2.HealthCheckRequest(service=NAME)
        health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE)


def test_the_name_of_a_holder_is_shown_to_its_tenant_and_to_admins(here: Reserving) -> None:
    assert not here.carl.info().HasField("reservation")
    here.bert.reserve()
    shown = {who: here.person(who).info().reservation.holder for who in (ANNA, CARL, ROOT)}
    assert {holder.tenant for holder in shown.values()} == {"b"}
    assert {who: holder.name for who, holder in shown.items()} == {
        ANNA: "", CARL: "bert", ROOT: "bert",
    }  # fmt: skip
    assert shown[ROOT].role == pb.CALLER_ROLE_BENCH
    assert shown[ROOT].known_by == pb.KNOWN_BY_TOKEN


def test_reserving_needs_the_role_bench_and_ending_that_of_another_needs_admin(
    here: Reserving,
) -> None:
    assert refused(here.carl.reserve) == "PERMISSION_DENIED"
    key = here.anna.reserve()
    assert refused(here.bert.release) == "PERMISSION_DENIED"
    here.anna.renew(key)
    here.root.release()
    assert refused(here.anna.renew, key) == "RESERVED"


def test_seconds_that_cannot_be_are_refused(here: Reserving, subtests: pytest.Subtests) -> None:
    nan, inf = float("nan"), float("inf")
    for seconds, wait in (0, 0), (-1, 0), (1e9, 0), (nan, 0), (1, -1), (1, inf):
        with subtests.test(seconds=seconds, wait=wait):
            assert refused(here.anna.reserve, seconds, wait) == "MESSAGE_MALFORMED"


def test_a_waiter_that_goes_away_leaves_the_queue(here: Reserving) -> None:
    key = here.anna.reserve()
    call = here.bert.begin_reserve(wait=1e4)
    here.until_waiting(1)
    call.cancel()
    here.until_waiting(0)
    here.anna.release(key)
    here.anna.release(here.anna.reserve())


def test_more_waiters_than_there_is_room_for_are_refused_and_others_answered(
    here: Reserving,
) -> None:
    key = here.anna.reserve()
    people = [here.person(f"t{number}/x/bench") for number in range(MOST_WAITING)]
    asked = []
    for count, each in enumerate(people, 1):  # one by one, since few messages may come at a time
        asked.append(each.begin_reserve())
        here.until_waiting(count)
    assert refused(here.bert.reserve, 60.0, PATIENCE) == "QUEUE_FULL"
    here.anna.renew(key)
    assert here.carl.info().reservation.waiting == MOST_WAITING
    here.anna.execute(key)
    here.served.gate.close(going_down)
    assert {refused(each.result) for each in asked} == {"DRAINING"}


def test_a_holder_whose_credential_is_revoked_loses_the_device(here: Reserving) -> None:
    key = here.anna.reserve()
    here.served.look()
    here.anna.execute(key)
    here.guard.revoked.add("anna")
    here.served.look()
    here.bert.execute()
    assert refused(here.anna.execute, key) == "RESERVED"


def test_a_holder_that_stops_renewing_loses_it_to_who_waits(here: Reserving) -> None:
    key = here.anna.reserve()
    asked = here.bert.begin_reserve()
    here.until_waiting(1)
    here.served.clock.advance(30.0)  # a lease
    here.served.gate.wake()
    asked.result()
    assert refused(here.anna.renew, key) == "RESERVED"
    assert [line["caller"] for line in here.served.events("reserved")] == ["anna", "bert"]
    (ended,) = here.served.events("reservation not renewed")
    assert (ended["tenant"], ended["caller"]) == ("a", "anna")


def test_two_tenants_that_race_never_have_it_at_the_same_time(here: Reserving) -> None:
    """100 reservations; the witness is a count of holders, kept by the holders."""
    holders: list[Person] = []
    seen = []

    def race(person: Person, other: Person) -> None:
        for _ in range(50):
            key = person.reserve(60.0, PATIENCE)
            holders.append(person)
            person.execute(key)
            assert refused(other.execute) == "RESERVED"
            seen.append(len(holders))
            holders.remove(person)
            person.release(key)

    pairs = (here.anna, here.bert), (here.bert, here.anna)
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(race, *pair) for pair in pairs]:
            each.result()
    assert seen == [1] * 100


# --- While calls of others run --------------------------------------------------------------------


@pytest.fixture
def blocking() -> BlockingDevice:
    return BlockingDevice(checks=True)


@pytest.fixture
def running(blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reserving]:
    """A call of Bert holds the device until the test lets it go."""
    monkeypatch.setattr(core, "GAP_SECONDS", 0.0)
    guard = BelievingGuard()
    with (
        serving(blocking, guard) as served,
        channel_to(served.target) as channel,
    ):
        here = Reserving(served, guard, channel)
        call = here.bert.begin_execute()
        until(lambda: blocking.running == 1, "it runs")
        yield here
        blocking.let_all_go()
        call.result()


def test_reserve_answers_when_the_calls_of_others_have_ended(
    running: Reserving, blocking: BlockingDevice
) -> None:
    asked = running.anna.begin_reserve()
    until(lambda: running.carl.info().HasField("reservation"), "it is granted")
    assert refused(running.carl.execute) == "RESERVED"  # though it has not begun
    assert not asked.done()
    blocking.let_all_go()
    asked.result()


def test_calls_of_others_that_wait_for_their_turn_are_ended_with_reserved(
    running: Reserving, blocking: BlockingDevice
) -> None:
    behind = running.carl.begin_execute()
    with stream(running.served) as peer:
        peer.begin(1)
        until(lambda: waiting(running.served.executor) == 2, "two wait for a turn")
        peer.begin_chunked(2)
        until(lambda: running.served.executor.calls_in_flight == 4, "one waits for its bytes")
        asked = running.anna.begin_reserve()
        assert refused(behind.result) == "RESERVED"
        assert peer.reasons(2) == {1: "RESERVED", 2: "RESERVED"}
    blocking.let_all_go()
    asked.result()


def test_a_grant_is_given_back_where_calls_of_others_do_not_end(
    running: Reserving, blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "RUNNING_SECONDS", 0.05)
    still = "calls of others still run on the device"
    assert refused(running.anna.reserve, matching=still) == "RESERVED"
    assert not running.carl.info().HasField("reservation")
    blocking.let_all_go()
    running.carl.execute()


def test_an_admin_ends_a_reservation_that_has_not_begun(running: Reserving) -> None:
    asked = running.anna.begin_reserve()
    until(lambda: running.carl.info().HasField("reservation"), "it is granted")
    running.root.release()
    assert refused(asked.result) == "RESERVED"
