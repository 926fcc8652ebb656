"""Shared memory of a server on a simulated NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.npu import spotless_npu_server
from tests.shared import Memory

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

from . import wire
from .test_shared_memory_server import L1, execute, mapped, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc

    from npucall_client.testing import ServerProcess

SIZE = 2**22
LIMITS = {
    "whole": ["--staging-limit=64MiB"],
    "in pieces": ["--staging-limit=1MiB"],
    "waiting": ["--staging-limit=0"],
}


@pytest.fixture(scope="module", params=LIMITS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """However tensors are copied."""
    folder = tmp_path_factory.mktemp("s")
    flags = [f"--shared-memory={folder / 'side.sock'}"]
    flags += LIMITS[request.param]
    with spotless_npu_server(folder, *flags) as server:
        yield server
        assert mapped(server) == 0


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with wire.bare_channel(server.target) as channel:
        yield channel
    wire.until(lambda: mapped(server) == 0, "no memory is mapped")


@pytest.fixture
def side(channel: grpc.Channel) -> str:
    return wire.server_info(channel).shared_memory_socket


@pytest.mark.parametrize("elements", [0, 1, 1000, 2**16])
def test_an_npu_reads_and_writes_where_tensors_lie(
    channel: grpc.Channel, side: Path, elements: int
) -> None:
    with Memory(side, SIZE) as memory:
        call = L1(memory, elements)
        (storage,) = execute(channel, call.request(call.place)).storage
        assert storage.region == call.place.region
        assert call.written() == call.expected


def test_gaps_of_an_output_stay_as_the_client_left_them(channel: grpc.Channel, side: Path) -> None:
    with Memory(side, SIZE) as memory:
        call = L1(memory, 4)
        request = call.request(call.place)
        output = wire.tensor("grad_input", 4, strides=[2], storage_shape=[8])
        request.call.arguments.append(output)
        request.storage.append(memory.put(4096, b"\xa5" * 32))
        request.output_places[0].region.CopyFrom(memory.region(4096, 32))
        execute(channel, request)
        found = np.frombuffer(memory.bytes[4096 : 4096 + 32], np.uint8).reshape(4, 2, 4)
        assert found[:, 0].tobytes() == call.expected
        assert found[:, 1].tobytes() == b"\xa5" * 16


def test_labels_in_shared_memory_that_are_no_class_never_reach_the_npu(
    channel: grpc.Channel, side: Path
) -> None:
    with Memory(side, SIZE) as memory:
        row = tensor_pb2.TensorSpec(dtype=wire.FLOAT, shape=[2, 3])
        arguments = [
            wire.tensor("grad_loss", 1),
            pb.Argument(name="log_prob", stored=True, tensor=row),
            wire.tensor("target", 2, dtype=tensor_pb2.DATA_TYPE_INT64),
            pb.Argument(name="reduction", text="mean"),
        ]
        call = pb.Call(operator="aclnnCrossEntropyLossGrad", arguments=arguments)
        storage = [memory.put(0, bytes(4)), memory.put(64, bytes(24)), memory.put(128, bytes(16))]
        request = pb.ExecuteRequest(call=call, storage=storage)
        assert refusal(channel, request) == "OK"
        memory.put(128, np.array([1, 3], np.int64).tobytes())
        assert refusal(channel, request) == "ARGUMENT_INVALID"
