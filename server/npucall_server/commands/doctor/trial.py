"""Runs calls on the device as a server would, and compares their numbers with the reference.

If a step fails, the next one still runs, unless the device is broken.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from npucall import memory
from npucall.declare.samples import Form
from npucall.errors import NpucallError
from npucall.products import Product
from npucall_server.commands.doctor import promises
from npucall_server.commands.doctor.bench import Bench, Trying, check
from npucall_server.commands.doctor.finding import (
    WRONG,
    Finding,
    Section,
    failed,
    fault,
    judged,
    ok,
    warning,
)  # fmt: skip
from npucall_server.commands.doctor.kinds import ODD, Trial, trials
from npucall_server.devices.base import Phases
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import DeviceContext

_USED_AGAIN = ("workspace-reuse", "kept-descriptors", "phase-one-cache")
_ENDING = 70.0
"""Seconds to wait for threads to end: a thread that planned may wait for a minute at its end."""


def try_device(
    context: DeviceContext, operators: OpApi, catalogue: HostCatalogue, product: Product
) -> Generator[Section | Finding, None, bool]:
    """Runs all trials; answers whether the device can still be given back.

    Raises NpucallError if a stream cannot be made, or given back.
    """
    yield Section("trial", "creating a stream")
    chosen = trials(catalogue, operators, product)
    if not chosen:
        yield warning(
            f"none of the declared operators is here for {product.name}: nothing was run",
            "run what is here: `npucall operators`, `npucall run`, `npucall conform`",
        )
        return True
    yield ok(f"{len(chosen)} calls have all that operators of this host have")
    bench = Bench(context, operators, catalogue, product, chosen)
    memory.poison()  # to notice a launch that runs nothing
    for step in _STEPS:
        goes_on: Any = True
        try:
            goes_on = yield from step(bench)
        except NpucallError as error:
            yield failed(error)
        if bench.is_broken:
            return False
        if bench.lane.spent or goes_on is False:
            break
    yield Section("trial", "destroying the stream, and waiting for threads to end")
    bench.lane.close()
    if left := bench.ending.wait(_ENDING):
        yield warning(
            f"{left} threads did not end within {_ENDING:g} s",
            "a server that stops waits 11 s for them, then ends without giving the device back",
        )
    return True


def _runs(bench: Bench) -> Generator[Section | Finding, None, bool]:
    """Runs each call twice: the second time CANN answers the first phase from its cache.

    Answers whether one has given the numbers of the reference: else no trial shows anything new.
    """
    told: list[tuple[Phases, Phases]] = []
    is_right = False
    for trial in bench.trials:
        yield Section("trial", f"first run of {trial.title}, which loads its kernel")
        try:
            found = _twice(bench, trial, told)
        except NpucallError as error:
            found = failed(error, trial.title)
        yield found
        if bench.is_broken or bench.lane.spent:
            return False
        is_right |= not found.todo and trial.form is not Form.EMPTY  # which is not computed
    yield from (warning(note, "calls run all the same") for note in bench.notes)
    if told:
        yield from _timed(told)
    return is_right


def _twice(bench: Bench, trial: Trial, told: list[tuple[Phases, Phases]]) -> Finding:
    settles = ("views",) if trial.form in ODD else ()
    (wrong, first), (then_wrong, second) = (check(bench.lane, trial.call, n) for n in (1, 2))
    if wrong:
        return fault(f"{trial.title}: first run: {wrong}", WRONG, *settles)
    if then_wrong:
        said = f"{trial.title}: the first run is right, the second is not: {then_wrong}"
        return fault(said, WRONG, *settles, *_USED_AGAIN)
    if first is None or second is None:
        return ok(f"{trial.title}: right twice", *settles)
    if trial.form is not Form.EMPTY:  # which may take no time at all
        told.append((first, second))
    times = tuple(
        (f"{which} {name.removesuffix('_ns')}", ns / 1e6)
        for which, phases in (("first", first), ("second", second))
        for name, ns in phases._asdict().items()
    )
    plans, runs = (
        " and ".join(f"{ns / 1e6:.2f}" for ns in pair)
        for pair in ((first.plan_ns, second.plan_ns), (first.run_ns, second.run_ns))
    )
    said = f"{trial.title}: right twice; first phases {plans} ms, runs {runs} ms"
    return ok(said, *settles)._replace(times=times)


def _timed(told: list[tuple[Phases, Phases]]) -> Iterator[Finding]:
    """What the phases of all these runs tell together."""
    first, second = (sum(pair[n].plan_ns for pair in told) / 1e6 for n in (0, 1))
    yield ok(
        f"first phases took {first:.2f} ms together the first time, and {second:.2f} ms when "
        "CANN could answer them from its cache",
        "phase-one-cache",
    )
    if timed := sum(each.run_ns > 0 for pair in told for each in pair):
        said = f"the device's clock timed {timed} of {2 * len(told)} runs, with the same events"
        yield ok(said, "events-again")
    else:
        yield warning("no run was timed", "times in log and answers are 0", "events-again")


def _again(bench: Bench) -> Iterator[Section | Finding]:
    """Runs all calls in turn again, with what the lane has kept."""
    yield Section("trial", "running all of them in turn")
    for seed in (3, 4, 5):
        for trial in reversed(bench.trials):
            wrong, _ = check(bench.lane, trial.call, seed)
            if wrong:
                yield judged(f"{trial.title} behind the others", wrong, *_USED_AGAIN)
                return
    yield ok(
        "all of them in turn, three times: right, with descriptors, first phases and workspace "
        "that are used again",
        *_USED_AGAIN,
    )


_STEPS: tuple[Trying, ...] = (
    _runs,
    _again,
    promises.programs,
    promises.overflow,
    promises.copies,
    promises.handles,
    promises.plans,
    promises.clearing,
    promises.too_much,
)
