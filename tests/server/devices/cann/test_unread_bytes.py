"""No call, program or handle sees bytes of another: what nobody sends or writes is zero."""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.server.devices.programs import call_of as sample_of
from tests.server.devices.programs import operators_of

from npucall import memory
from npucall.errors import CancelledError, DeviceError
from npucall_exec.launches import call_of
from npucall_server.devices.base import Step
from npucall_server.devices.cann.program import pace_of

from .calls import (
    Ask,
    Case,
    add_scalars,
    declared,
    exp2,
    installed,
    l1,
    l1_of,
    numbers,
    rsub,
    unread,
)
from .opened import FakeTurn, Open, Opened, bytes_of, release
from .test_clearing import FILL, KERNEL, SECRET

pytestmark = pytest.mark.usefixtures("as_in_production")
COUNT = 512


def keep_secrets(device: Opened) -> None:
    """Leaves a secret all over the memory of the lane, on the device and for staging."""
    secret = np.frombuffer(SECRET * (4 * COUNT), np.float32)
    case = exp2(device, secret)
    device.simulator.set_kernels("none")
    device.run(case)
    case = installed(device, "aclnnInplaceVendorRelu", secret, selfRef=secret)
    assert device.answers(case) == [SECRET * (4 * COUNT)]
    device.simulator.set_kernels("python")


@pytest.fixture
def device(any_way: Opened) -> Opened:
    """However tensors are copied, after a call with secrets."""
    keep_secrets(any_way)
    return any_way


Seen = dict[str, list[bytes]]
"""The bytes of each tensor of launches as their kernels found them."""


class Place(NamedTuple):
    """Where the storage of a tensor is."""

    address: int
    length: int


def tensors_of(description: str) -> dict[str, Place]:
    """Where the tensors of a launch are."""
    launch = json.loads(description)
    addresses = iter(launch["addresses"])
    given = call_of(launch["call"]).with_tensors(
        lambda spec: Place(next(addresses), spec.storage_bytes)
    )
    return {name: value for name, value in given.items() if isinstance(value, Place)}


@pytest.fixture
def kernels(device: Opened) -> Any:
    """The module whose ``run`` is every kernel."""
    assert device.serves(l1(device))  # loads them
    return sys.modules["npucall_simulator.kernels"]


