"""The ways of copying: as a whole, in pieces, waiting. Ordinary memory is never copied late."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npucall_server.devices.cann.copies import COUNT, Part, pieces_of, pinned_bytes
from npucall_server.devices.cann.launch import Launcher
from npucall_server.devices.cann.stopwatch import Stopwatch
from npucall_server.devices.cann.transfer import Transfer

from .calls import SMALL_ASKS, WAYS, in_place, l1, large, longer
from .faults import OVERFLOW, failure
from .opened import Open, Opened, bytes_of

SLOWLY = 100_000
"""Bytes a second: what a copy reads late is not read before the host has gone on."""


@pytest.fixture
def in_pieces(open_device: Open) -> Opened:
    return open_device(**WAYS["in pieces"])


@pytest.mark.parametrize("way", WAYS)
def test_no_asynchronous_copy_is_given_ordinary_memory(open_device: Open, way: str) -> None:
    device, wrong = open_device(**WAYS[way]), []
    for ask in SMALL_ASKS if way == "in pieces" else [*SMALL_ASKS, large]:
        case = ask(device)
        wrong += [] if device.answers(case) == case.answers else [ask]
        wrong += [ask] * device.simulator.counters()["pageable_copies"]
    assert wrong == []


def test_nor_where_an_output_that_is_sent_goes_into_a_handle(any_way: Opened) -> None:
    case = in_place(any_way)
    (name,) = case.call.outputs
    kept = any_way.device.allocate(len(case.answers[0]))
    any_way.run(case, targets={name: kept})
    assert bytes_of(kept) == case.answers[0]
    assert any_way.simulator.counters()["pageable_copies"] == 0
    kept.free()


def test_what_happens_to_inputs_behind_their_copy_is_not_seen(
    any_way: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = longer(any_way)
    storages = {name: bytearray(data) for name, data in case.storages.items()}
    launch, of_the_call = Launcher.launch, any_way.device._operators.function(case.call.operator)

    def changed(launcher: Launcher, function: Any, *arguments: Any) -> int:
        for data in storages.values() if function is of_the_call else ():
            data[:] = bytes(len(data))
        return launch(launcher, function, *arguments)

    any_way.simulator.set_delays(bytes_per_second=SLOWLY)
    monkeypatch.setattr(Launcher, "launch", changed)
    assert any_way.answers(case._replace(storages=storages)) == case.answers


class Fresh(dict[str, bytes]):
    """Storages that nobody holds but who has asked for them."""

    def __getitem__(self, name: str) -> bytes:
        return bytes(bytearray(super().__getitem__(name)))


@pytest.mark.parametrize(("way", "count"), [("whole", 100_000), ("in pieces", 2_000),
                                            ("waiting", 100_000)])  # fmt: skip
def test_inputs_are_held_while_they_are_copied(open_device: Open, way: str, count: int) -> None:
    device = open_device(**WAYS[way])
    case = l1(device, count)
    assert device.answers(case._replace(storages=Fresh(case.storages))) == case.answers


def test_where_no_event_can_be_had_copies_in_pieces_wait_for_the_stream(in_pieces: Opened) -> None:
    case = longer(in_pieces)
    in_pieces.simulator.fail("aclrtCreateEventExWithFlag", status=OVERFLOW)
    for nth in range(1, 40, 3):
        in_pieces.simulator.fail("aclrtRecordEvent", nth, status=OVERFLOW)
    assert in_pieces.answers(case) == case.answers


def test_events_are_made_once(in_pieces: Opened) -> None:
    case = longer(in_pieces)
    assert in_pieces.serves(case)
    assert "aclrtCreateEventExWithFlag" not in in_pieces.functions(lambda: in_pieces.run(case))


def test_a_call_of_which_a_copy_fails_fills_no_output(in_pieces: Opened) -> None:
    case = longer(in_pieces)
    targets = {name: bytearray(spec.storage_bytes) for name, spec in case.call.outputs.items()}
    in_pieces.simulator.fail("aclrtMemcpyAsync", 3, status=OVERFLOW, what="at_sync")
    assert failure(partial(in_pieces.run, case, targets=targets)) is not None
    assert [bytes(target) for target in targets.values()] == [bytes(len(case.answers[0]))]
    assert in_pieces.serves(case)


def test_pinned_memory_for_pieces_is_that_of_whole_calls(open_device: Open) -> None:
    limit = 1 << 20
    device = open_device(staging_limit=limit)
    small, larger = l1(device, 50_000), l1(device, 100_000)
    assert [device.serves(each) for each in (small, larger, small, larger)] == [True] * 4
    assert device.simulator.counters()["pinned_bytes_peak"] <= limit


def test_staging_is_filled_before_the_time_of_the_copy_begins(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def note(owner: type, name: str) -> None:
        method = getattr(owner, name)
        noted = lambda *arguments: (steps.append(name), method(*arguments))[1]  # noqa: E731
        monkeypatch.setattr(owner, name, noted)

    for owner, name in (Transfer, "stage"), (Stopwatch, "mark"), (Transfer, "send"):
        note(owner, name)
    device.run(l1(device))
    assert steps[:4] == ["stage", "mark", "send", "mark"]


@given(limit=st.integers(1, 1 << 40))
def test_pieces_keep_to_the_limit(limit: int) -> None:
    size = pinned_bytes(limit)
    assert size % (COUNT * 64) == 0
    assert 0 < size <= max(limit, COUNT * 64)
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
        data = np.random.default_rng(length).bytes(length)
        parts.append(Part(end + gap, np.frombuffer(data, np.uint8)))
        end += gap + length
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
