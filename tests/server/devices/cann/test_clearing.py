"""What clears memory: a kernel, few sizes of it, no more often than memory passes to others."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from npucall.errors import CancelledError, DeviceError
from npucall_server.devices.base import Step
from npucall_server.devices.cann.clearing import pieces

from .calls import Ask, l1, l1_of, rsub, unread
from .opened import FakeTurn, Open, Opened

pytestmark = pytest.mark.usefixtures("as_in_production")
GIB = 2**30
SECRET = b"\x5e"
KERNEL, FILL = "aclnnInplaceZero", "aclrtMemsetAsync"
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
    before = device.simulator.counters()["bytes_filled_by_copies"]
    calls = device.functions(work)
    filled = device.simulator.counters()["bytes_filled_by_copies"] - before
    return calls.get(KERNEL, 0), calls.get(FILL, 0), filled


@pytest.mark.parametrize("limit", [0, 2**30], ids=["straight", "staged"])
def test_an_input_that_nobody_reads_costs_nothing_a_call(open_device: Open, limit: int) -> None:
    device = open_device(staging_limit=limit)
    case = unread(device, 100_000)
    assert [device.serves(case) for _ in range(2)] == [True] * 2
    before = device.simulator.counters()["bytes_host_to_device"]
    assert counted(device, lambda: [device.serves(case) for _ in range(3)]) == (0, 0, 0)
    sent = device.simulator.counters()["bytes_host_to_device"] - before
    assert sent < 3 * (2 * 400_000 + 4096)  # two of its three inputs


def test_nor_a_step_of_a_program(device: Opened) -> None:
    case = unread(device, 1000)
    steps = [Step(case.call, case.storages)] * 5
    for _ in range(2):
        assert device.program(steps) == [case.answers] * 5
    assert counted(device, lambda: device.program(steps)) == (0, 0, 0)


def test_a_larger_one_finds_zeros_too(device: Opened) -> None:
    assert [device.serves(unread(device, n)) for n in (10, 1_000_000, 20, 6)] == [True] * 4


def test_while_owners_change_small_memory_is_cleared_by_one_kernel_each(device: Opened) -> None:
    case = l1(device)
    for owner in ("one", "other", "one"):
        device.run(case, owner=owner)
    kernels, fills, _ = counted(device, lambda: device.run(case, owner="other"))
    assert (kernels, fills) == (2, 0)  # the tensors and the workspace


def test_what_is_new_of_a_workspace_is_filled_between_the_phases_and_the_rest_by_the_next_call(
    device: Opened,
) -> None:
    case = l1(device)
    counts = [counted(device, lambda: device.run(case)) for _ in range(3)]
    tensors = 2  # their huge page, less 32 bytes, in two pieces
    assert counts == [(tensors, 1, device.plan(case)), (2, 0, 0), (0, 0, 0)]


def test_a_workspace_that_is_known_before_is_cleared_by_the_kernel(device: Opened) -> None:
    case = l1(device)
    device.plan(case)
    counts = [counted(device, lambda: device.run(case)) for _ in range(2)]
    assert counts == [(2 + 2, 0, 0), (0, 0, 0)]


def test_what_an_owner_of_little_finds_was_cleared_though_the_one_before_used_much(
    device: Opened,
) -> None:
    secret = l1_of(device, np.frombuffer(SECRET * 4_000_000, np.float32))
    device.simulator.set_kernels("none")
    device.run(secret, owner="one")
    for count in (2000, 400_000):
        assert not any(device.answers(l1(device, count), owner="other")[0])


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
    device: Opened, monkeypatch: pytest.MonkeyPatch, how: Callable[..., None]
) -> None:
    how(device, monkeypatch)
    case = unread(device)
    assert device.serves(case)
    assert device.serves(rsub(device))
    (note,) = (note for note in device.notes if FILL in note)
    assert note.startswith("device memory is cleared by aclrtMemsetAsync, which is slower: ")
    assert device.simulator.call_count(KERNEL) == 0
    device.run(l1(device, 10_000), owner="one")
    device.simulator.set_kernels("none")
    (answer,) = device.answers(l1(device, 9000), owner="other")
    assert not any(answer)
    assert counted(device, lambda: device.run(case, owner="third"))[1] > 0


@pytest.mark.parametrize("status", [161002, 561000])
@pytest.mark.parametrize("phase", ["GetWorkspaceSize", ""])
def test_a_kernel_that_refuses_is_asked_once_and_fails_no_call(
    device: Opened, phase: str, status: int
) -> None:
    device.simulator.fail(KERNEL + phase, status=status)
    case = rsub(device)
    answers = [device.answers(case, owner=owner) for owner in ("one", "two", "three")]
    assert answers == [case.answers] * 3
    assert device.simulator.call_count(KERNEL + phase) == 1
    assert len(device.notes) == 1


def test_a_failure_to_clear_fails_the_call(device: Opened) -> None:
    case = l1(device)
    assert device.serves(case)
    device.simulator.set_kernels("none")
    device.simulator.fail(KERNEL, status=207012)
    device.simulator.fail(FILL, status=207012)
    with pytest.raises(DeviceError, match=FILL):
        device.run(case, owner="other")
    assert not any(device.answers(case, owner="other")[0])
    assert device.lost == []


# --- A lane that may keep nothing -----------------------------------------------------------------


@pytest.fixture
def forgetful(open_device: Open) -> Opened:
    return open_device(kept_device_memory=0)


def keeps_nothing(device: Opened) -> bool:
    return not {"aclrtMalloc", "aclrtMallocHost", "aclTensor"} & {*device.simulator.live_objects()}


def check_that_fails(*, at: int) -> Callable[[], None]:
    passes = iter([None] * (at - 1))

    def check() -> None:
        if next(passes, True):
            raise CancelledError("not wanted")

    return check


@pytest.mark.parametrize("ask", [l1, unread, rsub])
def test_it_keeps_nothing_whether_a_call_ends_or_fails(forgetful: Opened, ask: Ask) -> None:
    for _ in range(2):
        assert forgetful.serves(ask(forgetful))
        assert keeps_nothing(forgetful)
        with pytest.raises(CancelledError):
            forgetful.run(ask(forgetful), check_that_fails(at=1))
        assert keeps_nothing(forgetful)


def test_nor_behind_a_program_whether_it_ends_or_fails(forgetful: Opened) -> None:
    case = unread(forgetful)
    steps = [Step(case.call, case.storages)] * 3
    assert forgetful.program(steps) == [case.answers] * 3
    assert keeps_nothing(forgetful)
    with pytest.raises(CancelledError):
        forgetful.program(steps, FakeTurn(check_that_fails(at=3)))
    assert keeps_nothing(forgetful)


def test_it_passes_nothing_from_one_owner_to_another(forgetful: Opened) -> None:
    case = l1_of(forgetful, np.frombuffer(SECRET * 16_384, np.float32))
    forgetful.simulator.set_kernels("none")
    for owner in ("one", "other", "one"):
        assert not any(forgetful.answers(case, owner=owner)[0])
