"""No call sees bytes of another: what nobody sends or writes is zero."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall import buffers
from npucall.errors import CancelledError, DeviceError

from .asked import Asked, declared, installed, like
from .situations import FOUR_PIECES, add_scalars, l1, numbers, rsub, unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .opened import Opened

    Open = Callable[..., Opened]

SECRET = b"\x5e"
COUNT = 4096


@pytest.fixture(autouse=True)
def _as_in_production() -> Iterator[None]:
    """The debug mode would fill the memory of each call anew."""
    buffers.poison(False)
    yield
    buffers.poison()


def keep_secrets(device: Opened) -> None:
    """Leaves a secret all over the memory of the lane, on the device and for staging."""
    secret = np.frombuffer(SECRET * (4 * COUNT), np.float32)
    out = like(secret)
    asked = installed(device.device, "aclnnExp2", secret, self=secret, out=out)
    device.simulator.set_kernels("none")
    device.run(asked)
    asked = installed(device.device, "aclnnInplaceRelu", secret, selfRef=secret)
    assert device.answers(asked) == [SECRET * (4 * COUNT)]
    device.simulator.set_kernels("python")


@pytest.fixture(params=[0, FOUR_PIECES, 2**20], ids=["waiting", "in pieces", "whole"])
def device(request: pytest.FixtureRequest, open_device: Open) -> Opened:
    """However tensors are copied, after a call with secrets."""
    opened = open_device(staging_limit=request.param)
    keep_secrets(opened)
    return opened


@pytest.fixture
def seen(device: Opened, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The bytes of each tensor of the last launch as its kernel found them."""
    assert device.serves(l1(device.device))  # loads the kernels
    found: dict[str, bytes] = {}
    kernels = sys.modules["npucall_simulator.kernels"]
    real = kernels.run

    def run(description: str) -> None:
        for argument in json.loads(description)["arguments"]:
            value = argument["value"]
            if argument["kind"] == "Tensor" and value is not None:
                found[argument["name"]] = ctypes.string_at(value["address"], value["bytes"])
        real(description)

    monkeypatch.setattr(kernels, "run", run)
    return found


def test_an_input_that_nobody_reads_is_zeros_on_the_device(
    device: Opened, seen: dict[str, bytes]
) -> None:
    asked = unread(device.device)
    assert device.serves(asked)
    assert "self" not in asked.call.stored
    assert seen["self"] == bytes(len(seen["self"]))
    assert seen["target"] == asked.storages["target"]


def test_an_output_of_an_operator_known_by_its_header_is_zeros_on_the_device(
    device: Opened, seen: dict[str, bytes]
) -> None:
    assert device.serves(rsub(device.device))
    assert seen["out"] == bytes(len(seen["out"]))


@pytest.mark.parametrize("ask", [rsub, add_scalars])
def test_what_such_an_operator_never_writes_comes_back_as_zeros(
    device: Opened, ask: Callable[[Any], Asked]
) -> None:
    device.simulator.set_kernels("none")
    asked = ask(device.device)
    assert device.answers(asked) == [bytes(len(answer)) for answer in asked.answers]


def test_what_a_call_without_elements_leaves_is_zeros(device: Opened) -> None:
    nothing = np.zeros((0, 3), np.float32)
    tensors = {"grad_output": nothing, "self": nothing, "weight": numbers(3)}
    asked = declared(device.device, "aclnnPreluBackward", **tensors)
    assert asked.call.done
    assert [len(answer) for answer in asked.answers] == [0, 12]
    assert device.answers(asked) == [b"", bytes(12)]


