"""Many callers at once: each has his own answer, to the bit, and nothing of another's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.operators import CATALOGUE
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import AnyArray
    from npucall_client import Client

FOUNDING = ("aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnKlDivTargetBackward")
OPERATORS = [operator for operator in CATALOGUE if operator.name in FOUNDING]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
SHAPES = [(), (3,), (0, 4), (2, 1, 5), (257, 300)]  # the last one is more than one block


@pytest.fixture(scope="module")
def local() -> Iterator[Client]:
    with npucall_client.connect("local:", soc="Ascend910B1") as client:
        yield client


def arguments(seed: int, dtype: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    tensors = {
        name: random.normal(size=shape).astype(dtype) for name in ("grad_output", "self", "target")
    }
    return {**tensors, "reduction": seed % 3}


def bits(array: AnyArray) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes()


def mixed_calls() -> list[tuple[Any, dict[str, Any]]]:
    kinds = [(o, d, s) for o in OPERATORS for d in DTYPES for s in SHAPES]
    return [
        (operator, arguments(seed, dtype, shape))
        for seed, (operator, dtype, shape) in enumerate(kinds * 2)
    ]


@pytest.mark.parametrize("connections", [1, 16])
def test_16_threads_get_the_bits_that_one_gets(
    npucall_server: str, local: Client, connections: int
) -> None:
    calls = mixed_calls()
    expected = [bits(local.run(operator, **given)) for operator, given in calls]
    clients = [npucall_client.connect(npucall_server) for _ in range(connections)]

    def run(number: int) -> tuple[object, ...]:
        operator, given = calls[number]
        return bits(clients[number % connections].run(operator, **given))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(run, range(len(calls)))) == expected
    for client in clients:
        client.close()


@pytest.mark.long
def test_thousands_of_calls_leave_the_server_as_it_was(local: Client) -> None:
    """A soak of 100 rounds; the first ones fill caches and start threads."""
    with running_server() as server, wire.bare_channel(server.target) as channel:
        for _ in range(10):
            test_16_threads_get_the_bits_that_one_gets(server.target, local, 4)
        before = wire.resident_bytes(server.process.pid)
        for _ in range(100):
            test_16_threads_get_the_bits_that_one_gets(server.target, local, 4)
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
