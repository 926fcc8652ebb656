"""AccessService over a real socket: who may reserve, what others are told, what works always."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from npucall.errors import CredentialInvalidError, ReservedError
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server import gate as gate_module
from npucall_server.access.identity import Identity, KnownBy, Role
from npucall_server.executor import going_down
from npucall_server.gate import Gate
from npucall_server.reservations import Rules
from npucall_server.services.access import MOST_WAITING, NAME

from .scripted import PATIENCE, ScriptedDevice, open_gate, until, waiting
from .streams import Served, call_of, info_of, serving, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall_server.devices.base import Turn

OPERATORS = "npucall.v1.OperatorService"
ANNA, BERT, CARL = "a/anna/bench", "b/bert/bench", "b/carl/user"
ROOT = "ops/root/admin"


class ToldGuard:
    """Believes what callers say of themselves: TENANT/NAME/ROLE."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], context: grpc.ServicerContext
    ) -> Identity:
        tenant, name, role = str(metadata.get("test-person", ANNA)).split("/")
        return Identity(tenant, name, Role.named(role), KnownBy.TOKEN)

    def renew(self, identity: Identity, authorization: str) -> Identity:
        raise NotImplementedError

    def check(self, identity: Identity) -> None:
        pass


class Steps:
    """A device whose calls run until the test lets them go."""

    def __init__(self) -> None:
        self.running = 0
        self._go = threading.Event()
        self.device = ScriptedDevice(self._run)

    def let_go(self) -> None:
        self._go.set()

    def _run(self, turn: Turn) -> None:
        with turn():
            self.running += 1
            while not self._go.wait(0.005):
                turn.check()
            self.running -= 1


class Person:
    """A caller of a server, over a connection."""

    def __init__(self, channel: grpc.Channel, who: str) -> None:
        self._channel, self._who = channel, who

    def call(self, method: str, request: Any, key: str = "", service: str = NAME) -> bytes:
        metadata = [("test-person", self._who), *([("npucall-reservation", key)] if key else ())]
        send: Any = self._channel.unary_unary(f"/{service}/{method}")
        return send(request.SerializeToString(), timeout=PATIENCE, metadata=metadata)

    def reserve(self, seconds: float = 60.0, wait: float = 0.0) -> access.ReserveResponse:
        request = access.ReserveRequest(seconds=seconds, wait_seconds=wait)
        return access.ReserveResponse.FromString(self.call("Reserve", request))

    def renew(self, key: str) -> access.RenewReservationResponse:
        request = access.RenewReservationRequest(key=key)
        return access.RenewReservationResponse.FromString(self.call("RenewReservation", request))

    def release(self, key: str = "") -> None:
        self.call("ReleaseReservation", access.ReleaseReservationRequest(key=key))

    def execute(self, key: str = "") -> bytes:
        storage = [tensor_pb2.Storage(data=bytes(8))] * 3
        request = pb.ExecuteRequest(call=call_of(2), storage=storage)
        return self.call("Execute", request, key, OPERATORS)

    def plan(self, key: str = "") -> bytes:
        return self.call("Plan", pb.PlanRequest(call=call_of(2)), key, OPERATORS)

    def info(self) -> pb.GetServerInfoResponse:
        data = self.call("GetServerInfo", pb.GetServerInfoRequest(), service=OPERATORS)
        return pb.GetServerInfoResponse.FromString(data)


class Lab:
    """A server and the people who call it."""

    def __init__(self, served: Served, channel: grpc.Channel) -> None:
        self.served, self._channel = served, channel
        self.anna, self.bert, self.carl, self.root = map(self.person, (ANNA, BERT, CARL, ROOT))

    def person(self, who: str) -> Person:
        return Person(self._channel, who)

    def until_waiting(self, count: int) -> None:
        until(lambda: self.served.gate._waiting == count, f"{count} wait for a reservation")


