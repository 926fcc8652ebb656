"""What the callers of one tenant may hold together, and how long they may use the device.

The limits are the current ones of the settings file (``access.tenants``).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from npucall.errors import HandleMemoryError, QuotaError, TooLargeError
from npucall.texts import retry_in

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_server.settings.tenants import Tenants

_RETRY_SECONDS = 1.0


class Held:
    """The part of its tenant's quotas that one call, stream or other object holds."""

    __slots__ = ("_given_back", "_quotas", "_tenant", "_what")

    def __init__(self, quotas: Quotas, tenant: str, what: dict[str, int]) -> None:
        self._quotas, self._tenant, self._what = quotas, tenant, what
        self._given_back = False

    def give_back(self) -> None:
        """Gives all of it back. A second time does nothing."""
        if not self._given_back:
            self._given_back = True
            self._quotas.release(self._tenant, self._what)


class _Nothing(Held):
    """For callers without a limit."""

    def __init__(self) -> None:
        pass

    def give_back(self) -> None:
        pass


_NOTHING = _Nothing()


class DeviceTime(Protocol):
    """How long tenants held the device in the last hour."""

    def device_seconds(self, tenant: str) -> float:
        """The seconds of all its callers together."""

    def seconds_until(self, tenant: str, device_seconds: float) -> float:
        """Seconds until the tenant is below ``device_seconds``, if it makes no more calls."""


class Quotas:
    """What each tenant holds. ``device_time`` says how long it held the device.

    A quota counts only what was taken after the quota was set.
    """

    def __init__(self, tenants: Tenants, device_time: DeviceTime) -> None:
        self._tenants, self._device_time = tenants, device_time
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def admit(self, tenant: str, size: int) -> Held:
        """For a call that holds so many bytes. Raises QuotaError."""
        self._check_device_time(tenant)
        return self._take(tenant, calls=1, memory=size)

    def open_stream(self, tenant: str) -> Held:
        """For a stream. Raises QuotaError."""
        return self._take(tenant, streams=1)

    def share_memory(self, tenant: str, size: int) -> Held:
        """For a region of so many bytes. Raises QuotaError."""
        return self._take(tenant, shared_memory=size)

    def open_session(self, tenant: str) -> Held:
        """For a session. Raises QuotaError."""
        return self._take(tenant, sessions=1)

    def hold_handle(self, tenant: str, size: int) -> Held:
        """For a handle of so many bytes. Raises HandleMemoryError."""
        return self._take(tenant, handle_memory=size)

    def release(self, tenant: str, what: dict[str, int]) -> None:
        """``Held`` calls this when it gives back."""
        with self._lock:
            held = self._held[tenant]
            for quota, amount in what.items():
                held[quota] -= amount

    def _take(self, name: str, **wanted: int) -> Held:
        limits = self._tenants.of(name).quotas
        if not limits:
            return _NOTHING
        what = {quota: amount for quota, amount in wanted.items() if quota in limits}
        with self._lock:
            held = self._held[name]
            for quota, amount in what.items():
                if held[quota] + amount > limits[quota]:
                    raise _refusal(name, quota, limits[quota], held[quota], amount)
            for quota, amount in what.items():
                held[quota] += amount
        return Held(self, name, what)

    def _check_device_time(self, name: str) -> None:
        limit = self._tenants.of(name).device_seconds_per_hour
        if limit is None:
            return
        used = self._device_time.device_seconds(name)
        if used < limit:
            return
        wait = max(self._device_time.seconds_until(name, limit), _RETRY_SECONDS)
        setting = f"tenants.{name}.device_seconds_per_hour"
        raise QuotaError(
            f"the tenant has used the device for {used:.4g} s in the last hour ({setting} = "
            f"{limit:g}); {retry_in(wait)}",
            retry_after=wait,
            quota="device_seconds_per_hour",
            limit=f"{limit:g}",
            setting=setting,
        )


def _refusal(tenant: str, quota: str, limit: int, held: int, amount: int) -> NpucallError:
    setting = f"tenants.{tenant}.{quota}"
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
        f"({setting} = {limit}); {retry_in(_RETRY_SECONDS)}",
        retry_after=_RETRY_SECONDS,
        quota=quota,
        limit=str(limit),
        setting=setting,
    )
