"""Programs of every operator of the catalogue, and what single calls give for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from npucall.compute.evaluate import run as evaluate
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared
from npucall.declare.samples import sample, sample_storages
from npucall.dtypes import FLOAT
from npucall.operators import CATALOGUE
from npucall.places import StepOutput
from npucall_server.devices.base import Device, ResidentPart, Step

OFFSET = 68
"""Of a storage in its handle: no multiple of what kernels want."""


def operators_of(device: Device) -> list[Operator[Any, Any]]:
    """Those that its product has, for tensors of FLOAT."""
    return [operator for operator in CATALOGUE if FLOAT in operator.dtypes_on(device.product)]


def call_of(operator: Operator[Any, Any], device: Device) -> tuple[Prepared, dict[str, bytes]]:
    """An ordinary call of an operator, and its storages."""
    call = sample(operator, device.product, device.catalogue, FLOAT)
    return call, sample_storages(call, seed=1)


def a_program(device: Device, operator: Operator[Any, Any]) -> tuple[list[Step], list[Any]]:
    """Steps of one operator in all the ways in which tensors come and go, and their handles.

    The first is ordinary, the second reads handles and fills others, the third takes what the
    first gave wherever that fits, and is read by the fourth alone, whose outputs are answered.
    """
    call, storages = call_of(operator, device)
    parts: dict[str, ResidentPart] = {}
    for name, data in storages.items():
        memory = device.allocate(OFFSET + len(data) + 3)
        memory.write(0, bytes(OFFSET) + data + bytes(3))
        parts[name] = ResidentPart(memory, OFFSET, len(data))
    targets = {n: device.allocate(s.storage_bytes) for n, s in call.outputs.items()}
    names = frozenset(call.outputs)
    steps = [
        Step(call, storages),
        Step(call, parts, targets),
        Step(call, {**storages, **_results(call, 0)}, discarded=names),
        Step(call, {**parts, **_results(call, 2)}),
    ]
    return steps, [part.memory for part in parts.values()] + list(targets.values())


def chain(call: Prepared, sent: Mapping[str, Any], steps: int, **last: Any) -> list[Step]:
    """Each step takes what the one before gave in place of its first input; the last is answered.

    ``last``: fields of the last step.
    """
    (output,), first = call.outputs, next(iter(sent))
    made = [Step(call, sent, discarded=frozenset({output}))]
    for number in range(1, steps):
        made.append(made[0]._replace(storages={**sent, first: StepOutput(number - 1, output)}))
    made[-1] = made[-1]._replace(**{"discarded": frozenset(), **last})
    return made


def _results(call: Prepared, step: int) -> dict[str, StepOutput]:
    """The tensors sent that outputs of the same call would fit."""
    found = {}
    specs = {**call.inputs, **call.outputs}
    for name in call.stored:
        spec = specs[name]
        for output, made in call.outputs.items():
            fits = (made.dtype, made.storage_bytes) == (spec.dtype, spec.storage_bytes)
            if fits and name not in call.checked_inputs:
                found[name] = StepOutput(step, output)
    return found


def one_by_one(steps: Sequence[Step]) -> list[dict[str, bytes]]:
    """The outputs of each step, as the reference gives them for a single call."""
    given: list[dict[str, bytes]] = []
    for step in steps:
        storages = {name: _bytes(source, given) for name, source in step.storages.items()}
        outputs = evaluate(step.call, storages)
        given.append(dict(zip(step.call.outputs, map(bytes, outputs), strict=True)))
    return given


def _bytes(source: Any, given: Sequence[Mapping[str, bytes]]) -> bytes:
    if isinstance(source, StepOutput):
        return given[source.step][source.output]
    if isinstance(source, ResidentPart):
        return bytes(source.memory.read(source.offset, source.length))
    return bytes(source)


def differences(outputs: Sequence[Sequence[Any]], steps: Sequence[Step]) -> list[str]:
    """The outputs of a program that are not what they should be."""
    wrong = []
    for number, (step, expected) in enumerate(zip(steps, one_by_one(steps), strict=True)):
        for output, (name, data) in zip(outputs[number], expected.items(), strict=True):
            if name in step.discarded:
                fits = output is None
            elif name in step.targets:
                target: Any = step.targets[name]
                fits = output is target and bytes(target.read(0, target.nbytes)) == data
            else:
                fits = bytes(output) == data
            if not fits:
                wrong.append(f"step {number}: {name}")
    return wrong
