"""Shares of a device on a virtual clock: random schedules, judged by what fairness means."""

import heapq
import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from tests.server.fakes import FakeTurn, person

from npucall_server.access.identity import Identity
from npucall_server.scheduling.schedule import Grant, Schedule
from npucall_server.settings.tenants import Tenant, Tenants


def tenants(**weights: int) -> Tenants:
    return Tenants({name: Tenant.model_validate({"weight": w}) for name, w in weights.items()})


@dataclass
class Device:
    """Callers who want turns again and again, on a clock that the test moves."""

    tenants: Tenants
    lanes: int = 1
    now: float = 0.0
    served: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by tenant."""
    turns_of: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By caller."""
    largest: float = 0.0

    def __post_init__(self) -> None:
        self.turns = Schedule(self.lanes, self.tenants, clock=lambda: self.now)
        self.running: list[tuple[float, int, FakeTurn]] = []
        self.waiting: list[FakeTurn] = []
        self.count = 0

    def ask(self, taker: FakeTurn) -> None:
        grant: Grant | None = self.turns.take(taker)  # type: ignore[arg-type]  # all it asks of one
        self._begin(taker, grant) if grant is not None else self.waiting.append(taker)

    def step(self) -> FakeTurn:
        """Until the next turn ends; whose it was."""
        self.now, _, taker = heapq.heappop(self.running)
        grant, taker.granted = taker.granted, None
        self.served[taker.identity.tenant] += self.now - grant.since
        self.turns.give_back(grant)
        for each in [one for one in self.waiting if one.granted is not None]:
            self.waiting.remove(each)
            self._begin(each, each.granted)
        return taker

    def _begin(self, taker: FakeTurn, grant: Grant) -> None:
        self.turns_of[taker.identity.person] += 1
        self.count += 1
        taker.granted = grant
        seconds = next(taker.seconds)  # type: ignore[attr-defined]
        self.largest = max(self.largest, seconds)
        heapq.heappush(self.running, (self.now + seconds, self.count, taker))


def backlog(device: Device, identity: Identity, lengths: object, calls: int) -> None:
    """So many calls of one caller, each of which wants another turn when it has had one."""
    for _ in range(calls):
        taker = FakeTurn(identity)
        taker.seconds = lengths  # type: ignore[attr-defined]
        device.ask(taker)


def endless(rolls: random.Random, shortest: float, longest: float) -> object:
    while True:
        yield rolls.uniform(shortest, longest)


@pytest.mark.parametrize(
    "schedules",
    [10, pytest.param(40, marks=pytest.mark.more), pytest.param(10_000, marks=pytest.mark.long)],
)
def test_backlogged_tenants_get_the_device_by_their_weights(schedules: int) -> None:
    """Never two largest turns apart, and after 10 s not more than a twentieth of their shares."""
    for seed in range(schedules):
        rolls = random.Random(seed)
        weights = {f"t{n}": rolls.choice((1, 1, 2, 4)) for n in range(rolls.randint(2, 4))}
        device = Device(tenants(**weights), rolls.choice((1, 1, 2)))
        for tenant in weights:
            longest = rolls.choice((0.004, 0.008, 0.01))
            for each in range(rolls.randint(1, 3)):
                lengths = endless(rolls, longest / 10, longest)
                backlog(device, person(f"{tenant}/c{each}"), lengths, device.lanes + 1)
        while device.now < 10:
            device.ask(device.step())
            shares = [device.served[name] / weight for name, weight in weights.items()]
            assert max(shares) - min(shares) <= 2 * device.largest, seed
        assert max(shares) <= 1.05 * min(shares), seed
        assert min(device.turns_of.values()) > 0, seed


@pytest.mark.parametrize("lanes", [1, 2])
def test_callers_of_one_tenant_share_alike_however_many_calls_each_has(lanes: int) -> None:
    device, rolls = Device(tenants(lab=1), lanes), random.Random(1)
    for name, calls in (("flood", 30), ("a", lanes + 1), ("b", lanes + 1)):
        backlog(device, person(f"lab/{name}"), endless(rolls, 0.01, 0.01), calls)
    while device.now < 10:
        device.ask(device.step())
    counts = device.turns_of.values()
    assert max(counts) - min(counts) <= 2


