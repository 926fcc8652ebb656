"""Quotas of tenants, on a clock that the test moves."""

from __future__ import annotations

import pytest

from npucall.errors import QuotaError, TooLargeError
from npucall_server.access.identity import Identity, KnownBy, Role
from npucall_server.access.tenants import Tenant, Tenants
from npucall_server.quotas import Quotas
from npucall_server.usage import Usage


class Clock:
    now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def of(usage: Usage | None = None, **limits: object) -> Quotas:
    return Quotas(Tenants({"lab": Tenant.model_validate(limits)}), usage or Usage())


def hold(subject: Quotas, quota: str, amount: int) -> object:
    """So much of one quota."""
    if quota == "streams":
        return [subject.open_stream("lab") for _ in range(amount)][-1]
    if quota == "sessions":
        return [subject.open_session("lab") for _ in range(amount)][-1]
    if quota == "shared_memory":
        return subject.share_memory("lab", amount)
    if quota == "calls":
        return [subject.admit("lab", 0) for _ in range(amount)][-1]
    return subject.admit("lab", amount)


@pytest.mark.parametrize("quota", ["calls", "memory", "streams", "shared_memory", "sessions"])
def test_what_is_more_than_a_quota_is_refused_by_its_name_until_some_is_given_back(
    quota: str,
) -> None:
    subject = of(**{quota: 3})
    held = hold(subject, quota, 3)
    with pytest.raises(QuotaError, match=rf"the quota {quota} .*tenants\.lab\.{quota} = 3\)") as it:
        hold(subject, quota, 1)
    assert it.value.details == {"quota": quota, "limit": "3", "setting": f"tenants.lab.{quota}"}
    assert it.value.retry_after is not None
    held.give_back()  # type: ignore[attr-defined]
    held.give_back()  # type: ignore[attr-defined]  # a second time does nothing
    hold(subject, quota, 1)


def test_a_call_that_a_quota_will_never_allow_is_told_so() -> None:
    with pytest.raises(TooLargeError) as it:
        of(memory=10).admit("lab", 11)
    assert it.value.details["setting"] == "tenants.lab.memory"


def test_a_refused_call_holds_nothing() -> None:
    subject = of(calls=5, memory=10)
    subject.admit("lab", 10)
    for _ in range(9):
        with pytest.raises(QuotaError):
            subject.admit("lab", 1)
    subject.admit("lab", 0)


def test_the_time_of_an_hour_is_spent_and_comes_back_as_it_passes() -> None:
    clock = Clock()
    usage = Usage(clock=clock)
    subject = of(usage, device_seconds_per_hour=10)
    identity = Identity("lab", "x", Role.USER, KnownBy.TOKEN)
    for _ in range(4):
        subject.admit("lab", 1)
        usage.spent(identity, 3_000_000_000)
        clock.now += 60
    with pytest.raises(QuotaError, match=r"used the device for 12 s") as it:
        subject.admit("lab", 1)
    assert it.value.retry_after is not None
    clock.now += it.value.retry_after - 61
    with pytest.raises(QuotaError):
        subject.admit("lab", 1)
    clock.now += 61
    subject.admit("lab", 1)


def test_tenants_do_not_count_for_each_other_and_nobody_has_no_limit() -> None:
    both = {name: Tenant.model_validate({"calls": 1}) for name in ("a", "b")}
    subject = Quotas(Tenants(both), Usage())
    subject.admit("a", 1)
    subject.admit("b", 1)
    for _ in range(100):
        subject.admit("", 1 << 50)


def test_a_limit_that_changes_counts_for_the_next_call() -> None:
    tenants = Tenants({"lab": Tenant.model_validate({"calls": 1})})
    subject = Quotas(tenants, Usage())
    held = subject.admit("lab", 1)
    tenants.replace({"lab": Tenant.model_validate({"calls": 2})})
    subject.admit("lab", 1)
    tenants.replace({})
    subject.admit("lab", 1)
    held.give_back()
