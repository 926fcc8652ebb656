"""The ways of copying: as a whole, in pieces, waiting. Ordinary memory is never copied late."""

from __future__ import annotations

import threading
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.more import only

from npucall_server.devices.base import BrokenDeviceError, Step
from npucall_server.devices.cann.copies import COUNT, Part, pieces_of, pinned_bytes
from npucall_server.devices.cann.launch import Launcher

from .faults import failure
from .opened import FreeTurn
from .situations import FOUR_PIECES, SITUATIONS, in_place, l1, longer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]
    Run = Callable[[Opened, Asked], list[bytes]]

WAYS = {"whole": 1 << 20, "in pieces": FOUR_PIECES, "waiting": 0}
ASKS = list(dict.fromkeys(situation.then for situation in SITUATIONS.values()))
OVERFLOW, HEARTBEAT = 207016, 507010
SLOWLY = 100_000
"""Bytes a second: what a copy reads late is not read before the host has gone on."""
PATIENCE = 20.0


def call(device: Opened, asked: Asked) -> list[bytes]:
    return [bytes(output) for output in device.run(asked).outputs]


def program(device: Opened, asked: Asked) -> list[bytes]:
    steps = [Step(asked.call, asked.storages)]
    (outputs,) = device.device.run_program(steps, FreeTurn()).outputs
    return [bytes(output) for output in outputs]  # type: ignore[arg-type]


@pytest.fixture(params=WAYS)
def device(request: pytest.FixtureRequest, open_device: Open) -> Opened:
    """However tensors are copied."""
    return open_device(staging_limit=WAYS[request.param])


@pytest.fixture
def in_pieces(open_device: Open) -> Opened:
    return open_device(staging_limit=FOUR_PIECES)


@pytest.mark.parametrize("run", [call, program])
@pytest.mark.parametrize("ask", only(*ASKS), ids=lambda ask: ask.__name__)
def test_no_asynchronous_copy_is_given_ordinary_memory(
    device: Opened, run: Run, ask: Callable[[Any], Asked]
) -> None:
    asked = ask(device.device)
    assert run(device, asked) == asked.answers
    assert device.simulator.counters()["pageable_copies"] == 0


def test_nor_where_an_output_that_is_sent_goes_into_a_handle(device: Opened) -> None:
    asked = in_place(device.device)
    (name,) = asked.call.outputs
    kept = device.device.allocate(len(asked.answers[0]))
    device.device.run(asked.call, asked.storages, FreeTurn(), {name: kept})
    assert bytes(kept.read(0, kept.nbytes)) == asked.answers[0]
    assert device.simulator.counters()["pageable_copies"] == 0
    kept.free()


