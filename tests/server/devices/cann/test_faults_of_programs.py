"""Every C function that a program with handles uses fails: in every situation, in every way."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.more import only
from tests.server.devices.programs import differences

from npucall.errors import DeviceError, NpucallError, OutOfMemoryError
from npucall_server.devices.base import BrokenDeviceError, ResidentPart, Step
from npucall_server.devices.cann.program import pace_of
from npucall_server.devices.cann.status_table import Fate

from .faults import failure
from .opened import FreeTurn
from .situations import SITUATIONS, l1
from .sweep import Sweep
from .test_programs import PATIENCE, SYNCHRONISE, chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

OVERFLOW = 207016
BROKEN = 507015
OFFSETS = 64, 4
LAUNCH = "aclnnL1LossBackward"


def serves_program(opened: Opened, asked: Asked) -> bool:
    """Whether its call is right three times: sent, from handles, from handles into handles.

    Between the second and the third others have their turn.
    """
    device, handles = opened.device, []
    pace_of(asked.call).nanoseconds = 6e6

    def filled(data: bytes, offset: int) -> ResidentPart:
        handles.append(device.allocate(offset + len(data)))
        handles[-1].write(0, bytes(offset) + data)
        return ResidentPart(handles[-1], offset, len(data))

    try:
        parts: list[dict[str, Any]] = [
            {name: filled(data, offset) for name, data in asked.storages.items()}
            for offset in OFFSETS
        ]
        targets = {n: device.allocate(s.storage_bytes) for n, s in asked.call.outputs.items()}
        handles.extend(targets.values())
        steps = [
            Step(asked.call, asked.storages),
            Step(asked.call, parts[0]),
            Step(asked.call, parts[1], targets),
        ]
        outputs = device.run_program(steps, FreeTurn()).outputs
        found = [[bytes(output) for output in step] for step in outputs[:2]]  # type: ignore[arg-type]
        kept = [bytes(target.read(0, target.nbytes)) for target in targets.values()]
        return [*found, kept] == [asked.answers] * 3
    finally:
        for memory in handles:
            memory.free()


GIVES_BACK = ("aclrtFree",)
"""What fails there is told to nobody; ``test_memory_that_cannot_be_given_back`` has it."""


@pytest.fixture(params=only(*SITUATIONS))
def sweep(request: pytest.FixtureRequest, open_device: Open) -> Sweep:
    return Sweep(open_device, SITUATIONS[request.param], serves_program)


def faults(sweep: Sweep, fate: Fate, *occurrences: int) -> list[Any]:
    return [f for f in sweep.faults(fate, *occurrences) if not f.function.startswith(GIVES_BACK)]


@pytest.mark.parametrize("fate", only(Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.CALL), ids=str)
def test_a_failure_is_named_and_the_next_program_is_right(sweep: Sweep, fate: Fate) -> None:
    found = faults(sweep, fate, 1, 2)
    if fate is Fate.CALL:  # then the program is run again
        found = [fault for fault in found if fault.function != SYNCHRONISE]
    assert sweep.misfits(found) == []


def test_lack_of_memory_is_mended_once(sweep: Sweep) -> None:
    assert sweep.misfits(faults(sweep, Fate.MEMORY, 1, 2)) == []


def test_a_broken_device_is_lost_once(sweep: Sweep) -> None:
    assert sweep.misfits(faults(sweep, Fate.BROKEN, 1, 2)) == []


@pytest.mark.parametrize("launch", [1, 3, 5])
def test_a_kernel_that_fails_once_is_run_again(device: Opened, launch: int) -> None:
    """Nothing shows before the synchronise, and then nobody knows which step it was."""
    asked = l1(device.device)
    steps = chain(asked, 5)
    device.simulator.fail(LAUNCH, launch, status=OVERFLOW, what="at_sync")
    assert differences(device.device.run_program(steps, FreeTurn()).outputs, steps) == []


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_kernel_that_fails_again_names_its_step(device: Opened, step: int) -> None:
    asked = l1(device.device)
    for nth in (step + 1, 5 + step + 1):
        device.simulator.fail(LAUNCH, nth, status=OVERFLOW, what="at_sync")
    error = failure(lambda: device.device.run_program(chain(asked, 5), FreeTurn()))
    assert isinstance(error, DeviceError)
    assert error.details["step"] == str(step)
    assert device.serves(asked)


@pytest.mark.parametrize("step", [0, 3])
def test_a_launch_that_fails_names_its_step(device: Opened, step: int) -> None:
    asked = l1(device.device)
    device.simulator.fail(LAUNCH, step + 1, status=561003)
    error = failure(lambda: device.device.run_program(chain(asked, 5), FreeTurn()))
    assert isinstance(error, NpucallError)
    assert error.details["step"] == str(step)
    assert device.serves(asked)


def test_a_single_call_with_handles_names_no_step(device: Opened) -> None:
    asked = l1(device.device)
    target = device.device.allocate(len(asked.answers[0]))
    targets = {"grad_input": target}
    for what in ("return", "at_sync"):
        device.simulator.fail(LAUNCH, status=OVERFLOW, what=what)
        error = failure(lambda: device.device.run(asked.call, asked.storages, FreeTurn(), targets))
        assert isinstance(error, DeviceError)
        assert "step" not in error.details
    target.free()


@pytest.mark.parametrize("launch", [1, 3])
def test_a_device_that_breaks_in_a_program_is_lost_and_frees_nothing(
    device: Opened, launch: int
) -> None:
    asked = l1(device.device)
    kept = device.device.allocate(len(asked.answers[0]))
    steps = chain(asked, 4, targets={"grad_input": kept})
    device.simulator.fail(LAUNCH, launch, status=BROKEN, what="at_sync")
    error = failure(lambda: device.device.run_program(steps, FreeTurn()))
    assert isinstance(error, BrokenDeviceError)
    assert len(device.lost) == 1
    live = device.simulator.live_objects()["aclrtMalloc"]
    kept.free()
    assert device.simulator.live_objects()["aclrtMalloc"] == live
    violations = device.simulator.violations()
    device.abandon()
    assert violations == []


def test_a_stream_that_cannot_be_waited_for_keeps_handles(device: Opened) -> None:
    """Its work may still write them."""
    asked = l1(device.device)
    kept = device.device.allocate(len(asked.answers[0]))
    for _ in range(9):
        device.simulator.fail("aclrtSynchronizeStreamWithTimeout", status=OVERFLOW)
    work = lambda: device.device.run_program(  # noqa: E731
        chain(asked, 2, targets={"grad_input": kept}), FreeTurn(kept.free)
    )
    assert isinstance(failure(work), DeviceError)
    lost, violations = device.lost, device.simulator.violations()
    device.abandon()
    assert (len(lost), violations) == (1, [])


def test_memory_that_cannot_be_given_back_is_nobodys_error(device: Opened) -> None:
    memory = device.device.allocate(100)
    device.simulator.fail("aclrtFree", status=107000)
    memory.free()
    assert device.lost == []
    memory = device.device.allocate(100)
    device.simulator.fail("aclrtFree", status=BROKEN)
    memory.free()
    assert len(device.lost) == 1
    device.abandon()


def test_a_copy_for_a_handle_that_hangs_ends_the_device(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    memory = device.device.allocate(100)
    device.simulator.fail("aclrtMemcpy", status=BROKEN, what="hang")
    is_lost = threading.Event()
    device.device.watch(lambda error: (device.lost.append(error), is_lost.set()))
    work = partial(failure, lambda: memory.write(0, bytes(100)))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert is_lost.wait(PATIENCE)
    assert device.lost[0].details["setting"] == "device_timeout"
    device.simulator.clear_faults()
    thread.join()
    device.abandon()


def test_lack_of_memory_for_a_handle_is_told_when_lanes_have_given_theirs(
    device: Opened,
) -> None:
    asked = l1(device.device, 500_000)
    assert device.serves(asked)
    device.simulator.set_memory(8 << 20)
    memory = device.device.allocate(6 << 20)  # in place of what the lane kept
    with pytest.raises(OutOfMemoryError):
        device.device.allocate(6 << 20)
    memory.free()
    assert device.serves(l1(device.device))


def test_lack_of_memory_in_the_middle_of_a_program_begins_it_again(device: Opened) -> None:
    asked = l1(device.device)
    pace_of(asked.call).nanoseconds = 11e6
    steps = chain(asked, 3)

    class Greedy(FreeTurn):
        def pause(self) -> None:
            device.simulator.fail(LAUNCH, 1, status=207001)

    assert differences(device.device.run_program(steps, Greedy()).outputs, steps) == []