def test_batch_gets_a_tenth_beside_interactive_and_everything_alone() -> None:
    batch = Tenant.model_validate({"class": "batch", "weight": 100})
    both = Tenants({"now": Tenant.model_validate({}), "later": batch})
    device, rolls = Device(both), random.Random(1)
    backlog(device, person("later/x"), endless(rolls, 0.001, 0.02), 2)
    for _ in range(100):
        device.ask(device.step())
    alone = device.now
    assert device.served["later"] == pytest.approx(alone)
    backlog(device, person("now/x"), endless(rolls, 0.001, 0.02), 2)
    while device.now < alone + 10:
        device.ask(device.step())
    assert device.served["now"] == pytest.approx(9.0, abs=0.1)


def test_who_was_idle_has_saved_nothing_and_who_worked_is_not_punished_for_it() -> None:
    device, rolls = Device(tenants(busy=1, late=1)), random.Random(1)
    backlog(device, person("busy/x"), endless(rolls, 0.01, 0.01), 2)
    while device.now < 100:
        device.ask(device.step())
    before = device.served["busy"]
    backlog(device, person("late/x"), endless(rolls, 0.01, 0.01), 2)
    while device.now < 110:
        device.ask(device.step())
    assert device.served["busy"] - before == pytest.approx(5, abs=0.05)
    assert device.served["late"] == pytest.approx(5, abs=0.05)


def test_a_small_call_waits_for_one_large_turn_of_another_tenant_at_most() -> None:
    device, rolls = Device(tenants(large=1, small=1)), random.Random(1)
    backlog(device, person("large/x"), endless(rolls, 1, 1), 20)
    for _ in range(3):
        device.ask(device.step())
    taker = FakeTurn(person("small/x"))
    taker.seconds = endless(rolls, 0.001, 0.001)  # type: ignore[attr-defined]
    device.ask(taker)
    assert device.step() is not taker
    assert device.step() is taker


def test_a_caller_that_comes_again_and_again_does_not_leave_its_debt_behind() -> None:
    """One call at a time beside somebody with many: the same share as long as both want it."""
    device, rolls = Device(tenants(a=1, b=1)), random.Random(1)
    backlog(device, person("b/x"), endless(rolls, 0.001, 0.001), 3)
    backlog(device, person("a/x"), endless(rolls, 0.1, 0.1), 1)
    while device.now < 10:
        device.ask(device.step())
    assert device.served["a"] == pytest.approx(device.served["b"], rel=0.05)


def test_a_weight_that_changes_counts_from_then_on() -> None:
    subject = tenants(a=1, b=1)
    device, rolls = Device(subject), random.Random(1)
    for name in "ab":
        backlog(device, person(f"{name}/x"), endless(rolls, 0.01, 0.01), 2)
    while device.now < 5:
        device.ask(device.step())
    subject.replace(tenants(a=3, b=1).by_name)
    before = dict(device.served)
    while device.now < 15:
        device.ask(device.step())
    assert device.served["a"] - before["a"] == pytest.approx(7.5, abs=0.2)


def test_callers_that_have_gone_are_forgotten() -> None:
    device, rolls = Device(tenants(a=1)), random.Random(1)
    backlog(device, person("a/stays"), endless(rolls, 0.01, 0.01), 2)
    for number in range(1000):
        passing = FakeTurn(person(f"a/c{number}"))
        passing.seconds = endless(rolls, 0.01, 0.01)  # type: ignore[attr-defined]
        device.ask(passing)
        while (taker := device.step()) is not passing:
            device.ask(taker)
    (kind,) = device.turns._shares.all.children.values()
    (tenant,) = kind.children.values()
    assert len(tenant.children) < 200