def reason(error: grpc.RpcError) -> str:
    return details(error)[0]


def details(error: Any) -> tuple[str, dict[str, str]]:
    info = info_of(dict(error.trailing_metadata())["grpc-status-details-bin"])
    return info.reason, dict(info.metadata)


def lab(steps: Steps | None = None, rules: Rules | None = None) -> Any:
    gate = open_gate(rules) if rules is not None else open_gate()
    device = steps.device if steps is not None else None
    return serving(device, gate, ToldGuard())


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


@pytest.fixture
def here() -> Iterator[Lab]:
    with lab() as served, grpc.insecure_channel(served.target) as channel:
        yield Lab(served, channel)


@pytest.fixture
def slow(steps: Steps) -> Iterator[Lab]:
    with lab(steps) as served, grpc.insecure_channel(served.target) as channel:
        yield Lab(served, channel)


def test_calls_of_others_are_refused_by_name_and_those_of_the_holder_run(here: Lab) -> None:
    key = here.anna.reserve().key
    for other in here.bert, here.carl, here.root, here.anna:
        for call in other.execute, other.plan:
            with pytest.raises(grpc.RpcError) as raised:
                call()
            assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            why, facts = details(raised.value)
            assert why == "RESERVED"
            assert 0 < float(facts["ends_seconds"]) <= 60
            assert facts["position"] == "1"
    here.anna.execute(key)
    here.anna.plan(key)
    here.anna.release(key)
    here.bert.execute()


def test_calls_of_streams_need_the_key_with_the_stream(here: Lab) -> None:
    key = here.anna.reserve().key
    with stream(here.served) as peer:
        peer.begin(1)
        assert peer.reason(1) == "RESERVED"
        peer.begin_chunked(2)
        assert peer.reason(2) == "RESERVED"
        with stream(here.served, metadata=[("npucall-reservation", key)]) as own:
            own.begin(1)
            assert own.receive().WhichOneof("frame") == "reply"
        here.anna.release(key)
        peer.begin(3)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_a_key_of_another_is_refused_whoever_shows_it(here: Lab) -> None:
    key = here.anna.reserve().key
    for call in here.bert.execute, here.bert.plan:
        with pytest.raises(grpc.RpcError) as raised:
            call(key)
        assert reason(raised.value) == "RESERVED"


def test_a_call_under_a_reservation_that_ended_is_refused(here: Lab) -> None:
    key = here.anna.reserve().key
    here.anna.release(key)
    with pytest.raises(grpc.RpcError, match="the reservation has ended") as raised:
        here.anna.execute(key)
    assert reason(raised.value) == "RESERVED"


def test_info_health_and_listings_are_answered_meanwhile(here: Lab) -> None:
    here.anna.reserve()
    here.bert.call("ListOperators", pb.ListOperatorsRequest(), service=OPERATORS)
    assert here.bert.info().reservation.waiting == 0
    with grpc.insecure_channel(here.served.target) as channel:
        request = health_pb2.HealthCheckRequest(service=NAME)
        health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE)


def test_the_name_of_a_holder_is_shown_to_its_tenant_and_to_admins(here: Lab) -> None:
    assert not here.carl.info().HasField("reservation")
    here.bert.reserve()
    shown = {who: here.person(who).info().reservation.holder for who in (ANNA, CARL, ROOT)}
    assert {holder.tenant for holder in shown.values()} == {"b"}
    assert {who: holder.name for who, holder in shown.items()} == {
        ANNA: "", CARL: "bert", ROOT: "bert",
    }  # fmt: skip
    assert shown[ROOT].role == pb.CALLER_ROLE_BENCH
    assert shown[ROOT].known_by == pb.KNOWN_BY_TOKEN


