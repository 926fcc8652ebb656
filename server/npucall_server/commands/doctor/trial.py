"""Runs calls on the device as a server would, and compares their numbers with the reference.

If a step fails, the next one still runs, unless the device is broken.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from npucall.declare.samples import Form
from npucall.errors import NpucallError
from npucall_server.commands.doctor import copies, planning, promises
from npucall_server.commands.doctor.bench import Bench, check, poisoned
from npucall_server.commands.doctor.failure import WRONG, failed
from npucall_server.commands.doctor.finding import Finding, Section, fault, ok, warning
from npucall_server.commands.doctor.kinds import ODD, summary, trials

if TYPE_CHECKING:
    from npucall.products import Product
    from npucall_server.commands.doctor.bench import Step
    from npucall_server.commands.doctor.kinds import Trial
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
    said = f"{len(chosen)} calls have all that operators of this host have"
    yield ok(f"{said}\n{summary(chosen)}")
    bench = Bench(context, operators, catalogue, product, chosen)
    with poisoned():
        for step in _STEPS:
            try:
                yield from step(bench)
            except NpucallError as error:
                yield failed(error)
            if bench.is_broken:
                return False
            if bench.lane.spent or not bench.some_are_right:  # then other trials show nothing new
                break
    yield Section("trial", "destroying the stream, and waiting for threads to end")
    bench.lane.close()
    if left := bench.ending.wait(_ENDING):
        yield warning(
            f"{left} threads did not end within {_ENDING:g} s",
            "a server that stops waits 11 s for them, then ends without giving the device back",
        )
    return True


def _runs(bench: Bench) -> Iterator[Section | Finding]:
    """Runs each call twice: the second time CANN answers the first phase from its cache."""
    for trial in bench.trials:
        yield Section("trial", f"first run of {trial.title}, which loads its kernel")
        try:
            yield _twice(bench, trial)
        except NpucallError as error:
            yield failed(error, trial.title)
            if bench.is_broken or bench.lane.spent:
                return
    yield from _noted(bench)


def _noted(bench: Bench) -> Iterator[Finding]:
    """The lane's notes on these runs, and whether they were timed."""
    yield from (warning(note, "calls run all the same") for note in bench.notes)
    first, second = ([pair[n] for pair in bench.phases] for n in (0, 1))
    if not first:
        return
    plans = [sum(each.plan_ns for each in run) / 1e6 for run in (first, second)]
    yield ok(
        f"first phases took {plans[0]:.2f} ms together the first time, and {plans[1]:.2f} ms when "
        "CANN could answer them from its cache",
        "phase-one-cache",
    )
    timed = sum(each.run_ns > 0 for each in (*first, *second))
    if timed:
        said = f"the device's clock timed {timed} of {2 * len(first)} runs, with the same events"
        yield ok(said, "events-again")
    else:
        yield warning("no run was timed", "times in log and answers are 0", "events-again")


def _twice(bench: Bench, trial: Trial) -> Finding:
    settles = ("views",) if trial.form in ODD else ()
    first = check(bench.lane, trial.call, 1)
    second = check(bench.lane, trial.call, 2)
    if first.wrong:
        return fault(f"{trial.title}: first run: {first.wrong}", WRONG, *settles)
    if second.wrong:
        return fault(
            f"{trial.title}: the first run is right, the second is not: {second.wrong}",
            WRONG, *settles, *_USED_AGAIN,
        )  # fmt: skip
    if first.phases is not None and second.phases is not None:
        bench.phases.append((first.phases, second.phases))
    bench.some_are_right |= trial.form is not Form.EMPTY  # empty tensors are not computed
    told = _told(first.phases, second.phases)
    times = _times({"first": first.phases, "second": second.phases})
    return ok(f"{trial.title}: right twice{told}", *settles, times=times)


def _again(bench: Bench) -> Iterator[Section | Finding]:
    """Runs all calls in turn again, with what the lane has kept."""
    yield Section("trial", "running all of them in turn")
    for seed in (3, 4, 5):
        for trial in reversed(bench.trials):
            outcome = check(bench.lane, trial.call, seed)
            if outcome.wrong:
                said = f"{trial.title} behind the others: {outcome.wrong}"
                yield fault(said, WRONG, *_USED_AGAIN)
                return
    yield ok(
        "all of them in turn, three times: right, with descriptors, first phases and workspace "
        "that are used again",
        *_USED_AGAIN,
    )


_STEPS: tuple[Step, ...] = (
    _runs,
    _again,
    promises.programs,
    promises.overflow,
    copies.ways,
    copies.handles,
    planning.plans,
    promises.clearing,
    promises.too_much,
)


def _times(runs: dict[str, Phases | None]) -> dict[str, float]:
    return {
        f"{which} {name.removesuffix('_ns')}": ns / 1e6
        for which, phases in runs.items()
        if phases is not None
        for name, ns in phases._asdict().items()
    }


def _told(first: Phases | None, second: Phases | None) -> str:
    if first is None or second is None:
        return ""
    phases, runs = ((first.plan_ns, second.plan_ns), (first.run_ns, second.run_ns))
    return f"; first phases {_ms(phases)}, runs {_ms(runs)}"


def _ms(nanoseconds: tuple[int, int]) -> str:
    return " and ".join(f"{each / 1e6:.2f}" for each in nanoseconds) + " ms"
