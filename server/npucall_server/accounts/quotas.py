"""What the callers of one tenant may hold together, and how long they may use the device.

The limits are the current ones of the settings file (``access.tenants``).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from npucall.errors import HandleMemoryError, NpucallError, QuotaError, TooLargeError
from npucall.texts import retry_in
from npucall_server import retries
from npucall_server.access.callers import Caller
from npucall_server.accounts.ledger import Entry, Holder, Ledger, Quota
from npucall_server.settings.tenants import Tenants


class DeviceTime(Protocol):
    """How long tenants held the device in the last hour."""

    def device_seconds(self, tenant: str) -> float:
        """The seconds of all its callers together."""

    def seconds_until(self, tenant: str, device_seconds: float) -> float:
        """Seconds until the tenant is below ``device_seconds``, if it makes no more calls."""


def quota_of(tenants: Tenants, name: str) -> Quota:
    """The quota of that name, for a ledger of what it limits."""
    return Quota(tenants, name, partial(_refusal, name))


class CallQuotas:
    """What calls of tenants hold until their answers are read. Only quotas that are set count.

    ``device_time`` says how long each tenant held the device.
    """

    def __init__(self, tenants: Tenants, device_time: DeviceTime) -> None:
        self._tenants, self._device_time = tenants, device_time
        self._calls = Ledger(quota=quota_of(tenants, "calls"))
        self._memory = Ledger(quota=quota_of(tenants, "memory"))

    def take(self, caller: Caller, size: int) -> list[Entry]:
        """For a call that holds so many bytes. Raises QuotaError and TooLargeError."""
        tenant = self._tenants.of(caller.identity.tenant)
        if tenant.device_seconds_per_hour is not None:
            self._check_time(caller.identity.tenant, tenant.device_seconds_per_hour)
        taken: list[Entry] = []
        try:
            if tenant.calls is not None:
                taken.append(self._calls.take(caller, 1))
            if tenant.memory is not None:
                taken.append(self._memory.take(caller, size))
        except BaseException:
            for entry in taken:
                entry.give_back()
            raise
        return taken

    def _check_time(self, name: str, limit: float) -> None:
        used = self._device_time.device_seconds(name)
        if used < limit:
            return
        wait = max(self._device_time.seconds_until(name, limit), retries.QUOTA)
        setting = f"tenants.{name}.device_seconds_per_hour"
        raise QuotaError(
            f"the tenant has used the device for {used:.4g} s in the last hour ({setting} = "
            f"{limit:g}); {retry_in(wait)}",
            retry_after=wait,
            quota="device_seconds_per_hour",
            limit=f"{limit:g}",
            setting=setting,
        )


def _refusal(quota: str, tenant: Holder, amount: int) -> NpucallError:
    limit, held = tenant.limit, tenant.used
    setting = f"tenants.{tenant.name}.{quota}"
    if quota == "handle_memory":
        return HandleMemoryError(
            f"the tenant's handles hold {held} bytes and this one needs {amount} more "
            f"({setting} = {limit}); release handles",
            limit=str(limit),
            held=str(held),
            wanted=str(amount),
            setting=setting,
        )
    if amount > limit:
        return TooLargeError(
            f"{quota}: expected at most {limit} (setting {setting}), found {amount}",
            limit=str(limit),
            setting=setting,
        )
    return QuotaError(
        f"the quota {quota} of the tenant has no room: {held} in use, {amount} more wanted "
        f"({setting} = {limit}); {retry_in(retries.QUOTA)}",
        retry_after=retries.QUOTA,
        quota=quota,
        limit=str(limit),
        setting=setting,
    )
