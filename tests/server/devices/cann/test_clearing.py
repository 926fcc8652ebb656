"""What clears memory: a kernel, few sizes of it, no more often than memory passes to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from npucall import buffers
from npucall.errors import CancelledError, DeviceError
from npucall_server.devices.base import Step
from npucall_server.devices.cann.clearing import pieces

from .asked import declared, like
from .opened import FreeTurn
from .situations import l1, numbers, rsub, unread
from .test_unread_bytes import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

GIB = 2**30
KERNEL, FILL = "aclnnInplaceZero", "aclrtMemsetAsync"


@pytest.fixture(autouse=True)
def _as_in_production() -> Iterator[None]:
    """The debug mode would fill the memory of each call anew."""
    buffers.poison(False)
    yield
    buffers.poison()


LENGTHS = st.one_of(st.integers(1, 1000), st.integers(1, 3 * GIB // 32)).map(lambda n: 32 * n)


@given(LENGTHS, st.integers(0, 3 * GIB))
@example(32, 0)
@example(96, 127)
@example(96, 128)
def test_pieces_cover_a_length_and_no_more_than_there_is_room_for(length: int, room: int) -> None:
    starts, size = pieces(length, room)
    assert size & (size - 1) == 0
    assert 32 <= size <= GIB
    end = 0
    for start in starts:
        assert 0 <= start <= end
        assert start % 32 == 0
        end = start + size
    assert length <= end <= max(length, room)
    assert len(starts) <= 2 + length // GIB


def test_where_there_is_room_one_piece_is_enough() -> None:
    assert pieces(96, 128) == ([0], 128)
    assert pieces(96, 127) == ([0, 32], 64)


def counted(device: Opened, work: Callable[[], object]) -> tuple[int, int, int]:
    """Kernels that clear, fills, and bytes that fills copied, of some work."""

    def now() -> tuple[int, int, int]:
        count = device.simulator.call_count
        return count(KERNEL), count(FILL), device.simulator.counters()["bytes_filled_by_copies"]

    before = now()
    work()
    return tuple(a - b for a, b in zip(now(), before, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("limit", [0, 2**30], ids=["straight", "staged"])
def test_an_input_that_nobody_reads_costs_nothing_a_call(open_device: Open, limit: int) -> None:
    device = open_device(staging_limit=limit)
    asked = kl_div(device, 100_000)
    assert [device.serves(asked) for _ in range(2)] == [True] * 2
    before = device.simulator.counters()["bytes_host_to_device"]
    assert counted(device, lambda: [device.serves(asked) for _ in range(3)]) == (0, 0, 0)
    sent = device.simulator.counters()["bytes_host_to_device"] - before
    assert sent < 3 * (2 * 400_000 + 4096)  # two of its three inputs


def test_nor_a_step_of_a_program(open_device: Open) -> None:
    device = open_device()
    asked = kl_div(device, 1000)
    steps = [Step(asked.call, asked.storages)] * 5

    def run() -> None:
        outputs = device.device.run_program(steps, FreeTurn()).outputs
        assert [[bytes(o) for o in step] for step in outputs] == [asked.answers] * 5  # type: ignore[arg-type]

    run()
    run()
    assert counted(device, run) == (0, 0, 0)


def kl_div(device: Opened, count: int) -> Asked:
    target = numbers(count)
    tensors = {"grad_output": numbers(count), "self": like(target), "target": target}
    return declared(device.device, "aclnnKlDivBackward", reduction=2, **tensors)


def test_a_larger_one_finds_zeros_too(open_device: Open) -> None:
    device = open_device()
    for count in (10, 1_000_000, 20):
        assert device.serves(kl_div(device, count))
    assert device.serves(unread(device.device))


def test_while_owners_change_small_memory_is_cleared_by_one_kernel_each(open_device: Open) -> None:
    device = open_device()
    asked = l1(device.device)
    for owner in ("one", "other", "one"):
        device.run(asked, owner=owner)
    kernels, fills, _ = counted(device, lambda: device.run(asked, owner="other"))
    assert (kernels, fills) == (2, 0)  # the tensors and the workspace


def test_what_is_new_of_a_workspace_is_filled_between_the_phases_and_the_rest_by_the_next_call(
    open_device: Open,
) -> None:
    device = open_device()
    asked = l1(device.device)
    counts = [counted(device, lambda: device.run(asked)) for _ in range(3)]
    tensors = 2  # their huge page, less 32 bytes, in two pieces
    assert counts == [(tensors, 1, device.plan(asked)), (2, 0, 0), (0, 0, 0)]


def test_a_workspace_that_is_known_before_is_cleared_by_the_kernel(open_device: Open) -> None:
    device = open_device()
    asked = l1(device.device)
    device.plan(asked)
    counts = [counted(device, lambda: device.run(asked)) for _ in range(2)]
    assert counts == [(2 + 2, 0, 0), (0, 0, 0)]


def test_what_an_owner_of_little_finds_was_cleared_though_the_one_before_used_much(
    open_device: Open,
) -> None:
    device = open_device()
    secret = np.frombuffer(SECRET * 4_000_000, np.float32)
    tensors = dict.fromkeys(("grad_output", "self", "target"), secret)
    much = declared(device.device, "aclnnL1LossBackward", reduction=2, **tensors)
    little = l1(device.device, 2000)
    device.simulator.set_kernels("none")
    device.run(much, owner="one")
    assert not any(device.answers(little, owner="other")[0])
    assert not any(device.answers(l1(device.device, 400_000), owner="other")[0])


def lacking(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library of the host has the operator."""
    operators = opened.device._operators
    real = operators.find
    monkeypatch.setattr(operators, "find", lambda name: None if name == KERNEL else real(name))


