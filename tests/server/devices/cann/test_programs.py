"""Programs and handles on the CANN device: values, memory, order, and what waits for what."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.operators.collected import SUBJECTS
from tests.server.devices.programs import a_program, differences

from npucall.compute.evaluate import run as evaluate
from npucall.errors import ArgumentError, CancelledError
from npucall.places import StepOutput
from npucall_server.devices.base import ResidentPart, Step
from npucall_server.devices.cann.program import pace_of

from .asked import declared
from .opened import FreeTurn
from .situations import FOUR_PIECES, SITUATIONS, l1, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.operators.subject import Subject

    from npucall_server.devices.cann.resident import DeviceResident

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

PATIENCE = 20.0
OUT = "out"
"""The output of MseLossBackward."""
SYNCHRONISE = "aclrtSynchronizeStreamWithTimeout"
ASKS = list(dict.fromkeys(situation.then for situation in SITUATIONS.values()))
WAYS = {"whole": {}, "in pieces": {"staging_limit": FOUR_PIECES}, "waiting": {"staging_limit": 0}}


def filled(device: Opened, data: bytes, before: int = 0) -> DeviceResident:
    memory = device.device.allocate(before + len(data))
    memory.write(0, bytes(before) + data)
    return memory


def bytes_of(memory: DeviceResident) -> bytes:
    return bytes(memory.read(0, memory.nbytes))


def in_handles(device: Opened, asked: Asked, offset: int = 0) -> dict[str, Any]:
    """Its storages, each in a handle of its own."""
    return {
        name: ResidentPart(filled(device, data, offset), offset, len(data))
        for name, data in asked.storages.items()
    }


def release(storages: Mapping[str, Any]) -> None:
    for part in storages.values():
        part.memory.free()


def mse(device: Opened, count: int = 6) -> Asked:
    """A call that makes something else of its first input each time."""
    self = np.linspace(1, 2, count, dtype=np.float32)
    target = self - np.linspace(0.4, 0.6, count, dtype=np.float32)
    tensors = {"grad_output": numbers(count), "self": self, "target": target}
    return declared(device.device, "aclnnMseLossBackward", reduction=2, **tensors)


def chain(asked: Asked, steps: int, **last: Any) -> list[Step]:
    """Each takes what the one before gave in place of its first input."""
    (output,) = asked.call.outputs
    made = []
    for number in range(steps):
        storages: dict[str, Any] = dict(asked.storages)
        if number:
            storages["grad_output"] = StepOutput(number - 1, output)
        made.append(Step(asked.call, storages, discarded=frozenset({output})))
    made[-1] = made[-1]._replace(**{"discarded": frozenset(), **last})
    return made


def answer_of_chain(asked: Asked, steps: int) -> bytes:
    storages = dict(asked.storages)
    for _ in range(steps):
        (storages["grad_output"],) = map(bytes, evaluate(asked.call, storages))
    return storages["grad_output"]


@pytest.mark.parametrize("offset", [0, 4, 32, 100])
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_a_call_reads_handles_as_if_they_had_been_sent(
    device: Opened, ask: Any, offset: int
) -> None:
    asked = ask(device.device)
    storages = in_handles(device, asked, offset)
    outputs = device.device.run(asked.call, storages, FreeTurn()).outputs
    assert [bytes(output) for output in outputs] == asked.answers
    for name, part in storages.items():
        assert bytes(part.memory.read(part.offset, part.length)) == asked.storages[name]
    release(storages)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_kept_outputs_are_written_into_handles(open_device: Open, ask: Any, way: str) -> None:
    device = open_device(**WAYS[way])
    asked = ask(device.device)
    targets = {
        name: device.device.allocate(spec.storage_bytes)
        for name, spec in asked.call.outputs.items()
    }
    ran = device.device.run(asked.call, asked.storages, FreeTurn(), targets)
    assert ran.outputs == list(targets.values())
    assert [bytes_of(target) for target in targets.values()] == asked.answers
    for target in targets.values():
        target.free()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_a_program_of_one_call_twice_gives_its_answers(
    open_device: Open, ask: Any, way: str
) -> None:
    device = open_device(**WAYS[way])
    asked = ask(device.device)
    ran = device.device.run_program([Step(asked.call, asked.storages)] * 2, FreeTurn())
    assert [[bytes(output) for output in step] for step in ran.outputs] == [asked.answers] * 2  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_a_chain_gives_what_single_calls_give(open_device: Open, way: str) -> None:
    device = open_device(**WAYS[way])
    asked = mse(device)
    outputs = device.device.run_program(chain(asked, 7), FreeTurn()).outputs
    assert outputs[:-1] == [[None]] * 6
    assert [bytes(output) for output in outputs[-1]] == [answer_of_chain(asked, 7)]  # type: ignore[arg-type]


def test_a_step_fills_a_handle_that_later_steps_read(device: Opened) -> None:
    asked = mse(device)
    kept = device.device.allocate(len(asked.answers[0]))
    steps = chain(asked, 3)
    steps[0] = steps[0]._replace(discarded=frozenset(), targets={OUT: kept})
    outputs = device.device.run_program(steps, FreeTurn()).outputs
    assert outputs[0] == [kept]
    assert bytes_of(kept) == asked.answers[0]
    assert bytes(outputs[2][0]) == answer_of_chain(asked, 3)  # type: ignore[arg-type]
    kept.free()


def test_nobody_waits_within_a_program(device: Opened) -> None:
    asked = mse(device)
    assert device.serves(asked)
    pace_of(asked.call).nanoseconds = 1  # has been timed
    before = device.simulator.call_count(SYNCHRONISE)
    device.device.run_program(chain(asked, 100), FreeTurn())
    assert device.simulator.call_count(SYNCHRONISE) == before + 1


def test_a_careful_device_waits_behind_every_step_and_answers_the_same(open_device: Open) -> None:
    careful, device = open_device(careful=True), open_device()
    answers = []
    for opened in careful, device:
        asked = mse(opened)
        assert opened.serves(asked)
        pace_of(asked.call).nanoseconds = 1  # has been timed
        before = opened.simulator.call_count(SYNCHRONISE)
        ran = opened.device.run_program(chain(asked, 10), FreeTurn())
        answers.append([bytes(o) for outputs in ran.outputs for o in outputs if o is not None])
        waits = opened.simulator.call_count(SYNCHRONISE) - before
        assert (waits >= 10) == (opened is careful)
    assert answers[0] == answers[1]


def test_what_one_reader_needs_no_more_the_next_step_writes(device: Opened) -> None:
    asked = mse(device, 1000)
    few, many = (device.device.program_bytes(chain(asked, count)) for count in (3, 100))
    assert many - few == (100 - 3) * (2 * 4096)  # what each step sends, and nothing else
    assert few == (3 + 2 + 2 + 1 + 2) * 4096  # sent, answered, and two between the steps


def test_what_has_two_readers_stays_for_the_second(device: Opened) -> None:
    asked = mse(device, 1000)
    out = frozenset({OUT})

    def step(source: int | None, *, keep: bool = False) -> Step:
        storages: dict[str, Any] = dict(asked.storages)
        if source is not None:
            storages["grad_output"] = StepOutput(source, OUT)
        return Step(asked.call, storages, discarded=frozenset() if keep else out)

    steps = [step(None), step(0), step(1), step(2), step(0, keep=True), step(3, keep=True)]
    assert differences(device.device.run_program(steps, FreeTurn()).outputs, steps) == []


def test_a_long_program_lets_others_have_turns(open_device: Open) -> None:
    device = open_device(lanes=1)
    asked, other = mse(device), l1(device.device, 50)
    served: list[bool] = []

    class Shared(FreeTurn):
        def pause(self) -> None:
            served.append(device.serves(other))

    pace_of(asked.call).nanoseconds = 4e6  # three of them are 10 ms and more
    turn = Shared()
    outputs = device.device.run_program(chain(asked, 3), turn).outputs
    assert bytes(outputs[-1][0]) == answer_of_chain(asked, 3)  # type: ignore[arg-type]
    assert served == []
    pace_of(asked.call).nanoseconds = 11e6
    before = device.simulator.call_count(SYNCHRONISE)
    outputs = device.device.run_program(chain(asked, 2), turn).outputs
    assert bytes(outputs[-1][0]) == answer_of_chain(asked, 2)  # type: ignore[arg-type]
    assert served == [True]
    assert device.simulator.call_count(SYNCHRONISE) == before + 3  # two parts, and the other call


class Occupied(FreeTurn):
    """Between the first part of a program and the second another call takes its lane for long."""

    def __init__(self, device: Opened, leaves: bool) -> None:
        super().__init__()
        self._device, self._leaves = device, leaves
        self._has_begun, self._may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._occupy)
        self.served: list[bool] = []

    def pause(self) -> None:
        if not self._thread.ident:
            self._thread.start()
            assert self._has_begun.wait(PATIENCE)
            if self._leaves:
                raise CancelledError("call: nobody waits")

    def end(self) -> None:
        self._may_end.set()
        self._thread.join()

    def _occupy(self) -> None:
        other = l1(self._device.device, 50)
        self.served.append(self._device.runs_around(other, self._hold))

    def _hold(self) -> None:
        self._has_begun.set()
        assert self._may_end.wait(PATIENCE)


@pytest.mark.parametrize("leaves", [False, True], ids=["goes on", "leaves"])
def test_a_program_goes_on_with_another_lane(open_device: Open, leaves: bool) -> None:
    """Or leaves its memory there, while the lane that it had runs another call."""
    device = open_device(lanes=2)
    asked = mse(device)
    pace_of(asked.call).nanoseconds = 11e6
    steps, turn = chain(asked, 3), Occupied(device, leaves)
    try:
        if leaves:
            with pytest.raises(CancelledError):
                device.device.run_program(steps, turn)
        else:
            assert differences(device.device.run_program(steps, turn).outputs, steps) == []
        assert device.serves(asked)
    finally:
        turn.end()
    assert turn.served == [True]
    assert [device.serves(asked) for _ in range(3)] == [True] * 3


def test_a_caller_who_goes_while_others_have_their_turn_leaves_nothing(device: Opened) -> None:
    asked = mse(device)
    pace_of(asked.call).nanoseconds = 11e6

    class Leaving(FreeTurn):
        def pause(self) -> None:
            raise CancelledError("call: nobody waits")

    with pytest.raises(CancelledError):
        device.device.run_program(chain(asked, 3), Leaving())
    assert device.serves(asked)


def test_a_caller_who_goes_between_two_launches_ends_the_program(device: Opened) -> None:
    asked = mse(device)
    checks = iter([None] * 2)

    def check() -> None:
        if next(checks, True):
            raise CancelledError("call: nobody waits")

    with pytest.raises(CancelledError) as caught:
        device.device.run_program(chain(asked, 5), FreeTurn(check))
    assert caught.value.details["step"] == "2"
    assert device.serves(asked)


def test_a_handle_that_is_given_back_while_a_call_reads_it_stays_until_the_end(
    device: Opened,
) -> None:
    asked = mse(device)
    storages = in_handles(device, asked)
    given_back: list[int] = []

    def check() -> None:
        if not given_back:
            release(storages)
            given_back.append(device.simulator.live_objects()["aclrtMalloc"])

    outputs = device.device.run(asked.call, storages, FreeTurn(check)).outputs
    assert [bytes(output) for output in outputs] == asked.answers
    workspace = 1  # allocated behind the check
    assert device.simulator.live_objects()["aclrtMalloc"] == given_back[0] - 3 + workspace


def test_a_handle_that_has_been_given_back_is_refused(device: Opened) -> None:
    asked = mse(device)
    storages = in_handles(device, asked)
    release(storages)
    with pytest.raises(ValueError, match="given back"):
        device.device.run(asked.call, storages, FreeTurn())
    assert device.serves(asked)


def test_handles_are_read_by_several_lanes_at_a_time(open_device: Open) -> None:
    device = open_device(lanes=3)
    asked = mse(device, 5000)
    storages = in_handles(device, asked)
    wrong: list[object] = []

    def run() -> None:
        for _ in range(5):
            outputs = device.device.run(asked.call, storages, FreeTurn()).outputs
            wrong.extend(o for o, a in zip(outputs, asked.answers, strict=True) if bytes(o) != a)  # type: ignore[arg-type]

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    release(storages)


def cross_entropy(device: Opened, *labels: int, **more: Any) -> Asked:
    tensors = {
        "grad_loss": np.array(1, np.float32),
        "log_prob": numbers(len(labels), 4, start=-20),
        "target": np.array(labels, np.int64),
    }
    return declared(device.device, "aclnnCrossEntropyLossGrad", **tensors, **more)


def with_labels(device: Opened, asked: Asked, labels: bytes, *, told: bool) -> dict[str, Any]:
    dtype = asked.call.inputs["target"].dtype if told else None
    memory = device.device.allocate(len(labels), dtype)
    half = len(labels) // 2 + 3  # in the middle of a label
    memory.write(0, labels[:half])
    memory.write(half, labels[half:])
    return {**asked.storages, "target": ResidentPart(memory, 0, len(labels))}


@pytest.mark.parametrize("told", [True, False], ids=["told", "read back"])
def test_labels_in_a_handle_are_checked_before_a_kernel_runs(device: Opened, told: bool) -> None:
    asked = cross_entropy(device, 2, 0, 1)
    wrong = with_labels(device, asked, np.array([2, 0, 7]).tobytes(), told=told)
    launches = device.simulator.counters()["launches"]
    with pytest.raises(ArgumentError, match="labels from 0 to 3, found 7"):
        device.device.run(asked.call, wrong, FreeTurn())
    assert device.simulator.counters()["launches"] == launches
    wrong["target"].memory.free()
    right = with_labels(device, asked, asked.storages["target"], told=told)
    for reads in [0, 0] if told else [1, 0]:
        before = device.simulator.counters()["calls"].get("aclrtMemcpy", 0)
        outputs = device.device.run(asked.call, right, FreeTurn()).outputs
        assert [bytes(output) for output in outputs] == asked.answers
        assert device.simulator.counters()["calls"].get("aclrtMemcpy", 0) - before == reads
    right["target"].memory.free()


def test_labels_that_do_not_count_are_looked_at_once(device: Opened) -> None:
    asked = cross_entropy(device, 2, -100, 1)
    storages = with_labels(device, asked, asked.storages["target"], told=True)
    for reads in (1, 0):
        before = device.simulator.counters()["calls"].get("aclrtMemcpy", 0)
        outputs = device.device.run(asked.call, storages, FreeTurn()).outputs
        assert [bytes(output) for output in outputs] == asked.answers
        assert device.simulator.counters()["calls"].get("aclrtMemcpy", 0) - before == reads
    storages["target"].memory.free()


def test_a_wrong_label_of_a_step_is_found_before_any_runs(device: Opened) -> None:
    asked, other = cross_entropy(device, 2, 0, 1), l1(device.device)
    wrong = {**asked.storages, "target": np.array([2, 0, 7]).tobytes()}
    launches = device.simulator.counters()["launches"]
    with pytest.raises(ArgumentError) as caught:
        device.device.run_program([*chain(other, 3), Step(asked.call, wrong)], FreeTurn())
    assert caught.value.details["step"] == "3"
    assert device.simulator.counters()["launches"] == launches


def test_half_of_the_free_memory_is_for_handles(device: Opened) -> None:
    assert device.device.memory_for_handles == (1 << 30) // 2


def test_a_handle_of_nothing_holds_no_memory(device: Opened) -> None:
    memory = device.device.allocate(0)
    memory.write(0, b"")
    assert bytes(memory.read(0, 0)) == b""
    memory.free()


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_a_program_of_any_operator_has_the_bits_of_single_calls(
    device: Opened, subject: Subject
) -> None:
    if why := device.device.unavailable_because(subject.operator):
        assert subject.operator.variant in why or "variant" in why
        return
    steps, handles = a_program(device.device, subject)
    outputs = device.device.run_program(steps, FreeTurn()).outputs
    assert differences(outputs, steps) == []
    for step in steps[:2]:
        alone = device.device.run(step.call, step.storages, FreeTurn(), step.targets).outputs  # type: ignore[arg-type]
        assert differences([alone], [step]) == []
    for memory in handles:
        memory.free()