def half_written(device: Opened, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A call whose kernel writes the first half of its output."""
    asked = l1(device.device)
    assert device.serves(asked)  # loads the kernels
    kernels = sys.modules["npucall_simulator.kernels"]
    real = kernels.run

    def run(description: str) -> None:
        (place,) = (
            argument["value"]
            for argument in json.loads(description)["arguments"]
            if argument["name"] == "gradInput"
        )
        half = place["bytes"] // 2
        before = ctypes.string_at(place["address"] + half, place["bytes"] - half)
        real(description)
        ctypes.memmove(place["address"] + half, before, len(before))

    monkeypatch.setattr(kernels, "run", run)
    return asked


def test_what_a_kernel_never_writes_is_zeros_for_the_next_owner(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = half_written(device, monkeypatch)
    keep_secrets(device)
    (expected,) = asked.answers
    half = len(expected) // 2
    (answer,) = device.answers(asked, owner="another")
    assert answer == expected[:half] + bytes(len(expected) - half)


def test_and_the_secrets_that_the_next_owner_left_are_not_for_the_first(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = half_written(device, monkeypatch)
    keep_secrets(device)
    device.answers(asked, owner="another")
    (answer,) = device.answers(asked)
    assert SECRET not in answer[len(answer) // 2 :]


def test_while_one_owner_calls_nothing_is_cleared(device: Opened) -> None:
    asked = l1(device.device)
    for _ in range(2):  # the second time what is new beyond the first one's workspace
        device.run(asked, owner="another")
    assert not clears(device, lambda: device.run(asked, owner="another"))
    assert clears(device, lambda: device.run(asked))


def test_behind_a_call_that_failed_memory_is_cleared_for_anybody(device: Opened) -> None:
    asked = l1(device.device)

    def refuse() -> None:
        raise CancelledError("not wanted")

    device.run(asked)
    with pytest.raises(CancelledError):
        device.run(asked, refuse)
    assert clears(device, lambda: device.run(asked))


def test_what_was_to_be_cleared_when_a_call_failed_is_cleared_then(open_device: Open) -> None:
    """Its kernels are told to fail, and the synchronise says so of one."""
    opened = open_device()
    opened.simulator.set_kernels("none")
    for nth in range(1, 9):
        opened.simulator.fail("aclnnInplaceZero", nth, status=207016, what="at_sync")
    with pytest.raises(DeviceError):
        opened.run(l1(opened.device))
    opened.simulator.clear_faults()
    for count in (6, 100_000):  # both have room in what was allocated
        (answer,) = opened.answers(l1(opened.device, count))
        assert answer == bytes(len(answer))


def test_zeros_whose_kernel_failed_are_filled_by_the_next_call(
    device: Opened, seen: dict[str, bytes]
) -> None:
    asked = unread(device.device)
    for nth in range(1, 9):
        device.simulator.fail("aclnnInplaceZero", nth, status=207016, what="at_sync")
    with pytest.raises(DeviceError):
        device.run(asked)
    device.simulator.clear_faults()
    assert device.serves(asked)
    assert seen["self"] == bytes(len(seen["self"]))


def clears(device: Opened, work: Callable[[], object]) -> bool:
    """Whether some work clears device memory; no copies do that."""
    functions = device.functions(work)
    assert "aclrtMemsetAsync" not in functions
    return "aclnnInplaceZero" in functions


def test_new_memory_is_cleared_before_its_first_use(open_device: Open) -> None:
    """What another owner's call on another lane has freed may be in it."""
    opened = open_device(kept_device_memory=0)
    opened.simulator.set_kernels("none")
    (answer,) = opened.answers(l1(opened.device))
    assert answer == bytes(len(answer))


def test_in_the_debug_mode_the_pattern_comes_back_where_a_kernel_wrote_nothing(
    device: Opened,
) -> None:
    buffers.poison()
    device.simulator.set_kernels("none")
    for _ in range(2):
        (answer,) = device.answers(l1(device.device))
        assert answer == bytes([buffers.PATTERN]) * len(answer)


def test_without_clearing_the_secret_would_come_back(device: Opened) -> None:
    """What the other tests rest on: memory is used again as it is."""
    device.simulator.set_kernels("none")
    (answer,) = device.answers(l1(device.device))
    assert answer == SECRET * len(answer)
