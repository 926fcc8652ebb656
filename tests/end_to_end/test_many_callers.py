"""Many callers at once: each has his own answer, to the bit, and nothing of another's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from . import wire
from .test_every_path import Case, bits, expected, quick, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client


@pytest.fixture(scope="module")
def calls() -> list[tuple[Case, Any]]:
    """With the bits of each in this process."""
    return [(case, bits(expected(case))) for case in quick() if len(case.inputs) < 5] * 4


def check_in_16_threads(calls: list[tuple[Case, Any]], *clients: Client) -> None:
    def found(number: int) -> Any:
        return bits(run(clients[number % len(clients)], calls[number][0]))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(found, range(len(calls)))) == [right for _, right in calls]


@pytest.mark.parametrize("connections", [1, 16])
def test_16_threads_get_the_bits_that_this_process_has(
    npucall_server: str, calls: list[tuple[Case, Any]], connections: int
) -> None:
    with ExitStack() as stack:
        clients = [npucall_client.connect(npucall_server) for _ in range(connections)]
        for client in clients:
            stack.enter_context(client)
        check_in_16_threads(calls, *clients)


@pytest.mark.long
def test_thousands_of_calls_leave_the_server_as_it_was(calls: list[tuple[Case, Any]]) -> None:
    """A soak of 100 rounds; the first ones fill caches and start threads."""
    with (
        running_server() as server,
        wire.bare_channel(server.target) as channel,
        npucall_client.connect(server.target) as one,
        npucall_client.connect(server.target) as other,
    ):
        for _ in range(10):
            check_in_16_threads(calls, one, other)
        before = wire.resident_bytes(server.process.pid)
        for _ in range(100):
            check_in_16_threads(calls, one, other)
        assert wire.resident_bytes(server.process.pid) - before < 32 * 2**20
        info = wire.server_info(channel)
        assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


INPUTS = ("grad_output", "self", "target")
SECRET = b"\xaa" * 64
"""Of one caller; another one must never see a byte of it."""


@pytest.fixture
def channel(npucall_server: str) -> Iterator[Any]:
    """A connection, after a caller has left secrets all over the server's memory."""
    with wire.bare_channel(npucall_server) as channel:
        tensors = [wire.tensor(name, 16) for name in INPUTS]
        request = wire.request_of("aclnnL1LossBackward", tensors, SECRET, SECRET, SECRET)
        large = [wire.tensor(name, 2**18) for name in INPUTS]
        for _ in range(20):
            wire.ask(channel, "Execute", request)
            wire.ask(
                channel,
                "Execute",
                wire.request_of("aclnnL1LossBackward", large, *[SECRET * 2**14] * 3),
            )
        yield channel


def outputs(channel: Any, request: bytes) -> bytes:
    answer = pb.ExecuteResponse.FromString(wire.ask(channel, "Execute", request))
    (storage,) = answer.storage
    return storage.data


def test_gaps_of_an_outputs_storage_come_back_as_they_were_sent(channel: Any) -> None:
    """Two elements, ``columns`` apart, within a storage of sevens."""
    for columns in 3, 2**17:
        sent = np.full(2 * columns + 1, 7, np.float32)
        data = np.ones(2, np.float32).tobytes()
        tensors = [wire.tensor(name, 2) for name in INPUTS]
        out = wire.tensor("grad_input", 2, strides=[columns], offset=1, storage_shape=[sent.size])
        request = wire.request_of(
            "aclnnL1LossBackward", [*tensors, out], *[data] * 3, sent.tobytes()
        )
        received = np.frombuffer(outputs(channel, request), np.float32)
        sent[[1, 1 + columns]] = 0  # self equals target
        assert received.tolist() == sent.tolist()


def test_an_output_that_nothing_is_added_to_is_zeros(channel: Any) -> None:
    """Either ``target`` is empty and ``self`` is not: a sum of nothing for each element.

    Or all are: the community operator's empty exit stands before its check of the output's shape.
    """
    for extent in 1, 1000, 2**18:
        unread, none = (
            wire.tensor("self", 1, extent, stored=False),
            wire.tensor("target", 0, extent),
        )
        request = wire.request_of(
            "aclnnKlDivBackward", [wire.tensor("grad_output"), unread, none], SECRET[:4], b""
        )
        assert outputs(channel, request) == bytes(4 * extent)
        tensors = [wire.tensor(name, 0) for name in INPUTS]
        out = wire.tensor("grad_target", extent, stored=False)
        request = wire.request_of("aclnnKlDivTargetBackward", [*tensors, out], b"", b"", b"")
        assert outputs(channel, request) == bytes(4 * extent)
