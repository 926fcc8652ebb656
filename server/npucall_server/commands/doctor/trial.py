"""Runs calls on the device as a server would, and compares their numbers with the reference.

If a step fails, the next one still runs, unless the device is broken.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from npucall import memory
from npucall.declare.samples import Form
from npucall.errors import NpucallError
from npucall_server.commands.doctor import planning, promises
from npucall_server.commands.doctor.bench import Bench, check
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
from npucall_server.commands.doctor.kinds import ODD, trials

if TYPE_CHECKING:
    from npucall.products import Product
    from npucall_server.commands.doctor.bench import Step
    from npucall_server.commands.doctor.kinds import Trial
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
    yield from (warning(note, "calls run all the same") for note in bench.notes)
    if bench.phases:
        yield from _timed(bench)


def _twice(bench: Bench, trial: Trial) -> Finding:
    settles = ("views",) if trial.form in ODD else ()
    first, second = (check(bench.lane, trial.call, seed) for seed in (1, 2))
    if first.wrong:
        return fault(f"{trial.title}: first run: {first.wrong}", WRONG, *settles)
    if second.wrong:
        said = f"{trial.title}: the first run is right, the second is not: {second.wrong}"
        return fault(said, WRONG, *settles, *_USED_AGAIN)
    bench.some_are_right |= trial.form is not Form.EMPTY  # empty tensors are not computed
    said = f"{trial.title}: right twice"
    if first.phases is None or second.phases is None:
        return ok(said, *settles)
    bench.phases.append((first.phases, second.phases))
    told = {"first": first.phases, "second": second.phases}
    times = {
        f"{which} {name.removesuffix('_ns')}": ns / 1e6
        for which, phases in told.items()
        for name, ns in phases._asdict().items()
    }
    plans, runs = (
        " and ".join(f"{times[f'{which} {phase}']:.2f}" for which in told)
        for phase in ("plan", "run")
    )
    said = f"{said}; first phases {plans} ms, runs {runs} ms"
    return ok(said, *settles)._replace(times=tuple(times.items()))


def _timed(bench: Bench) -> Iterator[Finding]:
    """What the phases of all these runs tell together."""
    first, second = (sum(each.plan_ns for each in run) / 1e6 for run in zip(*bench.phases))  # noqa: B905
    yield ok(
        f"first phases took {first:.2f} ms together the first time, and {second:.2f} ms when "
        "CANN could answer them from its cache",
        "phase-one-cache",
    )
    if timed := sum(each.run_ns > 0 for pair in bench.phases for each in pair):
        runs = 2 * len(bench.phases)
        said = f"the device's clock timed {timed} of {runs} runs, with the same events"
        yield ok(said, "events-again")
    else:
        yield warning("no run was timed", "times in log and answers are 0", "events-again")


def _again(bench: Bench) -> Iterator[Section | Finding]:
    """Runs all calls in turn again, with what the lane has kept."""
    yield Section("trial", "running all of them in turn")
    for seed in (3, 4, 5):
        for trial in reversed(bench.trials):
            if wrong := check(bench.lane, trial.call, seed).wrong:
                yield judged(f"{trial.title} behind the others", wrong, *_USED_AGAIN)
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
    promises.copies,
    promises.handles,
    planning.plans,
    promises.clearing,
    promises.too_much,
)
