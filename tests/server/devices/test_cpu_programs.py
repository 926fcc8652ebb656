"""The CPU device: what handles hold, calls that read and fill them, and programs."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.operators.collected import SUBJECTS

from npucall.compute import alike
from npucall.declare.call import Call
from npucall.declare.cuts import BLOCK
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, INT64
from npucall.errors import ArgumentError, CancelledError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.places import StepOutput
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import TensorSpec
from npucall_server.devices.base import ResidentPart, Step
from npucall_server.devices.cpu import CpuDevice

from .programs import a_program, call_of, differences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.operators.subject import Subject

ELEMENTS = 256
LARGE = 2_000_000
"""Elements of a call of several turns."""


def a_call(name: str, *specs: TensorSpec, **attributes: Any) -> Prepared:
    """A call of an operator on dense tensors, those of its first inputs."""
    operator = CATALOGUE.find(name)
    given = {p.name: spec for p, spec in zip(operator.inputs, specs, strict=False)}
    call = Call(operator, {**given, **attributes}, tuple(given))
    return prepare(call, product_of(DEFAULT_SOC), CATALOGUE)


def l1(elements: int = ELEMENTS) -> Prepared:
    return a_call("aclnnL1LossBackward", *[TensorSpec(FLOAT, (elements,))] * 3, reduction=2)


def numbers(seed: int, elements: int = ELEMENTS) -> bytes:
    return np.random.default_rng(seed).standard_normal(elements).astype(np.float32).tobytes()


def storages_of(call: Prepared) -> dict[str, bytes]:
    return {
        name: numbers(seed, call.inputs[name].elements) for seed, name in enumerate(call.stored)
    }


class CountedTurn:
    """A turn that is there at once, and what it is asked."""

    owner = "somebody"

    def __init__(self, pauses: int = 1 << 30) -> None:
        self.taken = self.held = 0
        self._pauses = pauses

    def __call__(self) -> CountedTurn:
        return self

    def __enter__(self) -> None:
        assert not self.held, "a second turn within the first"
        self.held, self.taken = 1, self.taken + 1

    def __exit__(self, *error: object) -> None:
        self.held = 0

    def spare(self) -> AbstractContextManager[object] | None:
        return None

    def pause(self) -> None:
        self.check()

    def check(self) -> None:
        self._pauses -= 1
        if self._pauses < 0:
            raise CancelledError("call: nobody waits")


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    subject = CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, 2)
    yield subject
    subject.close()


def filled(device: CpuDevice, data: bytes) -> Any:
    memory = device.allocate(len(data))
    memory.write(0, data)
    return memory


@pytest.mark.parametrize("offset", [0, 1, 3, 64])
def test_a_call_reads_a_part_of_a_handle_as_if_it_had_been_sent(
    device: CpuDevice, offset: int
) -> None:
    call = l1()
    storages: dict[str, Any] = storages_of(call)
    (expected,) = device.run(call, storages, CountedTurn()).outputs
    data = bytes(offset) + storages["self"] + bytes(7)
    storages["self"] = ResidentPart(filled(device, data), offset, len(storages["self"]))
    (output,) = device.run(call, storages, CountedTurn()).outputs
    assert bytes(output) == bytes(expected)  # type: ignore[arg-type]


def test_a_kept_output_is_computed_into_the_handle(device: CpuDevice) -> None:
    call = l1()
    storages = storages_of(call)
    (expected,) = device.run(call, storages, CountedTurn()).outputs
    kept = device.allocate(ELEMENTS * 4)
    (output,) = device.run(call, storages, CountedTurn(), {"grad_input": kept}).outputs
    assert output is kept
    assert bytes(kept.read(0, kept.nbytes)) == bytes(expected)  # type: ignore[arg-type]


def test_a_call_reads_one_handle_and_fills_another(device: CpuDevice) -> None:
    call = l1()
    storages: dict[str, Any] = storages_of(call)
    first, second = device.allocate(ELEMENTS * 4), device.allocate(ELEMENTS * 4)
    device.run(call, storages, CountedTurn(), {"grad_input": first})
    storages["self"] = ResidentPart(first, 0, first.nbytes)
    before = bytes(first.read(0, first.nbytes))
    device.run(call, storages, CountedTurn(), {"grad_input": second})
    assert bytes(first.read(0, first.nbytes)) == before
    (expected,) = device.run(call, {**storages, "self": before}, CountedTurn()).outputs
    assert bytes(second.read(0, second.nbytes)) == bytes(expected)  # type: ignore[arg-type]


def test_an_output_that_is_read_from_one_handle_goes_to_another(device: CpuDevice) -> None:
    """Its gaps come as they were sent."""
    spec = TensorSpec(FLOAT, (4,), strides=(2,), storage_shape=(8,))
    operator = CATALOGUE.find("aclnnL1LossBackward")
    given: dict[str, Any] = dict.fromkeys(
        ("grad_output", "self", "target"), TensorSpec(FLOAT, (4,))
    )
    arguments = {**given, "reduction": 2, "grad_input": spec}
    call = prepare(
        Call(operator, arguments, (*given, "grad_input")), product_of(DEFAULT_SOC), CATALOGUE
    )
    before = filled(device, np.arange(8, dtype=np.float32).tobytes())
    kept = device.allocate(32)
    storages: dict[str, Any] = {n: numbers(k, 4) for k, n in enumerate(given)}
    storages["grad_input"] = ResidentPart(before, 0, 32)
    device.run(call, storages, CountedTurn(), {"grad_input": kept})
    result, sent = (np.frombuffer(m.read(0, 32), np.float32) for m in (kept, before))
    assert sent.tolist() == list(range(8))
    assert result[1::2].tolist() == [1, 3, 5, 7]
    self, target = (np.frombuffer(storages[n], np.float32) for n in ("self", "target"))
    grad = np.frombuffer(storages["grad_output"], np.float32)
    assert result[::2].tolist() == (grad * np.sign(self - target)).tolist()


def test_what_a_handle_holds_lives_as_long_as_somebody_reads_it(device: CpuDevice) -> None:
    memory = filled(device, b"12345678" * 4096)
    seen = memory.read(8, 8)
    memory.free()
    assert bytes(seen) == b"12345678"
    assert memory.nbytes == 0


def chain(steps: int, *, elements: int = ELEMENTS) -> list[Step]:
    """Each step takes what the one before gave; all but the last are discarded."""
    call = l1(elements)
    sent = storages_of(call)
    made: list[Step] = []
    for number in range(steps):
        storages: dict[str, Any] = dict(sent)
        if number:
            storages["grad_output"] = StepOutput(number - 1, "grad_input")
        discarded = {"grad_input"} if number < steps - 1 else set()
        made.append(Step(call, storages, discarded=frozenset(discarded)))
    return made


def one_by_one(device: CpuDevice, steps: list[Step]) -> list[list[bytes]]:
    """The outputs of each step, run as a single call."""
    results: list[list[bytes]] = []
    for step in steps:
        storages = {
            name: results[source.step][list(steps[source.step].call.outputs).index(source.output)]
            if isinstance(source, StepOutput)
            else source
            for name, source in step.storages.items()
        }
        outputs = device.run(step.call, storages, CountedTurn()).outputs
        results.append([bytes(output) for output in outputs])  # type: ignore[arg-type]
    return results


@pytest.mark.parametrize("elements", [ELEMENTS, LARGE])
def test_a_chain_gives_the_bits_of_single_calls(device: CpuDevice, elements: int) -> None:
    steps = chain(4, elements=elements)
    outputs = device.run_program(steps, CountedTurn()).outputs
    assert outputs[:3] == [[None]] * 3
    (last,) = outputs[3]
    assert bytes(last) == one_by_one(device, steps)[3][0]  # type: ignore[arg-type]


def test_small_steps_share_a_turn_and_large_ones_take_their_own(device: CpuDevice) -> None:
    turn = CountedTurn()
    device.run_program(chain(100), turn)
    assert turn.taken == 1
    device.run_program(chain(2, elements=LARGE), turn)
    assert turn.taken > 3


def test_what_has_two_readers_stays_for_the_second(device: CpuDevice) -> None:
    steps = [*chain(4), chain(2)[1]]
    steps[3] = steps[3]._replace(discarded=frozenset())
    outputs = device.run_program(steps, CountedTurn()).outputs
    assert bytes(outputs[4][0]) == one_by_one(device, chain(2))[1][0]  # type: ignore[arg-type]


def test_a_step_keeps_its_output_and_later_ones_read_it(device: CpuDevice) -> None:
    steps = chain(2)
    kept = device.allocate(ELEMENTS * 4)
    steps[0] = steps[0]._replace(targets={"grad_input": kept}, discarded=frozenset())
    outputs = device.run_program(steps, CountedTurn()).outputs
    assert outputs[0] == [kept]
    expected = one_by_one(device, chain(2))
    assert bytes(kept.read(0, kept.nbytes)) == expected[0][0]
    assert bytes(outputs[1][0]) == expected[1][0]  # type: ignore[arg-type]


def test_a_failure_names_its_step(device: CpuDevice) -> None:
    classes = TensorSpec(FLOAT, (2, 3))
    call = a_call(
        "aclnnCrossEntropyLossGrad", TensorSpec(FLOAT, ()), classes, TensorSpec(INT64, (2,))
    )
    labels = np.array([0, 7]).tobytes()
    given = {"grad_loss": bytes(4), "log_prob": bytes(24), "target": labels}
    with pytest.raises(ArgumentError) as caught:
        device.run_program([*chain(3), Step(call, given)], CountedTurn())
    assert caught.value.details["step"] == "3"


def test_a_caller_who_goes_ends_a_program_between_two_steps(device: CpuDevice) -> None:
    turn = CountedTurn(pauses=5)
    with pytest.raises(CancelledError) as caught:
        device.run_program(chain(100), turn)
    assert caught.value.details["step"] == "5"
    assert not turn.held


def test_a_result_is_freed_behind_its_last_use(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npucall.compute import evaluate

    alive: list[int] = []
    made: list[Any] = []
    run = evaluate.run

    def watched(*arguments: Any, **more: Any) -> list[Any]:
        gc.collect()
        alive.append(sum(each() is not None for each in made))
        outputs = run(*arguments, **more)
        array = np.frombuffer(outputs[0], np.uint8)
        made.append(weakref.ref(array.base.obj))  # type: ignore[union-attr]
        return outputs

    monkeypatch.setattr(evaluate, "run", watched)
    device.run_program(chain(6, elements=8192), CountedTurn())
    assert max(alive) <= 1


def test_program_bytes_count_what_is_there_at_a_time(device: CpuDevice) -> None:
    size = ELEMENTS * 4
    steps = chain(6)
    assert device.program_bytes(steps) == 2 * size  # what it reads, what it makes
    answered = [step._replace(discarded=frozenset()) for step in steps]
    assert device.program_bytes(answered) == 6 * size
    kept = steps[0]._replace(targets={"grad_input": device.allocate(size)}, discarded=frozenset())
    assert device.program_bytes([kept, *steps[1:]]) == 3 * size


def test_a_program_of_an_operator_that_ends_early_gives_zeros(device: CpuDevice) -> None:
    call = l1(0)
    (output,) = device.run_program([Step(call, storages_of(call))], CountedTurn()).outputs[0]
    assert bytes(output) == b""  # type: ignore[arg-type]


def test_handles_hold_host_memory(device: CpuDevice) -> None:
    assert device.memory_for_handles == 0


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_a_program_of_any_operator_has_the_bits_of_single_calls(
    device: CpuDevice, subject: Subject
) -> None:
    steps, _ = a_program(device, subject)
    outputs = device.run_program(steps, CountedTurn()).outputs
    assert differences(outputs, steps) == []
    for step in steps[:2]:
        alone = device.run(step.call, step.storages, CountedTurn(), step.targets).outputs  # type: ignore[arg-type]
        assert differences([alone], [step]) == []


def rolled(call: Prepared, storages: dict[str, bytes], by: int) -> dict[str, bytes]:
    """The same tensors, the elements of each in another order; single numbers changed too."""
    found = dict(storages)
    for name in storages.keys() - call.checked_inputs:
        array = np.roll(np.frombuffer(storages[name], call.inputs[name].dtype.numpy), by)
        changed = (array * (by + 1)).astype(array.dtype) if array.size == 1 else array
        found[name] = changed.tobytes()
    return found


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_calls_computed_as_one_have_the_bits_of_single_calls(
    device: CpuDevice, subject: Subject
) -> None:
    call, storages = call_of(subject, device)
    each = [rolled(call, storages, by) for by in range(5)]
    steps = [Step(call, each[by]) for by in (0, 1, 2)]
    steps += [Step(call, each[3], discarded=frozenset(call.outputs)), Step(call, each[4])]
    found = device.run_program(steps, CountedTurn()).outputs
    for by, outputs in enumerate(found):
        expected = device.run(call, each[by], CountedTurn()).outputs
        for output, single in zip(outputs, expected, strict=True):
            assert by == 3 if output is None else bytes(output) == bytes(single)  # type: ignore[arg-type]


def test_most_elementwise_operators_compute_small_calls_as_one(device: CpuDevice) -> None:
    calls = [call_of(subject, device)[0] for subject in SUBJECTS]
    assert sum(alike.most(call) > 1 for call in calls) > len(calls) // 3
    assert all(alike.most(call) * call.computation <= BLOCK for call in calls)


def test_a_turn_is_offered_between_groups_of_calls(device: CpuDevice) -> None:
    call = l1()
    steps = [Step(call, storages_of(call))] * (alike.most(call) + 1)
    turn = CountedTurn(pauses=1)
    with pytest.raises(CancelledError):
        device.run_program(steps, turn)
