"""npucall_server.calls.arrivals: chunks become pieces of whole elements."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.fakes import INPUTS, PATIENCE, prepared, until

from npucall.compute import evaluate, pieces
from npucall.dtypes import FLOAT
from npucall.errors import CancelledError
from npucall.tensors import TensorSpec
from npucall_server.calls import arrivals
from npucall_server.calls.arrivals import Arrivals

ELEMENTS = 50_000
SIZE = 4 * ELEMENTS
CALL = prepared(ELEMENTS)
DATA = [
    np.random.default_rng(n).standard_normal(ELEMENTS).astype(np.float32).tobytes()
    for n in range(3)
]
(EXPECTED,) = evaluate.run(CALL, dict(zip(INPUTS, DATA, strict=True)))
LENGTHS = st.lists(st.sampled_from([1, 2, 3, 4, 1000, 40_001, 65_536, 65_537, 99_999]), min_size=1)
"""Of chunks, in turn; some are kept as they come, some end inside an element."""


def chunks(storage: int, lengths: list[int]) -> Iterator[tuple[int, memoryview]]:
    """A storage cut into chunks, the first hundred of these lengths and the rest as one."""
    start, data = 0, memoryview(DATA[storage])
    for number in range(100):
        stop = start + lengths[number % len(lengths)]
        if start < SIZE:
            yield storage, memoryview(bytes(data[start:stop]))
        start = stop
    if start < SIZE:
        yield storage, memoryview(bytes(data[start:]))


def in_order(
    first: list[int], second: list[int], third: list[int], seed: int
) -> Iterator[tuple[int, memoryview]]:
    """The chunks of three storages, those of each in order."""
    left = [chunks(storage, lengths) for storage, lengths in enumerate((first, second, third))]
    random = np.random.default_rng(seed)
    while left:
        source = left[random.integers(len(left))]
        chunk = next(source, None)
        if chunk is None:
            left.remove(source)
        else:
            yield chunk


@given(LENGTHS, LENGTHS, LENGTHS, st.integers(0, 99))
def test_any_chunks_in_any_order_give_the_bits_of_the_whole(
    first: list[int], second: list[int], third: list[int], seed: int
) -> None:
    subject = Arrivals(CALL)
    for storage, data in in_order(first, second, third, seed):
        subject.put(storage, data)
    subject.end()
    assert pieces.run(CALL, subject) == [EXPECTED]
    assert subject.held_bytes == 0


def test_bytes_one_at_a_time_become_one_piece() -> None:
    call, subject = prepared(100), Arrivals(prepared(100))
    for index in range(400):
        for storage in range(3):
            subject.put(storage, memoryview(DATA[storage])[index : index + 1])
    subject.end()
    found = list(subject)
    assert [(piece.start, piece.stop) for piece in found] == [(0, 100)]
    sent = {name: data[:400] for name, data in zip(INPUTS, DATA, strict=True)}
    assert {name: bytes(part) for name, part in found[0].inputs.items()} == sent
    assert call.stored == INPUTS


def test_small_chunks_are_computed_before_the_last_one_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever they end in."""
    monkeypatch.setattr(arrivals, "_GATHERED_BYTES", 10_000)
    subject = Arrivals(CALL)
    for storage in range(3):
        for start in range(0, 10_000, 999):
            subject.put(storage, memoryview(DATA[storage])[start : start + 999])
    assert next(subject).stop == 2747  # whole elements of eleven chunks, 10,989 bytes


def test_a_large_chunk_is_not_copied() -> None:
    subject = Arrivals(CALL)
    sent = [memoryview(bytes(SIZE)) for _ in range(3)]
    for storage, data in enumerate(sent):
        subject.put(storage, data)
    parts = next(subject).inputs.values()
    assert all(part.obj is data.obj for part, data in zip(parts, sent, strict=True))  # type: ignore[union-attr]


def test_a_chunk_in_a_message_of_padding_does_not_keep_its_message() -> None:
    subject = Arrivals(CALL)
    message = bytes(10 * SIZE)
    for storage in range(3):
        subject.put(storage, memoryview(message)[:SIZE])
    parts = next(subject).inputs.values()
    assert all(memoryview(part).obj is not message for part in parts)


def test_chunks_that_come_in_turn_are_held_no_longer_than_their_turn() -> None:
    """Of 600,000 bytes at most a chunk of each storage."""
    subject, most = Arrivals(CALL), 0
    for parts in zip(*(chunks(storage, [66_000]) for storage in range(3)), strict=True):
        for storage, data in parts:
            subject.put(storage, data)
        most = max(most, subject.held_bytes)
        next(subject)
        assert subject.held_bytes == 0
    assert most == 3 * 66_000


def test_a_number_must_be_whole_before_anything_is_computed() -> None:
    call = prepared(ELEMENTS, grad_output=TensorSpec(FLOAT, ()))
    subject, data = Arrivals(call), memoryview(bytes(SIZE))
    subject.put(1, data)
    subject.put(2, data)
    subject.put(0, b"\0\0\0")
    assert not subject._ready()
    subject.put(0, b"\0")
    assert (next(subject).stop, len(subject._parts)) == (ELEMENTS, 3)


def test_what_no_formula_reads_is_dropped() -> None:
    subject = Arrivals(prepared(ELEMENTS, "aclnnKlDivBackward"))
    subject.put(1, memoryview(bytes(SIZE)))
    assert subject.held_bytes == 0
    subject.put(0, DATA[0])
    subject.put(2, DATA[2])
    assert next(subject).inputs.keys() == {"grad_output", "target"}


@pytest.mark.parametrize(
    ("storages", "act", "told"),
    [
        (2, lambda subject: subject.put(2, DATA[2]), "a piece"),
        (3, Arrivals.end, "the end"),
        (1, Arrivals.stop, "stopped"),
    ],
)
def test_who_waits_is_told_of_a_piece_of_the_end_and_that_nothing_is_wanted_any_more(
    storages: int, act: Callable[[Arrivals], object], told: str
) -> None:
    subject = Arrivals(CALL)
    for storage in range(storages):
        subject.put(storage, DATA[storage])
    if storages == 3:
        next(subject)

    def wait() -> str:
        try:
            return "a piece" if next(subject, None) else "the end"
        except CancelledError:
            return "stopped"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        until(lambda: bool(subject._changed._waiters), "it waits")  # type: ignore[attr-defined]
        act(subject)
        assert waiting.result(PATIENCE) == told
    assert subject.waited_ns > 0


def test_what_is_not_wanted_any_more_is_freed_and_no_more_is_kept() -> None:
    subject = Arrivals(CALL)
    subject.put(0, DATA[0])
    subject.stop()
    subject.put(1, DATA[1])
    assert subject.held_bytes == 0
    with pytest.raises(CancelledError):
        next(subject)
