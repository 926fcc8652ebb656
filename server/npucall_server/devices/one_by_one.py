"""Steps on a device that runs each as a call and has its handles in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.places import StepOutput
from npucall.programs import at_step, last_reads
from npucall_server.devices.base import DeviceTurn, Phases, Ran, Step
from npucall_server.devices.host_memory import as_asked, in_host_memory, memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer

    RunCall = Callable[[Prepared, Mapping[str, Buffer], DeviceTurn, Mapping[str, Buffer]], Ran]


def run_steps(run: RunCall, steps: Sequence[Step], turn: DeviceTurn) -> Ran:
    """``Device.run`` by a function that knows no handles. Each step takes its own turns."""
    ended = last_reads([step.storages for step in steps])
    results: dict[StepOutput, Any] = {}
    outputs: list[list[Any]] = []
    spent = [0, 0, 0, 0]
    for number, step in enumerate(steps):
        storages = {
            name: results[source] if isinstance(source, StepOutput) else source
            for name, source in in_host_memory(step.storages).items()
        }
        with at_step(number, of=len(steps)):
            ran = run(step.call, storages, turn, memory_of(step.targets))
        (own,) = ran.outputs
        for name, output in zip(step.call.outputs, own, strict=True):
            results[StepOutput(number, name)] = output
        outputs.append(as_asked(step.call, own, step.targets, step.discarded))  # type: ignore[arg-type]
        for source in ended[number]:
            del results[source]
        if ran.phases is not None:
            spent = [before + more for before, more in zip(spent, ran.phases, strict=True)]
    return Ran(outputs, Phases(*spent) if any(spent) else None)
