"""Random schedules of reservations, beside a witness that keeps its own account of who had it.

Holders renew, stop, release, call, go away; servers restart, with a secret and without; the wall
clock jumps. The witness knows no rule but those that users are told.
"""

import random
from dataclasses import dataclass, field

import pytest
from tests.server.fakes import FakeClock
from tests.summary import figures

from npucall.errors import ReservedError
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.scheduling.reservation_keys import ReservationKeys
from npucall_server.scheduling.reservations import ReservationRules, Reservations, Wish
from npucall_server.settings.tenants import Role

LONGEST, GAP, LEASE = 120.0, 60.0, 30.0
STEPS = 80
PEOPLE = [
    Identity(tenant, name, Role.BENCH, KnownBy.TOKEN) for tenant in "abc" for name in ("x", "y")
]


@dataclass
class Had:
    """One reservation, as its holder was told of it."""

    who: Identity
    key: str
    seconds: float
    ends: float
    lease_ends: float
    began: float
    """When this process granted or restored it."""
    over: float | None = None
    """When it was released, or told to have ended."""
    kept_out: bool = False
    """Whether a call of somebody else was refused meanwhile."""

    @property
    def end(self) -> float:
        return min(self.ends, self.lease_ends, *([] if self.over is None else [self.over]))


@dataclass
class Waiting:
    wish: Wish
    asked: int