@pytest.fixture
def seen(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> Seen:
    found: Seen = {}
    real = kernels.run

    def run(description: str) -> None:
        for name, place in tensors_of(description).items():
            found.setdefault(name, []).append(ctypes.string_at(*place))
        real(description)

    monkeypatch.setattr(kernels, "run", run)
    return found


def test_an_input_that_nobody_reads_is_zeros_on_the_device(device: Opened, seen: Seen) -> None:
    case = unread(device)
    assert "self" not in case.call.stored
    assert device.serves(case)
    device.program([Step(case.call, case.storages)] * 2)
    assert seen["self"] == [bytes(24)] * 3
    assert seen["target"] == [case.storages["target"]] * 3


@pytest.mark.parametrize("ask", [rsub, add_scalars])
def test_what_such_an_operator_never_writes_comes_back_as_zeros(device: Opened, ask: Ask) -> None:
    device.simulator.set_kernels("none")
    case = ask(device)
    assert device.answers(case) == [bytes(len(answer)) for answer in case.answers]


def test_also_of_programs_and_in_handles(device: Opened) -> None:
    device.simulator.set_kernels("none")
    case = exp2(device, numbers(COUNT))
    kept = device.filled(SECRET * (4 * COUNT))
    steps = [Step(case.call, case.storages), Step(case.call, case.storages, {"out": kept})]
    (first,), _ = device.program(steps)
    assert not any(first)
    assert not any(bytes_of(kept))
    kept.write(0, SECRET * kept.nbytes)
    device.run(case, targets={"out": kept})
    assert not any(bytes_of(kept))
    kept.free()


def test_what_a_call_without_elements_leaves_is_zeros(device: Opened) -> None:
    nothing = np.zeros((0, 3), np.float32)
    tensors = {"grad_output": nothing, "self": nothing, "weight": numbers(3)}
    case = declared(device, "aclnnPreluBackward", **tensors)
    assert case.call.done
    assert device.answers(case) == [b"", bytes(12)]


def test_what_a_kernel_never_writes_is_zeros_for_the_next_owner(
    device: Opened, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the secrets that the next owner left are not for the first."""
    real, case = kernels.run, l1(device)

    def write_the_first_half(description: str) -> None:
        place = tensors_of(description)["gradInput"]
        half = place.length // 2
        before = ctypes.string_at(place.address + half, place.length - half)
        real(description)
        ctypes.memmove(place.address + half, before, len(before))

    monkeypatch.setattr(kernels, "run", write_the_first_half)
    keep_secrets(device)
    (expected,) = case.answers
    half = len(expected) // 2
    (answer,) = device.answers(case, owner="another")
    assert answer == expected[:half] + bytes(len(expected) - half)
    (answer,) = device.answers(case)
    assert SECRET not in answer[half:]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.more)])
def test_no_operators_kernel_finds_bytes_of_another_owner(
    device: Opened, seen: Seen, every: int
) -> None:
    """Neither in what it reads nor in what it has to write, whatever of that it leaves."""
    wrong: list[tuple[str, str]] = []
    for operator in operators_of(device.device)[::every]:
        if device.device.unavailable_because(operator):
            continue
        call, storages = sample_of(operator, device.device)
        keep_secrets(device)
        seen.clear()
        device.run(Case(call, storages, []), owner="another")
        wrong += [(operator.name, name) for name in seen if SECRET * 4 in b"".join(seen[name])]
    assert wrong == []


def clears(device: Opened, work: Callable[[], object]) -> bool:
    """Whether some work clears device memory; no copies do that."""
    functions = device.functions(work)
    assert FILL not in functions
    return KERNEL in functions


def test_behind_a_call_that_failed_memory_is_cleared_for_anybody(device: Opened) -> None:
    case = l1(device)

    def refuse() -> None:
        raise CancelledError("not wanted")

    device.run(case)
    with pytest.raises(CancelledError):
        device.run(case, refuse)
    assert clears(device, lambda: device.run(case))


def fails_to_clear(device: Opened, case: Case) -> None:
    """The kernels that clear are told to fail, and the synchronise says so of one."""
    for nth in range(1, 9):
        device.simulator.fail(KERNEL, nth, status=207016, what="at_sync")
    with pytest.raises(DeviceError):
        device.run(case)
    device.simulator.clear_faults()


def test_what_was_to_be_cleared_when_a_call_failed_is_cleared_then(open_device: Open) -> None:
    opened = open_device()
    opened.simulator.set_kernels("none")
    fails_to_clear(opened, l1(opened))
    for count in (6, 100_000):  # both have room in what was allocated
        assert not any(opened.answers(l1(opened, count))[0])


def test_zeros_whose_kernel_failed_are_filled_by_the_next_call(device: Opened, seen: Seen) -> None:
    case = unread(device)
    fails_to_clear(device, case)
    assert device.serves(case)
    assert seen["self"][-1] == bytes(24)


def test_a_program_of_another_caller_finds_nothing_in_kept_memory(device: Opened) -> None:
    case = l1_of(device, np.ones(COUNT, np.float32))
    storages = device.in_handles(case)  # so that its outputs lie where the secrets were
    device.simulator.set_kernels("none")
    outputs = device.program([Step(case.call, storages)] * 2, FakeTurn(owner="another"))
    assert SECRET * 4 not in b"".join(output for (output,) in outputs)
    release(storages)


def test_a_caller_finds_nothing_of_a_program_of_another(open_device: Open) -> None:
    """Also where the memory came back from one that was left in the middle."""
    device = open_device()
    secret = l1_of(device, np.frombuffer(SECRET * (4 * COUNT), np.float32))
    other = l1_of(device, np.ones(COUNT, np.float32))

    def leave() -> None:
        assert device.serves(l1(device))  # as "somebody"
        raise KeyError

    pace_of(secret.call).nanoseconds = 11e6
    steps = [Step(secret.call, secret.storages)] * 2
    with pytest.raises(KeyError):
        device.program(steps, FakeTurn(owner="first", pause=leave))
    device.simulator.set_kernels("none")
    for owner in ("somebody", "third"):
        assert SECRET * 4 not in device.answers(other, owner=owner)[0]


def test_steps_that_need_more_workspace_each_are_right(open_device: Open) -> None:
    """The workspace grows while work that is queued still uses the smaller one."""
    device = open_device()
    memory.poison()
    cases = [l1(device, count) for count in (10, 300_000, 10, 700_000)]
    for case in cases:
        pace_of(case.call).nanoseconds = 1
    outputs = device.program([Step(case.call, case.storages) for case in cases])
    assert outputs == [case.answers for case in cases]
    assert device.simulator.live_objects()["aclrtMalloc"] == 2  # tensors, and one workspace


def test_in_the_debug_mode_the_pattern_comes_back_where_a_kernel_wrote_nothing(
    device: Opened,
) -> None:
    memory.poison()
    device.simulator.set_kernels("none")
    for _ in range(2):
        (answer,) = device.answers(l1(device))
        assert answer == bytes([memory.PATTERN]) * len(answer)


def test_without_clearing_the_secret_would_come_back(device: Opened) -> None:
    """What the other tests rest on: memory is used again as it is."""
    device.simulator.set_kernels("none")
    (answer,) = device.answers(l1(device))
    assert answer == SECRET * len(answer)
