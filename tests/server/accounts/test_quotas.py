"""Quotas of tenants, on a clock that the test moves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
from tests.server.fakes import FakeCaller, FakeClock, person, until
from tests.server.raw import RawStream, call_of
from tests.server.tenant_server import TENANTS, Refusal, TenantServer, ask, bearer, refusal

from npucall.errors import QuotaError, TooLargeError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.accounts.ledger import Entry, Ledger
from npucall_server.accounts.quotas import CallQuotas, quota_of
from npucall_server.accounts.usage import Usage
from npucall_server.devices.base import DeviceTurn
from npucall_server.settings.tenants import Tenant, Tenants


def of(usage: Usage | None = None, **limits: object) -> CallQuotas:
    return CallQuotas(Tenants({"lab": Tenant.model_validate(limits)}), usage or Usage())


def caller(tenant: str = "lab") -> FakeCaller:
    return FakeCaller(who=f"{tenant}/somebody")


def held(quota: str, limit: int) -> Callable[[int], list[Entry]]:
    """What takes so much of one quota."""
    tenants = Tenants({"lab": Tenant.model_validate({quota: limit})})
    calls = CallQuotas(tenants, Usage())
    if quota == "calls":
        return lambda amount: [calls.take(caller(), 0)[0] for _ in range(amount)]
    if quota == "memory":
        return lambda amount: calls.take(caller(), amount)
    ledger = Ledger(quota=quota_of(tenants, quota))
    return lambda amount: [ledger.take(caller(), amount)]


@pytest.mark.parametrize("quota", ["calls", "memory", "streams", "shared_memory", "sessions"])
def test_what_is_more_than_a_quota_is_refused_by_its_name_until_some_is_given_back(
    quota: str,
) -> None:
    hold = held(quota, 3)
    parts = hold(3)
    with pytest.raises(QuotaError, match=rf"the quota {quota} .*tenants\.lab\.{quota} = 3\)") as it:
        hold(1)
    assert it.value.details == {"quota": quota, "limit": "3", "setting": f"tenants.lab.{quota}"}
    assert it.value.retry_after is not None
    for part in parts * 2:  # a second time does nothing
        part.give_back()
    hold(1)


def test_a_call_that_a_quota_will_never_allow_is_told_so() -> None:
    with pytest.raises(TooLargeError) as it:
        of(memory=10).take(caller(), 11)
    assert it.value.details["setting"] == "tenants.lab.memory"


def test_a_refused_call_holds_nothing() -> None:
    subject = of(calls=5, memory=10)
    subject.take(caller(), 10)
    for _ in range(9):
        with pytest.raises(QuotaError):
            subject.take(caller(), 1)
    subject.take(caller(), 0)


def test_the_time_of_an_hour_is_spent_and_comes_back_as_it_passes() -> None:
    clock = FakeClock()
    usage = Usage(clock=clock.wall)
    subject = of(usage, device_seconds_per_hour=10)
    for _ in range(4):
        subject.take(caller(), 1)
        usage.spent(person("lab/x"), 3_000_000_000)
        clock.advance(60)
    with pytest.raises(QuotaError, match=r"used the device for 12 s") as it:
        subject.take(caller(), 1)
    assert it.value.retry_after is not None
    clock.advance(it.value.retry_after - 61)
    with pytest.raises(QuotaError):
        subject.take(caller(), 1)
    clock.advance(61)
    subject.take(caller(), 1)


def test_tenants_do_not_count_for_each_other_and_nobody_has_no_limit() -> None:
    both = {name: Tenant.model_validate({"calls": 1}) for name in ("a", "b")}
    subject = CallQuotas(Tenants(both), Usage())
    subject.take(caller("a"), 1)
    subject.take(caller("b"), 1)
    for _ in range(100):
        subject.take(FakeCaller(), 1 << 50)


def test_a_limit_that_changes_counts_for_the_next_call() -> None:
    tenants = Tenants({"lab": Tenant.model_validate({"calls": 1})})
    subject = CallQuotas(tenants, Usage())
    held = subject.take(caller(), 1)
    with pytest.raises(QuotaError):
        subject.take(caller(), 1)
    tenants.replace({"lab": Tenant.model_validate({"calls": 2})})
    subject.take(caller(), 1)
    tenants.replace({})
    subject.take(caller(), 1)
    assert len(held) == 1
    held[0].give_back()


# --- Over real sockets: who has spent a quota is told which ---------------------------------------

LIMITED = """
[tenants.calls]
calls = 1
[tenants.memory]
memory = "1KiB"
[tenants.streams]
streams = 1
[tenants.time]
device_seconds_per_hour = 1e-6
"""
SMALL, LARGE = 2, 4096


@pytest.fixture(scope="module")
def server(server: TenantServer) -> TenantServer:
    server.config.write_text(TENANTS + LIMITED)
    server.server.reload()
    return server


def request(elements: int = SMALL) -> bytes:
    storage = [tensor_pb2.Storage(data=bytes(4 * elements))] * 3
    return pb.ExecuteRequest(call=call_of(elements), storage=storage).SerializeToString()


def told(channel: grpc.Channel, token: str, elements: int = SMALL) -> Refusal:
    """Why Execute is refused."""
    with pytest.raises(grpc.RpcError) as refused:
        ask(channel, "Execute", request(elements), bearer(token))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return refusal(refused.value)


@contextmanager
def under_way(server: TenantServer, channel: grpc.Channel, token: str) -> Iterator[RawStream]:
    """A call of a stream whose bytes are still to come."""
    peer = RawStream(channel, metadata=bearer(token))
    peer.begin_chunked(1)
    until(lambda: server.executor.calls_in_flight == 1, "the call is admitted")
    yield peer
    peer.call.cancel()
    until(server.is_at_rest, "nothing is left")


def test_of_calls_for_all_callers_of_the_tenant_together(
    server: TenantServer, channel: grpc.Channel
) -> None:
    first, second = server.token("ann", "calls"), server.token("ben", "calls")
    plan = pb.PlanRequest(call=call_of(SMALL)).SerializeToString()
    with under_way(server, channel, first) as peer:
        answer = told(channel, second)
        assert (answer.reason, answer.details["quota"]) == ("QUOTA", "calls")
        assert answer.details["setting"] == "tenants.calls.calls"
        peer.begin(2)
        assert peer.reason(2) == "QUOTA"
        assert ask(channel, "Plan", plan, bearer(second))  # which holds nothing
        assert ask(channel, "Execute", request(), bearer(server.token("carl")))  # another tenant's
    assert ask(channel, "Execute", request(), bearer(second))


def test_of_streams(server: TenantServer, channel: grpc.Channel) -> None:
    token = server.token("ann", "streams")
    with under_way(server, channel, token):
        assert RawStream(channel, metadata=bearer(token)).end_of_stream() == "QUOTA"
        assert ask(channel, "Execute", request(), bearer(token))


def test_of_memory_where_a_call_never_fits_it_is_told_so(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("ann", "memory")
    assert ask(channel, "Execute", request(SMALL), bearer(token))
    answer = told(channel, token, LARGE)
    assert (answer.reason, answer.details["setting"]) == ("TOO_LARGE", "tenants.memory.memory")


def test_of_the_device_when_it_comes_back(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(turn: DeviceTurn) -> None:
        with turn():
            server.clock.advance(1.0)

    monkeypatch.setattr(server.device, "_run", run)
    token = server.token("ann", "time")
    assert ask(channel, "Execute", request(), bearer(token))
    answer = told(channel, token)
    assert (answer.reason, answer.details["quota"]) == ("QUOTA", "device_seconds_per_hour")
    assert "retry in" in answer.message
    peer = RawStream(channel, metadata=bearer(token))
    peer.begin(1)
    assert peer.reason(1) == "QUOTA"
    peer.close()
