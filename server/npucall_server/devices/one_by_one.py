"""Programs on a device that runs each step as a call and has its handles in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.places import StepOutput
from npucall.programs import at_step, last_reads
from npucall_server.devices.base import Phases, RanProgram
from npucall_server.devices.host_memory import as_asked, in_host_memory, memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Ran, Source, Step, Target, Turn

    Run = Callable[[Prepared, Mapping[str, Buffer], Turn, Mapping[str, Buffer]], Ran]


def run_call(
    run: Run, call: Prepared, storages: Mapping[str, Source], turn: Turn,
    targets: Mapping[str, Target],
) -> Ran:  # fmt: skip
    """Runs a call that may read and fill handles, by a function that knows no handles."""
    ran = run(call, in_host_memory(storages), turn, memory_of(targets))
    outputs: list[Any] = ran.outputs
    return ran._replace(outputs=as_asked(call, outputs, targets))


def run_steps(run: Run, steps: Sequence[Step], turn: Turn) -> RanProgram:
    """``Device.run_program`` by single calls. Each call takes its own turns."""
    ended = last_reads([step.storages for step in steps])
    results: dict[StepOutput, Any] = {}
    outputs: list[list[Any]] = []
    spent = [0, 0, 0, 0]
    for number, step in enumerate(steps):
        storages = {
            name: results[source] if isinstance(source, StepOutput) else source
            for name, source in in_host_memory(step.storages).items()
        }
        with at_step(number):
            ran = run(step.call, storages, turn, memory_of(step.targets))
        for name, output in zip(step.call.outputs, ran.outputs, strict=True):
            results[StepOutput(number, name)] = output
        found = as_asked(step.call, ran.outputs, step.targets)  # type: ignore[arg-type]
        names = step.call.outputs
        outputs.append(
            [None if n in step.discarded else o for n, o in zip(names, found, strict=True)]
        )
        for source in ended[number]:
            del results[source]
        if ran.phases is not None:
            spent = [before + more for before, more in zip(spent, ran.phases, strict=True)]
    return RanProgram(outputs, Phases(*spent) if any(spent) else None)