@dataclass
class Schedule:
    """One random schedule on one machine."""

    random: random.Random
    clock: FakeClock = field(default_factory=FakeClock)
    secret: str | None = None
    had: list[Had] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    """When the gap of a tenant is over, behind what this process has granted or restored."""
    free_until: float = 0.0
    """Until when the device is for calls that were kept out."""
    passed: list[str] = field(default_factory=list)
    """Keys in the order in which this process let them pass for the first time."""
    told: list[object] = field(default_factory=list)
    asked: int = 0
    grants: int = 0
    restores: int = 0

    def __post_init__(self) -> None:
        self.secret = self.random.choice([None, "a secret of the test"])
        self.start()

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def start(self) -> None:
        """A server starts; who waited has gone."""
        rules, keys = ReservationRules(LONGEST, GAP, LEASE), ReservationKeys(self.secret, "cpu")
        self.subject = Reservations(
            rules, keys, self.clock.monotonic, self.clock.wall, lambda *told: self.told.append(told)
        )
        self.opens = self.now + (LEASE if self.secret else 0.0)
        self.waiting, self.passed, self.gaps, self.free_until = [], [], {}, 0.0
        for each in self.had:
            each.kept_out = False
        if self.secret is None:
            for each in self.had:
                each.over = min(each.end, self.now)

    # --- What happens -----------------------------------------------------------------------------

    def step(self) -> None:
        actions = {
            self.ask: 8, self.leave: 2, self.renew: 10, self.call: 5, self.release: 2,
            self.wait: 20, self.wait_for_the_next_change: 5, self.call_of_others: 3,
            self.restart: 1, self.jump: 1, self.admin_releases: 1,
        }  # fmt: skip
        self.random.choices(list(actions), list(actions.values()))[0]()
        self.grant()

    def ask(self) -> None:
        seconds = self.random.randint(1, 8 * int(LONGEST)) / 8  # exact in floats
        wish = self.subject.ask(self.random.choice(PEOPLE), seconds)
        self.asked += 1
        self.waiting.append(Waiting(wish, self.asked))

    def leave(self) -> None:
        if self.waiting:
            gone = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.subject.withdraw(gone.wish)

    def renew(self) -> None:
        for each in self.alive():
            self.show(each, renew=True)

    def call(self) -> None:
        for each in self.alive():
            self.show(each, renew=False)

    def release(self) -> None:
        for each in self.alive():
            if self.random.random() < 0.5:
                self.show(each, renew=False)
            told = len(self.told)
            self.subject.release(each.key, each.who)
            if len(self.told) > told:  # one of before the start was restored, and ended at once
                if each.key not in self.passed:
                    each.began = self.now
                self.begin_gap(each, self.now)
            self.finish(each)

    def admin_releases(self) -> None:
        self.subject.release_any()
        for each in self.alive():
            self.finish(each)

    def call_of_others(self) -> None:
        """Is refused exactly while somebody has the device, as far as this process can know."""
        known = [each for each in self.alive() if each.key in self.passed]
        try:
            self.subject.check("", self.random.choice(PEOPLE))
        except ReservedError:
            assert known
            for each in known:
                each.kept_out = each.kept_out or each.key == self.passed[-1]
        else:
            assert not known

    def wait(self) -> None:
        self.clock.advance(self.random.choice([0.125, 1.0, 9.0, 10.0, 25.0, 31.0]))

    def wait_for_the_next_change(self) -> None:
        self.clock.advance(min(200.0, self.subject.seconds_to_change()))

    def restart(self) -> None:
        self.clock.advance(self.random.choice([0.0, 1.0, 40.0]))
        if self.random.random() < 0.2:
            self.jump()
        self.start()

    def jump(self) -> None:
        self.clock.jump(self.random.choice([-1e6, -50.0, 50.0, 1e6]))

    # --- The witness ------------------------------------------------------------------------------

    def alive(self) -> list[Had]:
        """Whose holder has reason to believe in it."""
        return [each for each in self.had if self.now < each.end]

    def show(self, each: Had, *, renew: bool) -> None:
        """A holder shows its key."""
        known = each.key in self.passed
        try:
            if renew:
                self.subject.renew(each.key, each.who)
                each.lease_ends = self.now + LEASE
            else:
                self.subject.check(each.key, each.who)
        except ReservedError:
            assert not known, "what this process knew ended early"
            each.over = self.now
            return
        if not known:
            self.restores += 1
            for other in self.had:  # it takes the place of an earlier one
                other.kept_out = False
            each.began = self.now
            each.lease_ends = self.now + LEASE
            self.passed.append(each.key)
        shown = self.subject.shown()
        assert shown is not None
        ends = self.now + shown.ends_seconds
        # Never longer; but for a clock that was set back before a restart never than granted.
        assert ends == each.ends if known else shown.ends_seconds <= each.seconds
        each.ends = ends
        assert self.passed[-1] == each.key, "an earlier key passes behind a later one"

    def finish(self, each: Had) -> None:
        each.over = self.now
        if each.key in self.passed:
            self.begin_gap(each, self.now)

    def begin_gap(self, each: Had, ended: float) -> None:
        """As long as the reservation was, and no longer than the rule."""
        over = ended + min(GAP, ended - each.began)
        if each.kept_out:
            least = ended + min(GAP, max(ended - each.began, 0.125))
            self.free_until = max(self.free_until, least)
        self.gaps[each.who.tenant] = max(over, self.gaps.get(each.who.tenant, 0.0))

    def grant(self) -> None:
        """What the server grants, it has to grant: to the right one, at the right time."""
        self.subject.settle()
        for each in self.had:
            if each.key in self.passed and each.end <= self.now:
                self.begin_gap(each, each.end)
        granted = [each for each in self.waiting if self.subject.is_granted(each.wish)]
        ready = [each for each in self.waiting if self.may_have_it(each)]
        known = [each for each in self.alive() if each.key in self.passed]
        if not granted:
            assert known or not ready, "nobody has it, and who waits does not get it"
            return
        assert granted == ready[:1], "not the first of those who may have it"
        assert not self.alive(), "two reservations"
        self.waiting.remove(granted[0])
        self.begin(granted[0].wish)

    def may_have_it(self, each: Waiting) -> bool:
        gap = self.gaps.get(each.wish.holder.tenant, 0.0)
        return self.now >= max(self.opens, self.free_until, gap)

    def begin(self, wish: Wish) -> None:
        key, ends, renew_within = self.subject.begin(wish)
        assert ends == wish.seconds
        assert renew_within == min(LEASE, ends)
        self.had.append(Had(wish.holder, key, ends, self.now + ends, self.now + LEASE, self.now))
        self.passed.append(key)
        self.grants += 1

    def end(self) -> None:
        """Nobody asks any more: each who waits gets it, in a time that can be told."""
        waiting = len(self.waiting)
        for _ in range(4 * waiting + 4):
            if not self.waiting:
                return
            self.clock.advance(self.subject.seconds_to_change())
            self.grant()
        raise AssertionError("who waits is never granted anything")


def play(seeds: range) -> tuple[int, int]:
    """Plays schedules; how many reservations were granted, and how many restored."""
    grants = restores = 0
    for seed in seeds:
        schedule = Schedule(random.Random(seed))
        try:
            for _ in range(STEPS):
                schedule.step()
            schedule.end()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}") from error
        grants += schedule.grants
        restores += schedule.restores
    return grants, restores


def test_in_300_random_schedules_there_are_never_two_reservations() -> None:
    grants, restores = play(range(300))
    assert grants > 900
    assert restores > 10


@pytest.mark.long
def test_in_10_000_random_schedules_there_are_never_two_reservations() -> None:
    grants, restores = play(range(10_000))
    figures(f"{grants:,} grants, {restores:,} restarts")
    assert grants > 30_000
    assert restores > 300
