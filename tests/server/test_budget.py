"""What may be on its way in, by the memory that there is."""

from __future__ import annotations

import pytest

from npucall.limits import FRAME_BYTES, GIB, KIB, MIB
from npucall_server.budget import LISTING_MESSAGES, Budget
from npucall_server.settings import ServerSettings

_PROCESS = 120 * MIB
"""Of a server that has done nothing yet."""


def of(memory: int, descriptors: int = 10_000, **settings: object) -> Budget:
    return Budget.of(ServerSettings(memory_limit=memory, **settings), descriptors)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [64 * MIB, 256 * MIB, GIB, 4 * GIB, 12 * GIB, 512 * GIB])
def test_all_of_it_keeps_the_promise_of_the_memory_limit(memory: int) -> None:
    budget = of(memory)
    messages = budget.messages + budget.max_streams + LISTING_MESSAGES
    most = memory + messages * budget.max_message_bytes + _PROCESS
    assert most < 1.5 * memory + 256 * MIB


@pytest.mark.parametrize(
    ("memory", "message", "streams", "messages"),
    [(256 * MIB, 8 * MIB, 8, 12), (GIB, 16 * MIB, 10, 12), (12 * GIB, 16 * MIB, 64, 100)],
)
def test_what_follows_from_the_memory(
    memory: int, message: int, streams: int, messages: int
) -> None:
    budget = of(memory)
    found = (budget.max_message_bytes, budget.max_streams, budget.messages)
    assert found == (message, streams, messages)


def test_a_small_server_takes_a_few_of_everything() -> None:
    budget = of(1)
    assert min(budget.messages, budget.max_streams) >= 4
    assert budget.max_message_bytes == 256 * KIB


def test_what_is_set_counts() -> None:
    budget = of(GIB, max_message_bytes="1MiB", max_streams=0, max_connections=3)
    assert (budget.max_message_bytes, budget.max_streams, budget.max_connections) == (MIB, 0, 3)


def test_a_chunk_fits_into_a_message() -> None:
    assert of(GIB, max_message_bytes="1MiB").chunk_bytes == MIB - FRAME_BYTES
    assert of(GIB, max_message_bytes=10).chunk_bytes == 1


def test_there_are_no_more_connections_than_descriptors() -> None:
    assert of(GIB, descriptors=7).max_connections == 7