def test_reserving_needs_the_role_bench_and_ending_that_of_another_needs_admin(here: Lab) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        here.carl.reserve()
    assert reason(raised.value) == "PERMISSION_DENIED"
    key = here.anna.reserve().key
    with pytest.raises(grpc.RpcError) as raised:
        here.bert.release()
    assert reason(raised.value) == "PERMISSION_DENIED"
    here.anna.renew(key)
    here.root.release()
    with pytest.raises(grpc.RpcError) as raised:
        here.anna.renew(key)
    assert reason(raised.value) == "RESERVED"


@pytest.mark.parametrize(
    ("seconds", "wait"), [(0, 0), (-1, 0), (1e9, 0), (float("nan"), 0), (1, -1), (1, float("inf"))]
)
def test_seconds_that_cannot_be_are_refused(here: Lab, seconds: float, wait: float) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        here.anna.reserve(seconds, wait)
    assert reason(raised.value) == "MESSAGE_MALFORMED"


def test_who_waits_gets_it_in_order_and_is_told_its_place(
    here: Lab, pool: ThreadPoolExecutor
) -> None:
    key = here.anna.reserve().key
    first = pool.submit(here.bert.reserve, 60.0, PATIENCE)
    here.until_waiting(1)
    with pytest.raises(grpc.RpcError) as raised:
        here.person("c/cora/bench").reserve()
    assert details(raised.value)[1]["position"] == "2"
    assert here.carl.info().reservation.waiting == 1
    assert not first.done()
    here.anna.release(key)
    here.bert.release(first.result(PATIENCE).key)


def test_a_waiter_that_goes_away_leaves_the_queue(here: Lab) -> None:
    key = here.anna.reserve().key
    with grpc.insecure_channel(here.served.target) as channel:
        send: Any = channel.unary_unary(f"/{NAME}/Reserve")
        request = access.ReserveRequest(seconds=60, wait_seconds=1e4).SerializeToString()
        call = send.future(request, metadata=[("test-person", BERT)])
        here.until_waiting(1)
        call.cancel()
        here.until_waiting(0)
    here.anna.release(key)
    here.anna.release(here.anna.reserve().key)


def test_more_waiters_than_there_is_room_for_are_refused_and_others_answered(
    here: Lab, pool: ThreadPoolExecutor
) -> None:
    key = here.anna.reserve().key
    people = [here.person(f"t{number}/x/bench") for number in range(MOST_WAITING)]
    asked: list[Future[access.ReserveResponse]] = [
        pool.submit(each.reserve, 60.0, PATIENCE) for each in people
    ]
    here.until_waiting(MOST_WAITING)
    with pytest.raises(grpc.RpcError) as raised:
        here.bert.reserve(60.0, PATIENCE)
    assert reason(raised.value) == "QUEUE_FULL"
    here.anna.renew(key)
    assert here.carl.info().reservation.waiting == MOST_WAITING
    here.anna.execute(key)
    here.served.gate.close(going_down)
    for each in asked:
        with pytest.raises(grpc.RpcError) as raised:
            each.result(PATIENCE)
        assert reason(raised.value) == "DRAINING"


def test_reserve_answers_when_the_calls_of_others_have_ended(
    slow: Lab, steps: Steps, pool: ThreadPoolExecutor
) -> None:
    running = pool.submit(slow.bert.execute)
    until(lambda: steps.running == 1, "it runs")
    asked = pool.submit(slow.anna.reserve, 60.0, PATIENCE)
    slow.until_waiting(1)
    with pytest.raises(grpc.RpcError) as raised:  # from the grant on, though it has not begun
        slow.carl.execute()
    assert reason(raised.value) == "RESERVED"
    assert not asked.done()
    steps.let_go()
    running.result(PATIENCE)
    slow.anna.execute(asked.result(PATIENCE).key)


