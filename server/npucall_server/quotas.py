"""What the callers of one tenant may hold together, and how long they may use the device.

The limits are those of the settings file (``access.tenants``), as they are now.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from npucall.errors import QuotaError, TooLargeError
from npucall_server.access.tenants import NOBODY, Tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.errors import NpucallError
    from npucall_server.access.identity import Identity

_RETRY_SECONDS = 1.0
_MINUTE, _HOUR = 60, 3600


class Held:
    """What one call or stream holds of its tenant's quotas."""

    __slots__ = ("_given_back", "_quotas", "_tenant", "_what")

    def __init__(self, quotas: Quotas, tenant: str, what: dict[str, int]) -> None:
        self._quotas, self._tenant, self._what = quotas, tenant, what
        self._given_back = False

    def give_back(self) -> None:
        """Gives all of it back; a second time does nothing."""
        if not self._given_back:
            self._given_back = True
            self._quotas.release(self._tenant, self._what)


class _Nothing(Held):
    """Of callers without a limit."""

    def __init__(self) -> None:
        pass

    def give_back(self) -> None:
        pass


_NOTHING = _Nothing()


class Quotas:
    """What each tenant holds. ``clock`` answers seconds since 1970."""

    def __init__(
        self,
        tenants: Tenants,
        account: Callable[[Identity, int], object] = lambda _identity, _nanoseconds: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tenants = tenants
        self._account, self._clock = account, clock
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._hours: dict[str, _LastHour] = defaultdict(_LastHour)

    def admit(self, tenant: str, size: int) -> Held:
        """For a call that holds so many bytes. Raises QuotaError."""
        if self.tenants.of(tenant) is NOBODY:
            return _NOTHING
        self._check_device_time(tenant)
        return self._take(tenant, {"calls": 1, "memory": size})

    def open_stream(self, tenant: str) -> Held:
        """For a stream. Raises QuotaError."""
        if self.tenants.of(tenant) is NOBODY:
            return _NOTHING
        return self._take(tenant, {"streams": 1})

    def share_memory(self, tenant: str, size: int) -> Held:
        """For a region of so many bytes. Raises QuotaError."""
        if self.tenants.of(tenant) is NOBODY:
            return _NOTHING
        return self._take(tenant, {"shared_memory": size})

    def spent(self, identity: Identity, nanoseconds: int) -> None:
        """A turn on the device has ended that took so long."""
        self._account(identity, nanoseconds)
        if identity.tenant:
            self.add_device_time(identity.tenant, nanoseconds / 1e9, self._clock())

    def add_device_time(self, tenant: str, seconds: float, when: float) -> None:
        """It held the device, ``when`` in seconds since 1970, be it under an earlier process."""
        with self._lock:
            self._hours[tenant].add(seconds, int(when) // _MINUTE)

    def release(self, tenant: str, what: dict[str, int]) -> None:
        """Called by what was held."""
        with self._lock:
            held = self._held[tenant]
            for quota, amount in what.items():
                held[quota] -= amount

    def _take(self, name: str, what: dict[str, int]) -> Held:
        tenant = self.tenants.of(name)
        with self._lock:
            held = self._held[name]
            for quota, amount in what.items():
                limit = getattr(tenant, quota)
                if limit is not None and held[quota] + amount > limit:
                    raise _refusal(name, quota, limit, held[quota], amount)
            for quota, amount in what.items():
                held[quota] += amount
        return Held(self, name, what)

    def _check_device_time(self, name: str) -> None:
        limit = self.tenants.of(name).device_seconds_per_hour
        if limit is None:
            return
        with self._lock:
            hour, now = self._hours[name], self._clock()
            used = hour.total(int(now) // _MINUTE)
            if used < limit:
                return
            wait = hour.seconds_until_below(limit, now)
        setting = f"tenants.{name}.device_seconds_per_hour"
        raise QuotaError(
            f"quota: expected less than {limit:g} seconds of the device in an hour ({setting}), "
            f"found {used:.1f}; repeat the call in {wait:.0f} s",
            retry_after=wait,
            quota="device_seconds_per_hour",
            limit=f"{limit:g}",
            setting=setting,
        )


class _LastHour:
    """Seconds by minute; those of the last sixty minutes count."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def add(self, seconds: float, minute: int) -> None:
        """In order of the minutes."""
        last = self._minutes[-1][0] if self._minutes else minute
        minute = max(minute, last)
        earlier = self._minutes.pop()[1] if self._minutes and minute == last else 0.0
        self._minutes.append((minute, earlier + seconds))
        self._total += seconds

    def total(self, minute: int) -> float:
        """Of the hour that ends with this minute."""
        while self._minutes and self._minutes[0][0] <= minute - _HOUR // _MINUTE:
            self._total -= self._minutes.popleft()[1]
        return self._total

    def seconds_until_below(self, limit: float, now: float) -> float:
        """Until so much has left the hour that the rest is below the limit."""
        rest = self._total
        for minute, seconds in self._minutes:
            rest -= seconds
            if rest < limit:
                return max(minute * _MINUTE + _HOUR - now, _RETRY_SECONDS)
        return float(_HOUR)


def _refusal(tenant: str, quota: str, limit: int, held: int, amount: int) -> NpucallError:
    setting = f"tenants.{tenant}.{quota}"
    if amount > limit:
        return TooLargeError(
            f"quota: expected at most {limit} of the quota {quota} ({setting}), found {amount}",
            limit=str(limit),
            setting=setting,
        )
    return QuotaError(
        f"quota: expected at most {limit} of the quota {quota} ({setting}), found {held} in use "
        f"and {amount} more; repeat the call when others of the tenant's have ended",
        retry_after=_RETRY_SECONDS,
        quota=quota,
        limit=str(limit),
        setting=setting,
    )