def refused(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no kernel for this SoC."""
    del monkeypatch
    opened.simulator.fail(f"{KERNEL}GetWorkspaceSize", status=561003)


@pytest.mark.parametrize("how", [lacking, refused])
def test_without_the_kernel_fills_do_its_work(
    open_device: Open, monkeypatch: pytest.MonkeyPatch, how: Callable[..., None]
) -> None:
    device = open_device()
    how(device, monkeypatch)
    asked = unread(device.device)
    assert device.serves(asked)
    assert device.serves(rsub(device.device))
    (note,) = (note for note in device.notes if FILL in note)
    assert note.startswith("device memory is cleared by aclrtMemsetAsync, which is slower: ")
    assert device.simulator.call_count(KERNEL) == 0
    secret = l1(device.device, 10_000)
    device.run(secret, owner="one")
    device.simulator.set_kernels("none")
    (answer,) = device.answers(l1(device.device, 9000), owner="other")
    assert not any(answer)
    assert counted(device, lambda: device.run(asked, owner="third"))[1] > 0


@pytest.mark.parametrize("status", [161002, 561000])
@pytest.mark.parametrize("phase", ["GetWorkspaceSize", ""])
def test_a_kernel_that_refuses_is_asked_once_and_fails_no_call(
    open_device: Open, phase: str, status: int
) -> None:
    device = open_device()
    device.simulator.fail(KERNEL + phase, status=status)
    for owner in "one", "two", "three":
        assert device.answers(rsub(device.device), owner=owner) == rsub(device.device).answers
    assert device.simulator.call_count(KERNEL + phase) == 1
    assert len(device.notes) == 1


def test_a_failure_to_clear_fails_the_call(open_device: Open) -> None:
    device = open_device()
    asked = l1(device.device)
    assert device.serves(asked)
    device.simulator.set_kernels("none")
    device.simulator.fail(KERNEL, status=207012)
    device.simulator.fail(FILL, status=207012)
    with pytest.raises(DeviceError, match=FILL):
        device.run(asked, owner="other")
    assert not any(device.answers(asked, owner="other")[0])
    assert device.lost == []


KEEP_NOTHING = {"kept_device_memory": 0}
MEMORY = ("aclrtMalloc", "aclrtMallocHost", "aclTensor")


def kept(device: Opened) -> dict[str, int]:
    live = device.simulator.live_objects()
    return {kind: live[kind] for kind in MEMORY if kind in live}


@pytest.mark.parametrize("ask", [l1, unread, rsub])
def test_a_lane_that_may_keep_nothing_keeps_nothing(
    open_device: Open, ask: Callable[..., Asked]
) -> None:
    device = open_device(**KEEP_NOTHING)
    for _ in range(2):
        assert device.serves(ask(device.device))
        assert kept(device) == {}


def test_nor_behind_a_call_that_fails(open_device: Open) -> None:
    device = open_device(**KEEP_NOTHING)

    def refuse() -> None:
        raise CancelledError("not wanted")

    with pytest.raises(CancelledError):
        device.run(unread(device.device), refuse)
    assert kept(device) == {}
    assert device.serves(unread(device.device))


def test_nor_behind_a_program_whether_it_ends_or_fails(open_device: Open) -> None:
    device = open_device(**KEEP_NOTHING)
    asked = unread(device.device)
    steps = [Step(asked.call, asked.storages)] * 3
    outputs = device.device.run_program(steps, FreeTurn()).outputs
    assert [[bytes(o) for o in step] for step in outputs] == [asked.answers] * 3  # type: ignore[arg-type]
    assert kept(device) == {}
    checks = iter([None, None])

    def check() -> None:
        if next(checks, True):
            raise CancelledError("gone")

    with pytest.raises(CancelledError):
        device.device.run_program(steps, FreeTurn(check))
    assert kept(device) == {}


def test_a_lane_that_keeps_nothing_passes_nothing_from_one_owner_to_another(
    open_device: Open,
) -> None:
    device = open_device(**KEEP_NOTHING)
    secret = np.frombuffer(SECRET * 16_384, np.float32)
    tensors = dict.fromkeys(("grad_output", "self", "target"), secret)
    asked = declared(device.device, "aclnnL1LossBackward", reduction=2, **tensors)
    device.simulator.set_kernels("none")
    for owner in ("one", "other", "one"):
        (answer,) = device.answers(asked, owner=owner)
        assert not any(answer)
