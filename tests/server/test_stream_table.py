"""ExecuteStream against any order of frames: what the table says happens, whatever the timing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npucall.exchange import PASSED_OVER, TRANSITIONS, Event, State

from .streams import MANY, Peer, Served, serving, stream

STORAGES, SIZE = 3, 8
SENT = ("begin", "begin_chunked", "chunk", "end", "cancel")


@dataclass
class Model:
    """What a caller knows of its calls: the table, without the server's answers."""

    states: dict[int, State] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)
    breaks: bool = False
    """A frame that the table does not have: the stream ends."""

    def take(self, call_id: int, kind: str) -> None:
        state = self.states.get(call_id, State.NEW)
        event = Event.BEGIN_CHUNKED if kind == "begin_chunked" else Event(kind)
        if event in PASSED_OVER[state]:
            return
        self.breaks = event not in TRANSITIONS[state] or (
            event is Event.END and self.chunks.get(call_id, 0) < STORAGES
        )
        if event is Event.CHUNK:
            self.chunks[call_id] = self.chunks.get(call_id, 0) + 1
            self.breaks = self.breaks or self.chunks[call_id] > STORAGES
        cancelled = event is Event.CANCEL and state is State.RECEIVING
        self.states[call_id] = State.COMPLETE if cancelled else TRANSITIONS[state].get(event, state)


def send(peer: Peer, model: Model, call_id: int, kind: str) -> None:
    """A frame; of chunks the next one that fits."""
    if kind == "chunk":
        peer.chunk(call_id, min(model.chunks.get(call_id, 0), STORAGES - 1), 0, bytes(SIZE))
    else:
        getattr(peer, kind)(call_id)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(SENT), st.booleans()), max_size=14),
    st.sampled_from([(), MANY]),
)
def test_a_stream_ends_where_the_table_says_and_answers_every_other_call_once(
    served: Served, frames: list[tuple[int, str, bool]], metadata: tuple[tuple[str, str], ...]
) -> None:
    """However the frames are put into messages: True is the last one of its message."""
    model = Model()
    with stream(served, metadata=metadata) as peer:
        while frames and not model.breaks:
            with peer.one_message():
                while frames and not model.breaks:
                    call_id, kind, is_last = frames.pop(0)
                    send(peer, model, call_id, kind)
                    model.take(call_id, kind)
                    if is_last:
                        break
        for call_id, state in model.states.items():
            if state is State.RECEIVING and not model.breaks:
                peer.cancel(call_id)
        peer.close()
        answered, reason = answers(peer)
    begun = set(model.states) - {i for i, s in model.states.items() if s is State.NEW}
    assert len(answered) == len(set(answered))
    assert set(answered) <= begun
    assert reason == ("MESSAGE_MALFORMED" if model.breaks else "OK")
    assert model.breaks or set(answered) == begun


def answers(peer: Peer) -> tuple[list[int], str]:
    """The ids of all answers that come, and the reason with which the stream ends."""
    found, reason = peer.answers()
    return [call_id for call_id, frames in found.items() for _ in frames], reason
