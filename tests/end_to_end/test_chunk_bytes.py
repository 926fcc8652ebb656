"""Servers with chunks of another length: what they tell, what they send, what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.exchange import Chunk
from npucall.wire.frames import split_response_frame
from npucall_client.remote import large_call as streaming
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.dtypes import AnyArray
    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

KIB = 2**10
NUMBERS = np.random.default_rng(1).standard_normal((3, 1500, 1001))
"""Of no dtype a whole number of chunks."""
CALLS: dict[str, Callable[[AnyArray], tuple[Any, ...]]] = {
    "aclnnKlDivBackward": lambda arrays: (*arrays, 0),  # computed as its chunks come
    "aclnnSoftmaxBackward": lambda arrays: (arrays[0], arrays[1], -1),  # when all have come
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--chunk-bytes=64KiB") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with npucall_client.connect(server.target, stream_from=0) as client:
        yield client


def test_the_setting_is_told(server: ServerProcess) -> None:
    with wire.bare_channel(server.target) as channel:
        assert wire.server_info(channel).limits.chunk_bytes == 64 * KIB


def test_chunks_are_that_long_in_both_directions(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: dict[str, list[int]] = {"sent": [], "received": []}
    outgoing = streaming.outgoing

    def split(message: bytes) -> Any:
        call_id, frame = split_response_frame(message)
        if isinstance(frame, Chunk):
            lengths["received"].append(len(frame.data))
        return call_id, frame

    def sent(*arguments: Any, **named: Any) -> Iterator[bytes]:
        for frame in outgoing(*arguments, **named):
            lengths["sent"].append(len(frame))
            yield frame

    monkeypatch.setattr(streaming, "split_response_frame", split)
    monkeypatch.setattr(streaming, "outgoing", sent)
    client.run("aclnnKlDivBackward", *NUMBERS.astype(np.float32), 0)
    assert max(lengths["received"]) == 64 * KIB
    assert 64 * KIB < max(lengths["sent"]) <= 64 * KIB + 64  # the frame besides its data


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("operator", CALLS)
def test_results_have_the_same_bits_as_with_the_chunks_of_a_server_as_it_comes(
    npucall_server: str, client: Client, operator: str, dtype: Any
) -> None:
    arguments = CALLS[operator](NUMBERS.astype(dtype))
    with npucall_client.connect(npucall_server, stream_from=0) as other:
        expected = other.run(operator, *arguments)
    np.testing.assert_array_equal(bits(client.run(operator, *arguments)), bits(expected))
    with client.pipeline() as pipeline:
        result = pipeline.submit(operator, *arguments).result(wire.PATIENCE)
    np.testing.assert_array_equal(bits(result), bits(expected))


def bits(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array).view(np.uint8)
