"""Programs on the CANN device: values, memory, order, and what waits for what."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.server.devices.programs import a_program, differences, operators_of
from tests.server.devices.programs import chain as chain_of

from npucall.errors import ArgumentError, CancelledError
from npucall.places import StepOutput
from npucall_server.devices.base import Step
from npucall_server.devices.cann.program import pace_of

from .calls import SMALL_ASKS, WAYS, Case, declared, l1, numbers
from .faults import SYNCHRONISE
from .opened import FakeTurn, Open, Opened, release

PATIENCE = 20.0
OUT = "out"
"""The output of MseLossBackward."""


def mse(device: Any, count: int = 6) -> Case:
    """A call that makes something else of its first input each time."""
    self = np.linspace(1, 2, count, dtype=np.float32)
    target = self - np.linspace(0.4, 0.6, count, dtype=np.float32)
    tensors = {"grad_output": numbers(count), "self": self, "target": target}
    return declared(device, "aclnnMseLossBackward", reduction=2, **tensors)


def chain(case: Case, steps: int, **last: Any) -> list[Step]:
    """Each takes what the one before gave in place of its first input."""
    return chain_of(case.call, case.storages, steps, **last)


def leave() -> None:
    raise CancelledError("call: nobody waits")


def test_a_program_of_one_call_twice_gives_its_answers(any_way: Opened) -> None:
    wrong = []
    for ask in SMALL_ASKS:
        case = ask(any_way)
        if any_way.program([Step(case.call, case.storages)] * 2) != [case.answers] * 2:
            wrong.append(ask)
    assert wrong == []


@pytest.mark.parametrize("way", WAYS)
def test_a_chain_gives_what_single_calls_give(open_device: Open, way: str) -> None:
    device = open_device(**WAYS[way])
    steps = chain(mse(device), 7)
    assert differences(device.program(steps), steps) == []


def test_a_step_fills_a_handle_that_later_steps_read(device: Opened) -> None:
    case = mse(device)
    kept = device.device.allocate(len(case.answers[0]))
    steps = chain(case, 3)
    steps[0] = steps[0]._replace(discarded=frozenset(), targets={OUT: kept})
    assert differences(device.program(steps), steps) == []
    kept.free()


def test_nobody_waits_within_a_program_but_a_careful_device_behind_every_step(
    open_device: Open,
) -> None:
    for settings in {}, {"careful": True}:
        device = open_device(**settings)
        case = mse(device)
        assert device.serves(case)
        pace_of(case.call).nanoseconds = 1  # has been timed
        steps = chain(case, 10)
        outputs: list[Any] = []
        calls = device.functions(lambda d=device, s=steps, o=outputs: o.extend(d.program(s)))  # type: ignore[misc]
        waits = calls[SYNCHRONISE]
        assert waits >= 10 if settings else waits == 1
        assert differences(outputs, steps) == []
        device.close()


def test_what_one_reader_needs_no_more_the_next_step_writes(device: Opened) -> None:
    case = mse(device, 1000)
    few, many = (device.device.program_bytes(chain(case, count)) for count in (3, 100))
    assert many - few == (100 - 3) * (2 * 4096)  # what each step sends, and nothing else
    assert few == (3 + 2 + 2 + 1 + 2) * 4096  # sent, answered, and two between the steps


def test_what_has_two_readers_stays_for_the_second(device: Opened) -> None:
    case = mse(device, 1000)
    steps = []
    for source, kept in (None, 0), (0, 0), (1, 0), (2, 0), (0, 1), (3, 1):
        storages: dict[str, Any] = dict(case.storages)
        if source is not None:
            storages["grad_output"] = StepOutput(source, OUT)
        discarded = frozenset[str]() if kept else frozenset({OUT})
        steps.append(Step(case.call, storages, discarded=discarded))
    assert differences(device.program(steps), steps) == []


def test_a_long_program_lets_others_have_turns(device: Opened) -> None:
    case, other, served = mse(device), l1(device, 50), list[bool]()
    turn = FakeTurn(pause=lambda: served.append(device.serves(other)))
    pace_of(case.call).nanoseconds = 4e6  # three of them are 10 ms and more
    steps = chain(case, 3)
    assert differences(device.program(steps, turn), steps) == []
    assert served == []
    pace_of(case.call).nanoseconds = 11e6
    calls = device.functions(lambda: device.program(chain(case, 2), turn))
    assert served == [True]
    assert calls[SYNCHRONISE] == 3  # two parts, and the other call


@pytest.mark.parametrize("leaves", [False, True], ids=["goes on", "leaves"])
def test_a_program_goes_on_with_another_lane(open_device: Open, leaves: bool) -> None:
    """Or leaves its memory there, while the lane that it had runs another call."""
    device = open_device(lanes=2)
    case, served = mse(device), list[bool]()
    has_begun, may_end = threading.Event(), threading.Event()
    pace_of(case.call).nanoseconds = 11e6

    def hold() -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE)

    def occupy() -> None:
        if not other.ident:
            other.start()
            assert has_begun.wait(PATIENCE)
            if leaves:
                leave()

    other = threading.Thread(target=lambda: served.append(device.runs_around(l1(device, 50), hold)))
    steps, turn = chain(case, 3), FakeTurn(pause=occupy)
    try:
        if leaves:
            with pytest.raises(CancelledError):
                device.program(steps, turn)
        else:
            assert differences(device.program(steps, turn), steps) == []
        assert device.serves(case)
    finally:
        may_end.set()
        other.join()
    assert served == [True]
    assert [device.serves(case) for _ in range(3)] == [True] * 3


def test_a_caller_who_goes_while_others_have_their_turn_leaves_nothing(device: Opened) -> None:
    case = mse(device)
    pace_of(case.call).nanoseconds = 11e6
    with pytest.raises(CancelledError):
        device.program(chain(case, 3), FakeTurn(pause=leave))
    assert device.serves(case)


def test_a_caller_who_goes_between_two_launches_ends_the_program(device: Opened) -> None:
    case, checks = mse(device), iter([None] * 2)
    turn = FakeTurn(lambda: leave() if next(checks, True) else None)
    with pytest.raises(CancelledError) as caught:
        device.program(chain(case, 5), turn)
    assert caught.value.details["step"] == "2"
    assert device.serves(case)


def test_a_wrong_label_of_a_step_is_found_before_any_runs(device: Opened) -> None:
    tensors = {"grad_loss": np.array(1, np.float32), "log_prob": numbers(3, 4, start=-20)}
    labels = np.array([2, 0, 1])
    case = declared(device, "aclnnCrossEntropyLossGrad", target=labels, **tensors)
    wrong = {**case.storages, "target": np.array([2, 0, 7]).tobytes()}
    launches = device.simulator.counters()["launches"]
    with pytest.raises(ArgumentError) as caught:
        device.program([*chain(l1(device), 3), Step(case.call, wrong)])
    assert caught.value.details["step"] == "3"
    assert device.simulator.counters()["launches"] == launches


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.more)])
def test_a_program_of_any_operator_has_the_bits_of_single_calls(device: Opened, every: int) -> None:
    wrong: list[object] = []
    for operator in operators_of(device.device)[::every]:
        if why := device.device.unavailable_because(operator):
            assert "variant" in why
            continue
        steps, handles = a_program(device.device, operator)
        wrong += [(operator, line) for line in differences(device.program(steps), steps)]
        for step in steps[:2]:
            alone = device.device.run([step], FakeTurn()).outputs[0]
            wrong += [(operator, "alone", line) for line in differences([alone], [step])]
        for memory in handles:
            memory.free()
    assert wrong == []


def test_a_handle_that_several_lanes_read_is_right_on_each(open_device: Open) -> None:
    device = open_device(lanes=3)
    case = mse(device, 5000)
    storages = device.in_handles(case)

    def served(_: int) -> list[bool]:
        return [device.serves(case._replace(storages=storages)) for _ in range(5)]

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(served, range(3))) == [[True] * 5] * 3
    release(storages)
