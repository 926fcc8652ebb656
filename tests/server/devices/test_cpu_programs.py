"""The CPU device: what handles hold, calls that read and fill them, and programs."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from npucall.compute import batching, evaluate
from npucall.declare.call import Call
from npucall.declare.cuts import BLOCK
from npucall.declare.domain import Elementwise
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, INT64
from npucall.errors import ArgumentError, CancelledError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import TensorSpec
from npucall_server.devices.base import ResidentPart, Step
from npucall_server.devices.cpu import CpuDevice

from .programs import a_program, call_of, differences, operators_of
from .programs import chain as chain_of

ELEMENTS = 256
LARGE = 2_000_000
"""Elements of a call of several turns."""
OUT = "grad_input"
"""The output of L1LossBackward."""


def a_call(name: str, *specs: TensorSpec, **attributes: Any) -> Prepared:
    """A call of an operator on dense tensors, those of its first inputs."""
    operator = CATALOGUE.find(name)
    given = {p.name: spec for p, spec in zip(operator.inputs, specs, strict=False)}
    stored = (*given, *(name for name in attributes if name == OUT))
    call = Call(operator, {**given, **attributes}, stored)
    return prepare(call, product_of(DEFAULT_SOC), CATALOGUE)


def l1(elements: int = ELEMENTS, **more: Any) -> Prepared:
    specs = [TensorSpec(FLOAT, (elements,))] * 3
    return a_call("aclnnL1LossBackward", *specs, reduction=2, **more)


def storages_of(call: Prepared) -> dict[str, Any]:
    """Random numbers for each input, no two alike."""
    found = {}
    for seed, name in enumerate(call.inputs):
        numbers = np.random.default_rng(seed).standard_normal(call.inputs[name].elements)
        found[name] = numbers.astype(np.float32).tobytes()
    return found


class FakeTurn:
    """A turn that is there at once, until it has been asked so often; counts how often."""

    owner = "somebody"

    def __init__(self, pauses: int = 1 << 30) -> None:
        self.taken = self.held = 0
        self._pauses = pauses

    def __call__(self) -> "FakeTurn":
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


def run(device: CpuDevice, call: Prepared, storages: dict[str, Any], **targets: Any) -> list[Any]:
    return device.run([Step(call, storages, targets)], FakeTurn())[0][0]


def run_program(device: CpuDevice, steps: list[Step]) -> list[list[Any]]:
    return device.run(steps, FakeTurn())[0]


def filled(device: CpuDevice, data: bytes) -> Any:
    memory = device.allocate(len(data))
    memory.write(0, data)
    return memory


def bytes_of(memory: Any) -> bytes:
    return bytes(memory.read(0, memory.nbytes))


def test_a_call_reads_a_part_of_a_handle_and_computes_into_another(device: CpuDevice) -> None:
    call = l1()
    storages = storages_of(call)
    (expected,) = run(device, call, storages)
    kept = device.allocate(ELEMENTS * 4)
    for offset in (0, 1, 3, 64):
        source = filled(device, bytes(offset) + storages["self"] + bytes(7))
        part = ResidentPart(source, offset, len(storages["self"]))
        kept.write(0, bytes(kept.nbytes))
        (output,) = run(device, call, {**storages, "self": part}, grad_input=kept)
        assert output is kept
        assert bytes_of(kept) == bytes(expected)
        assert bytes_of(source) == bytes(offset) + storages["self"] + bytes(7)


def test_an_output_that_is_read_from_one_handle_goes_to_another(device: CpuDevice) -> None:
    """Its gaps come as they were sent."""
    call = l1(4, grad_input=TensorSpec(FLOAT, (4,), strides=(2,), storage_shape=(8,)))
    storages = storages_of(call)
    before = filled(device, np.arange(8, dtype=np.float32).tobytes())
    kept = device.allocate(32)
    run(device, call, {**storages, OUT: ResidentPart(before, 0, 32)}, grad_input=kept)
    result, sent = (np.frombuffer(bytes_of(memory), np.float32) for memory in (kept, before))
    assert sent.tolist() == list(range(8))
    assert result[1::2].tolist() == [1, 3, 5, 7]
    names = ("grad_output", "self", "target")
    grad, self, target = (np.frombuffer(storages[n], np.float32) for n in names)
    assert result[::2].tolist() == (grad * np.sign(self - target)).tolist()


def test_what_a_handle_holds_lives_as_long_as_somebody_reads_it(device: CpuDevice) -> None:
    memory = filled(device, b"12345678" * 4096)
    seen = memory.read(8, 8)
    memory.free()
    assert bytes(seen) == b"12345678"
    assert memory.nbytes == 0
    assert device.memory_for_handles == 0  # they hold host memory


def chain(steps: int, *, elements: int = ELEMENTS) -> list[Step]:
    """Each step takes what the one before gave; all but the last are discarded."""
    call = l1(elements)
    return chain_of(call, storages_of(call), steps)


@pytest.mark.parametrize("elements", [ELEMENTS, LARGE])
def test_a_chain_gives_the_bits_of_single_calls(device: CpuDevice, elements: int) -> None:
    steps = chain(4, elements=elements)
    assert differences(run_program(device, steps), steps) == []


def test_small_steps_share_a_turn_and_large_ones_take_their_own(device: CpuDevice) -> None:
    turn = FakeTurn()
    device.run(chain(100), turn)
    assert turn.taken == 1
    device.run(chain(2, elements=LARGE), turn)
    assert turn.taken > 3


def test_what_has_two_readers_or_is_kept_stays_for_later_steps(device: CpuDevice) -> None:
    steps = [*chain(4), chain(2)[1]]
    steps[3] = steps[3]._replace(discarded=frozenset())
    assert differences(run_program(device, steps), steps) == []
    kept = device.allocate(ELEMENTS * 4)
    steps[0] = steps[0]._replace(targets={OUT: kept}, discarded=frozenset())
    assert differences(run_program(device, steps), steps) == []


def test_wrong_values_are_found_before_any_step_runs_and_name_theirs(device: CpuDevice) -> None:
    specs = TensorSpec(FLOAT, ()), TensorSpec(FLOAT, (2, 3)), TensorSpec(INT64, (2,))
    call = a_call("aclnnCrossEntropyLossGrad", *specs)
    labels = np.array([0, 7]).tobytes()
    given = {"grad_loss": bytes(4), "log_prob": bytes(24), "target": labels}
    kept = filled(device, bytes(ELEMENTS * 4))
    steps = [*chain(3), Step(call, given)]
    steps[0] = steps[0]._replace(targets={OUT: kept}, discarded=frozenset())
    for labels_are in labels, ResidentPart(filled(device, labels), 0, len(labels)):
        steps[3] = Step(call, {**given, "target": labels_are})
        with pytest.raises(ArgumentError) as caught:
            run_program(device, steps)
        assert caught.value.details["step"] == "3"
        assert bytes_of(kept) == bytes(ELEMENTS * 4)  # step 0 has written nothing


def test_a_caller_who_goes_ends_a_program_between_two_steps(device: CpuDevice) -> None:
    turn = FakeTurn(pauses=5)
    with pytest.raises(CancelledError) as caught:
        device.run(chain(100), turn)
    assert caught.value.details["step"] == "5"
    assert not turn.held


def test_a_caller_who_goes_ends_it_between_groups_of_calls_too(device: CpuDevice) -> None:
    call = l1()
    steps = [Step(call, storages_of(call))] * (batching.most(call) + 1)
    with pytest.raises(CancelledError):
        device.run(steps, FakeTurn(pauses=1))


def test_a_result_is_freed_behind_its_last_use(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []
    made: list[Any] = []
    evaluated = evaluate.run

    def watched(*arguments: Any, **more: Any) -> list[Any]:
        gc.collect()
        alive.append(sum(each() is not None for each in made))
        outputs = evaluated(*arguments, **more)
        array = np.frombuffer(outputs[0], np.uint8)
        made.append(weakref.ref(array.base.obj))  # type: ignore[union-attr]
        return outputs

    monkeypatch.setattr(evaluate, "run", watched)
    run_program(device, chain(6, elements=8192))
    assert max(alive) <= 1


def test_program_bytes_count_what_is_there_at_a_time(device: CpuDevice) -> None:
    size = ELEMENTS * 4
    steps = chain(6)
    assert device.program_bytes(steps) == 2 * size  # what it reads, what it makes
    answered = [step._replace(discarded=frozenset()) for step in steps]
    assert device.program_bytes(answered) == 6 * size
    kept = steps[0]._replace(targets={OUT: device.allocate(size)}, discarded=frozenset())
    assert device.program_bytes([kept, *steps[1:]]) == 3 * size


def test_a_program_of_an_operator_that_ends_early_gives_zeros(device: CpuDevice) -> None:
    call = l1(0)
    (output,) = run_program(device, [Step(call, storages_of(call))])[0]
    assert bytes(output) == b""


def test_a_program_of_any_operator_has_the_bits_of_single_calls(device: CpuDevice) -> None:
    wrong: list[object] = []
    for operator in operators_of(device):
        steps, _ = a_program(device, operator)
        wrong += [(operator, line) for line in differences(run_program(device, steps), steps)]
        for step in steps[:2]:
            alone = run(device, step.call, dict(step.storages), **step.targets)
            wrong += [(operator, "alone", line) for line in differences([alone], [step])]
    assert wrong == []


def rolled(call: Prepared, storages: dict[str, bytes], by: int) -> dict[str, bytes]:
    """The same tensors, the elements of each in another order; single numbers changed too."""
    found, specs = dict(storages), {**call.inputs, **call.outputs}
    for name in storages.keys() - call.checked_inputs:
        array = np.roll(np.frombuffer(storages[name], specs[name].dtype.numpy), by)
        changed = (array * (by + 1)).astype(array.dtype) if array.size == 1 else array
        found[name] = changed.tobytes()
    return found


def test_calls_computed_as_one_have_the_bits_of_single_calls(device: CpuDevice) -> None:
    wrong: list[object] = []
    for operator in operators_of(device):
        call, storages = call_of(operator, device)
        each = [rolled(call, storages, by) for by in range(5)]
        steps = [Step(call, own) for own in each]
        steps[3] = steps[3]._replace(discarded=frozenset(call.outputs))
        wrong += [(operator, line) for line in differences(run_program(device, steps), steps)]
    assert wrong == []


def test_most_elementwise_operators_compute_small_calls_as_one(device: CpuDevice) -> None:
    every = (each for each in operators_of(device) if isinstance(each.over, Elementwise))
    calls = [call_of(operator, device)[0] for operator in every]
    assert sum(batching.most(call) > 1 for call in calls) > len(calls) // 2
    assert all(batching.most(call) * call.computation <= BLOCK for call in calls)