@pytest.mark.parametrize("run", [call, program])
def test_what_happens_to_inputs_behind_their_copy_is_not_seen(
    device: Opened, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = longer(device.device)
    storages = {name: bytearray(data) for name, data in asked.storages.items()}
    launch, of_the_call = Launcher.launch, device.device._operators.function(asked.call.operator)

    def changed(launcher: Launcher, function: Any, *arguments: Any) -> int:
        for data in storages.values() if function is of_the_call else ():
            data[:] = bytes(len(data))
        return launch(launcher, function, *arguments)

    device.simulator.set_delays(bytes_per_second=SLOWLY)
    monkeypatch.setattr(Launcher, "launch", changed)
    assert run(device, asked._replace(storages=storages)) == asked.answers  # type: ignore[arg-type]


class Fresh(dict[str, bytes]):
    """Storages that nobody holds but who has asked for them."""

    def __getitem__(self, name: str) -> bytes:
        return bytes(bytearray(super().__getitem__(name)))


@pytest.mark.parametrize("run", [call, program])
def test_inputs_are_held_while_they_are_copied(device: Opened, run: Run) -> None:
    asked = l1(device.device, 100_000)
    assert run(device, asked._replace(storages=Fresh(asked.storages))) == asked.answers


@pytest.mark.parametrize("run", [call, program])
def test_where_no_event_can_be_had_copies_in_pieces_wait_for_the_stream(
    in_pieces: Opened, run: Run
) -> None:
    asked = longer(in_pieces.device)
    in_pieces.simulator.fail("aclrtCreateEventExWithFlag", status=OVERFLOW)
    for nth in range(1, 40, 3):
        in_pieces.simulator.fail("aclrtRecordEvent", nth, status=OVERFLOW)
    assert run(in_pieces, asked) == asked.answers


def test_events_are_made_once(in_pieces: Opened) -> None:
    asked = longer(in_pieces.device)
    assert in_pieces.serves(asked)
    before = in_pieces.simulator.call_count("aclrtCreateEventExWithFlag")
    assert in_pieces.serves(asked)
    assert in_pieces.simulator.call_count("aclrtCreateEventExWithFlag") == before


def test_a_call_of_which_a_copy_fails_fills_no_output(in_pieces: Opened) -> None:
    asked = longer(in_pieces.device)
    targets = {name: bytearray(spec.storage_bytes) for name, spec in asked.call.outputs.items()}
    in_pieces.simulator.fail("aclrtMemcpyAsync", 3, status=OVERFLOW, what="at_sync")
    run = partial(in_pieces.device.run, asked.call, asked.storages, FreeTurn(), targets)
    assert failure(run) is not None
    assert [bytes(target) for target in targets.values()] == [bytes(len(asked.answers[0]))]
    assert in_pieces.serves(asked)


def test_a_piece_that_is_not_copied_in_time_breaks_the_device(open_device: Open) -> None:
    device = open_device(staging_limit=FOUR_PIECES, device_timeout=0.05)
    asked = longer(device.device)
    device.simulator.fail("aclrtMemcpyAsync", status=HEARTBEAT, what="stall")
    with pytest.raises(BrokenDeviceError, match=r"507047 \(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT\)"):
        device.run(asked)
    lost, violations = device.lost, device.simulator.violations()
    device.abandon()
    assert (len(lost), violations) == (1, [])


def test_a_copy_that_waits_for_ever_ends_the_device(open_device: Open) -> None:
    device = open_device(staging_limit=0, device_timeout=0.05)
    asked, is_lost = l1(device.device), threading.Event()
    device.device.watch(lambda error: (device.lost.append(error), is_lost.set()))
    device.simulator.fail("aclrtMemcpy", status=HEARTBEAT, what="hang")
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.run(asked)
    assert is_lost.wait(PATIENCE)
    device.abandon()


def test_pinned_memory_for_pieces_is_that_of_whole_calls(open_device: Open) -> None:
    limit = 1 << 20
    device = open_device(staging_limit=limit)
    small, large = l1(device.device, 50_000), l1(device.device, 100_000)
    assert [device.serves(each) for each in (small, large, small, large)] == [True] * 4
    assert device.simulator.counters()["pinned_bytes_peak"] <= limit


@given(limit=st.integers(1, 1 << 40))
def test_pieces_keep_to_the_limit(limit: int) -> None:
    size = pinned_bytes(limit)
    assert size % (COUNT * 64) == 0
    assert 0 < size <= max(limit, COUNT * 64)


def test_without_pinned_memory_there_are_no_pieces() -> None:
    assert pinned_bytes(0) == 0


@given(
    lengths=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 300)), max_size=8),
    size=st.integers(1, 200),
)
def test_pieces_have_every_byte_once_and_in_its_place(
    lengths: list[tuple[int, int]], size: int
) -> None:
    parts, end = [], 1000
    for gap, length in lengths:
        parts.append(Part(end + gap, np.random.default_rng(length).bytes(length)))
        end += gap + length
    parts = [Part(address, np.frombuffer(data, np.uint8)) for address, data in parts]
    expected = {part.address + i: byte for part in parts for i, byte in enumerate(part.data)}
    pieces = list(pieces_of(parts, size))
    found = [
        (piece.address + offset + i, byte)
        for piece in pieces
        for offset, data in piece.parts
        for i, byte in enumerate(data)
    ]
    assert len(found) == len(expected)
    assert dict(found) == expected
    assert all(0 < piece.length <= size for piece in pieces)
    assert all(first.address + first.length <= second.address for first, second in pairwise(pieces))
