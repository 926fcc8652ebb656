"""The account of the device's use: what each caller did with which operator, minute by minute.

It is counted apart from the log, so it is whole however many lines of the log are dropped.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from npucall_server.access.identity import Identity
from npucall_server.telemetry.log import FRAMES, Record

OTHERS = "others"
"""If a tenant has too many callers, further calls count for this caller."""
MOST_LINES_OF_PERIOD = 1000
"""Of a minute, or an hour; callers who would need more are counted as others."""
MOST_LINES = 100_000
"""Of hours kept in memory, some 40 MB; the oldest are forgotten."""
MINUTE, HOUR = 60, 3600
_MINUTES_KEPT = 120
"""Older ones are put together to hours."""
_DAYS_KEPT = 31
_MOST_UNCOUNTED = 256
"""Calls that wait to be counted: many at a time cost less, since what counts them is at hand."""
_RECENT_SECONDS = 5
"""The steps in which the last minute moves."""


class UsageKey(NamedTuple):
    """Whose line it is."""

    tenant: str
    caller: str
    operator: str
    """Empty for calls that name none that the device knows."""


@dataclass(slots=True)
class UsageLine:
    """What was used."""

    calls: int = 0
    """Answered, with those that failed or were refused."""
    request_bytes: int = 0
    response_bytes: int = 0
    device_ns: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    """Of the calls, those that failed or were refused, by reason."""
    in_frames: int = 0
    """Of the calls, those that gRPC did not carry."""

    def add(self, other: UsageLine) -> Self:
        """Counts another line too."""
        self.calls += other.calls
        self.request_bytes += other.request_bytes
        self.response_bytes += other.response_bytes
        self.device_ns += other.device_ns
        self.in_frames += other.in_frames
        for reason, count in other.refusals.items():
            self.refusals[reason] = self.refusals.get(reason, 0) + count
        return self


class UsagePeriod:
    """What was used in some seconds. ``start``: since 1970."""

    __slots__ = ("is_written", "lines", "seconds", "start")

    def __init__(self, start: int, seconds: int) -> None:
        self.start, self.seconds = start, seconds
        self.lines: dict[tuple[str, str, str], UsageLine] = {}
        self.is_written = False
        """Whether it is in the file of the account."""

    @property
    def end(self) -> int:
        """When the next one begins."""
        return self.start + self.seconds

    def line(self, tenant: str, caller: str, operator: str) -> UsageLine:
        """The line to count in."""
        line = self.lines.get((tenant, caller, operator))
        return self._new(tenant, caller, operator) if line is None else line

    def _new(self, tenant: str, caller: str, operator: str) -> UsageLine:
        if len(self.lines) >= MOST_LINES_OF_PERIOD:
            caller = OTHERS
        return self.lines.setdefault(UsageKey(tenant, caller, operator), UsageLine())

    def add(self, other: UsagePeriod) -> None:
        """Counts the lines of another period too."""
        for key, line in other.lines.items():
            self.line(*key).add(line)


class Usage:
    """Counts calls and device time, from any thread.

    ``operators``: the names that have lines of their own. ``clock``: seconds since 1970.
    """

    def __init__(
        self, operators: Iterable[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._operators = frozenset(operators)
        self._clock = clock
        self._lock = threading.Lock()
        now = clock()
        self.since = now
        """When the account begins."""
        self._minutes = deque([_period_at(now, MINUTE)])
        self._hours: deque[UsagePeriod] = deque()
        self._recent = deque([_period_at(now, _RECENT_SECONDS)])
        self._next = self._recent[-1].end
        """When something has to be put away."""
        self._lines_of_hours = 0
        self._uncounted: deque[tuple[float, Record]] = deque()
        """Calls, and when they were answered."""
        self._device_ns: dict[str, deque[list[int]]] = {}
        """Of each tenant: minute and nanoseconds, for the last hour."""

    # --- Counting: cheap, since every call and every turn pays for it --------------------------

    def called(self, record: Record) -> None:
        """A call has been answered. It is counted with others at a time, before anybody asks."""
        self._uncounted.append((self._clock(), record))
        if len(self._uncounted) >= _MOST_UNCOUNTED:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Counts what has not been counted yet; called with the lock."""
        key, line, recent = None, UsageLine(), UsageLine()
        while self._uncounted:
            now, record = self._uncounted.popleft()
            if now >= self._next:
                self._put_away(now)
                key = None
            own = record.tenant, record.caller, record.operator
            if own != key:  # most calls are like the one before
                (tenant, caller, operator), key = own, own
                operator = operator if operator in self._operators else ""
                line = self._minutes[-1].line(tenant, caller, operator)
                recent = self._recent[-1].line(tenant, caller, "")
            in_frames = record.carrier == FRAMES
            line.calls += 1
            line.in_frames += in_frames
            line.request_bytes += record.request_bytes
            line.response_bytes += record.response_bytes
            line.device_ns += record.device_ns
            if record.reason != "OK":
                line.refusals[record.reason] = line.refusals.get(record.reason, 0) + 1
            recent.calls += 1
            recent.in_frames += in_frames
            if untold := record.device_ns - record.told_ns:
                recent.device_ns += untold
                self._charge(record.tenant, self._minutes[-1].start, untold)

    def spent(self, identity: Identity, nanoseconds: int) -> None:
        """A caller holds the device for so long already, with a call that goes on.

        So a long call counts while it runs: in the last minute, and for ``device_seconds``. It is
        added to its line once it has been answered, from its record. The record says how much was
        told here.
        """
        tenant, now = identity.tenant, self._clock()
        with self._lock:
            self._count()
            if now >= self._next:
                self._put_away(now)
            self._recent[-1].line(tenant, identity.name, "").device_ns += nanoseconds
            self._charge(tenant, self._minutes[-1].start, nanoseconds)

    # --- Asking -----------------------------------------------------------------------------------

    def device_seconds(self, tenant: str, last_seconds: float = HOUR) -> float:
        """How long a tenant held the device in the last seconds, at most an hour.

        In whole minutes: one that has begun before, and ended in them, counts.
        """
        return sum(spent for _, spent in self._minutes_of(tenant, last_seconds)) / 1e9

    def seconds_until(
        self, tenant: str, device_seconds: float, last_seconds: float = HOUR
    ) -> float:
        """Seconds until a tenant has used less than that, if it makes no more calls."""
        minutes = self._minutes_of(tenant, last_seconds)
        used, until = sum(spent for _, spent in minutes), 0.0
        for start, spent in minutes:
            if used < device_seconds * 1e9:
                break
            used -= spent
            until = start + MINUTE + last_seconds
        return max(0.0, until - self._clock())

    def lines(self, last_seconds: float = 0) -> dict[UsageKey, UsageLine]:
        """What was used in the last seconds, or all that is known where they are 0.

        In whole minutes, and in whole hours where it is older than two hours.
        """
        since = self._clock() - last_seconds if last_seconds else 0.0
        everything = UsagePeriod(0, 0)
        with self._lock:
            self._count()
            for period in itertools.chain(self._hours, self._minutes):
                if period.end > since:
                    everything.add(period)
        return {UsageKey(*key): line for key, line in sorted(everything.lines.items())}

    def last_minute(self) -> dict[tuple[str, str], UsageLine]:
        """Calls and device time of the last minute, by tenant and caller."""
        now = self._clock()
        minute = UsagePeriod(0, MINUTE)
        with self._lock:
            self._count()
            for period in self._recent:
                if period.end > now - MINUTE:
                    minute.add(period)
        return {key[:2]: line for key, line in minute.lines.items()}

    # --- The file of the account ------------------------------------------------------------------

    def unwritten(self, *, current: bool = False) -> list[UsagePeriod]:
        """Minutes that are not in the file yet. ``current``: the current minute too."""
        now = self._clock()
        with self._lock:
            self._count()
            if now >= self._next:
                self._put_away(now)
            ended = list(self._minutes) if current else list(self._minutes)[:-1]
            return [period for period in ended if not period.is_written]

    def restore(self, start: int, lines: Iterable[tuple[UsageKey, UsageLine]]) -> None:
        """Takes a minute of the file, in the order of time, before anything is counted.

        Minutes older than a month are skipped.
        """
        now = self._clock()
        if start < now - _DAYS_KEPT * 24 * HOUR or start > now:
            return
        with self._lock:
            self.since = min(self.since, start)
            is_recent = start >= self._minutes[-1].start - _MINUTES_KEPT * MINUTE
            period = self._restored_minute(start) if is_recent else self._hour_of(start)
            before = len(period.lines)
            for (tenant, caller, operator), line in lines:
                period.line(tenant, caller, operator).add(line)
                if line.device_ns and start > now - HOUR - MINUTE:
                    self._charge(tenant, start, line.device_ns)
            if not is_recent and len(period.lines) > before:
                self._lines_of_hours += len(period.lines) - before
                self._forget()

    def _restored_minute(self, start: int) -> UsagePeriod:
        """Apart from the current one, of which nothing has been written."""
        restored = self._minutes[-2] if len(self._minutes) > 1 else None
        if restored is None or restored.start != start:
            restored = UsagePeriod(start, MINUTE)
            restored.is_written = True
            self._minutes.insert(len(self._minutes) - 1, restored)
        return restored

    # --- The passing of time ----------------------------------------------------------------------

    def _put_away(self, now: float) -> None:
        """Begins new periods, puts old minutes together to hours, and forgets what is too old."""
        if now >= self._recent[-1].end:
            self._recent.append(_period_at(now, _RECENT_SECONDS))
            while self._recent[0].end <= now - MINUTE:
                self._recent.popleft()
        if now >= self._minutes[-1].end:
            self._minutes.append(_period_at(now, MINUTE))
            oldest = self._minutes[-1].start - _MINUTES_KEPT * MINUTE
            while self._minutes[0].start < oldest:
                self._put_to_its_hour(self._minutes.popleft())
            self._forget()
        self._next = min(self._recent[-1].end, self._minutes[-1].end)

    def _put_to_its_hour(self, minute: UsagePeriod) -> None:
        hour = self._hour_of(minute.start)
        before = len(hour.lines)
        hour.add(minute)
        self._lines_of_hours += len(hour.lines) - before

    def _hour_of(self, start: int) -> UsagePeriod:
        if not self._hours or self._hours[-1].end <= start:
            self._hours.append(_period_at(start, HOUR))
        return self._hours[-1]

    def _forget(self) -> None:
        oldest = self._clock() - _DAYS_KEPT * 24 * HOUR
        while self._hours and (self._lines_of_hours > MOST_LINES or self._hours[0].end <= oldest):
            forgotten = self._hours.popleft()
            self._lines_of_hours -= len(forgotten.lines)
            self.since = forgotten.end
        for tenant, minutes in tuple(self._device_ns.items()):
            if minutes[-1][0] + MINUTE <= self._clock() - HOUR:
                del self._device_ns[tenant]

    def _minutes_of(self, tenant: str, last_seconds: float) -> list[tuple[int, int]]:
        """Minutes in which it held the device, and for how many nanoseconds."""
        since = self._clock() - last_seconds
        with self._lock:
            self._count()
            minutes = self._device_ns.get(tenant, ())
            return [(start, spent) for start, spent in minutes if start + MINUTE > since]

    def _charge(self, tenant: str, minute: int, nanoseconds: int) -> None:
        minutes = self._device_ns.get(tenant)
        if minutes is None:
            minutes = self._device_ns[tenant] = deque(maxlen=HOUR // MINUTE + 2)
        if minutes and minutes[-1][0] == minute:
            minutes[-1][1] += nanoseconds
        else:
            minutes.append([minute, nanoseconds])


def _period_at(now: float, seconds: int) -> UsagePeriod:
    return UsagePeriod(int(now // seconds) * seconds, seconds)
