"""Large calls on one host: their arrays are copied to memory of a connection, and from there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.prelu_backward import prelu_backward
from npucall_client import Client
from npucall_client.sending.frames import frame_memory

from . import wire

pytestmark = pytest.mark.usefixtures("sender")
MIB = 2**20
LARGE = np.linspace(0.1, 1, MIB // 2, dtype=np.float32)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with wire.server_here() as server:
        yield server.address


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client


def shared(client: Client) -> int:
    """Bytes of regions."""
    transport: Any = client._transport
    total: int = transport.link.frames.shared_bytes
    return total


def is_right(client: Client, scale: float = 1, **outputs: Any) -> bool:
    array = LARGE * np.float32(scale)
    found = client.options(outputs=outputs).run(kl_div_backward, LARGE, LARGE, array)
    return bool(np.array_equal(found, -(array * LARGE) * np.float32(1 / LARGE.size)))


def test_each_call_has_its_own_numbers_in_memory_that_is_kept(client: Client) -> None:
    assert is_right(client)
    before = shared(client)
    assert before >= 2 * LARGE.nbytes
    first = client.run(kl_div_backward, LARGE, LARGE, LARGE)
    assert is_right(client, 3)
    assert np.array_equal(first, -(LARGE * LARGE) * np.float32(1 / LARGE.size))
    known = shared(client)  # from the second call on there is room for the output too
    assert known == 3 * before
    given = np.zeros((LARGE.size, 2), np.float32)[:, 0]
    for scale in range(4, 8):
        assert is_right(client, scale, out=given)
    assert shared(client) == known


def test_a_large_result_lies_there_also_if_its_call_is_small_or_has_handles(client: Client) -> None:
    one = LARGE[:1]
    with client.session() as session:
        held = [session.put(LARGE * np.float32(scale)) for scale in (1, 2, 3)]
        for scale, remote in enumerate(held, start=1):  # from the second call on
            found = client.run(kl_div_backward, one, LARGE, remote)
            expected = -(LARGE * np.float32(scale) * one) * np.float32(1 / LARGE.size)
            assert np.array_equal(found, expected)
            assert (shared(client) > 0) == (scale > 1)


def test_callers_have_memory_of_their_own_and_several_outputs_come_apart(client: Client) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(is_right, [client] * 16, range(16)))
    assert shared(client) >= 3 * LARGE.nbytes
    grad = LARGE.reshape(2, -1)
    weight = np.ones(1, np.float32)
    with npucall_client.connect("local:") as local:
        expected = local.run(prelu_backward, grad, -grad, weight)
    for _ in range(2):
        found = client.run(prelu_backward, grad, -grad, weight)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
            one[:] = 0


def test_beyond_its_bound_arrays_travel_and_nothing_stays_on_the_server(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_memory, "_MOST_SHARED", 3 * LARGE.nbytes)
    with npucall_client.connect(target) as client:
        assert is_right(client)
        assert is_right(client)
        assert 0 < shared(client) <= 3 * LARGE.nbytes
        many = np.tile(LARGE, 4)
        client.run(kl_div_backward, many, many, many)
        assert shared(client) <= 3 * LARGE.nbytes
    with wire.bare_channel(target) as channel:
        wire.until(lambda: not wire.server_info(channel).bytes_in_flight, "it was given back")