def test_calls_of_others_that_wait_for_their_turn_are_ended_with_reserved(
    slow: Lab, steps: Steps, pool: ThreadPoolExecutor
) -> None:
    running = pool.submit(slow.bert.execute)
    until(lambda: steps.running == 1, "it runs")
    behind = pool.submit(slow.carl.execute)
    with stream(slow.served) as peer:
        peer.begin(1)
        until(lambda: waiting(slow.served.executor) == 2, "two wait for a turn")
        peer.begin_chunked(2)
        until(lambda: slow.served.executor.calls_in_flight == 4, "one waits for its bytes")
        asked = pool.submit(slow.anna.reserve, 60.0, PATIENCE)
        with pytest.raises(grpc.RpcError) as raised:
            behind.result(PATIENCE)
        assert reason(raised.value) == "RESERVED"
        assert [peer.reason_of_any() for _ in range(2)] == ["RESERVED", "RESERVED"]
    steps.let_go()
    running.result(PATIENCE)
    slow.anna.release(asked.result(PATIENCE).key)


def test_a_grant_is_given_back_where_calls_of_others_do_not_end(
    slow: Lab, steps: Steps, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "RUNNING_SECONDS", 0.05)
    running = pool.submit(slow.bert.execute)
    until(lambda: steps.running == 1, "it runs")
    with pytest.raises(grpc.RpcError, match="calls of others still run on the device") as raised:
        slow.anna.reserve()
    assert reason(raised.value) == "RESERVED"
    assert not slow.carl.info().HasField("reservation")
    steps.let_go()
    running.result(PATIENCE)
    slow.carl.execute()


def test_an_admin_ends_a_reservation_that_has_not_begun(
    slow: Lab, steps: Steps, pool: ThreadPoolExecutor
) -> None:
    running = pool.submit(slow.bert.execute)
    until(lambda: steps.running == 1, "it runs")
    asked = pool.submit(slow.anna.reserve, 60.0, PATIENCE)
    until(lambda: slow.carl.info().HasField("reservation"), "it is granted")
    slow.root.release()
    with pytest.raises(grpc.RpcError) as raised:
        asked.result(PATIENCE)
    assert reason(raised.value) == ReservedError.reason
    steps.let_go()
    running.result(PATIENCE)


def test_two_tenants_that_race_never_have_it_at_the_same_time(
    here: Lab, pool: ThreadPoolExecutor
) -> None:
    """200 reservations; the witness is a count of holders, kept by the holders."""
    holders: list[Person] = []
    seen = []

    def race(person: Person, other: Person) -> None:
        for _ in range(100):
            key = person.reserve(60.0, PATIENCE).key
            holders.append(person)
            person.execute(key)
            with pytest.raises(grpc.RpcError):
                other.execute()
            seen.append(len(holders))
            holders.remove(person)
            person.release(key)

    races = [pool.submit(race, *pair) for pair in ((here.anna, here.bert), (here.bert, here.anna))]
    for each in races:
        each.result(10 * PATIENCE)
    assert seen == [1] * 200


def test_a_holder_whose_credential_is_revoked_loses_the_device() -> None:
    revoked: set[str] = set()

    def check(who: Identity) -> None:
        if who.name in revoked:
            raise CredentialInvalidError("credential: revoked")

    gate = Gate(open_gate()._reservations, check)
    with (
        serving(None, gate, ToldGuard()) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        here = Lab(served, channel)
        key = here.anna.reserve().key
        gate.look()
        here.anna.execute(key)
        revoked.add("anna")
        gate.look()
        here.bert.execute()
        with pytest.raises(grpc.RpcError):
            here.anna.execute(key)


def test_a_holder_that_stops_renewing_is_free_a_lease_later() -> None:
    with (
        lab(rules=Rules(3600.0, 0.0, lease=0.2)) as served,
        grpc.insecure_channel(served.target) as channel,
    ):
        here = Lab(served, channel)
        key = here.anna.reserve().key
        taken = here.bert.reserve(60.0, PATIENCE).key
        with pytest.raises(grpc.RpcError) as raised:
            here.anna.renew(key)
        assert reason(raised.value) == "RESERVED"
        assert taken
