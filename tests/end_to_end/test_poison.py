"""The debug mode finds, on every path, a computation that leaves half of its output unwritten."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall import buffers
from npucall.compute import evaluate
from npucall.compute.work import Work
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server
from npucall_server.app import Server, build
from npucall_server.devices import open_device
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.dtypes import AnyArray
    from npucall_client import Client

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ELEMENTS = 300_000
"""More than a message of a stream holds, so that answers come in chunks too."""
TWOS, ONES = np.full(ELEMENTS, 2, np.float32), np.ones(ELEMENTS, np.float32)
POISON = np.frombuffer(bytes([buffers.PATTERN] * 4), np.float32)[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In this process, whose evaluation the tests break."""
    settings = ServerSettings(
        listen="127.0.0.1:0", shared_memory=tmp_path_factory.mktemp("side") / "socket"
    )
    device = open_device(settings, print)
    server = Server(build(settings, device, Log(stream=io.StringIO())))
    server.start()
    yield server
    assert server.drain()
    device.close()


@pytest.fixture
def _half_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the blocks that a call, or a piece of one, has."""
    whole: Any = evaluate.compute_blocks

    def half(work: Any, inputs: Any, outputs: Any, indices: Any, *rest: Any) -> None:
        some = [indices[number] for number in range(len(indices) // 2)]
        whole(work, inputs, outputs, some, *rest)

    monkeypatch.setattr(Work, "block", 1000)
    monkeypatch.setattr(evaluate, "compute_blocks", half)


def run(client: Client, *arrays: Any) -> AnyArray:
    answer: AnyArray = client.run(l1_loss_backward, *(arrays or (TWOS, ONES, ONES)), reduction=0)
    return answer


def unary(client: Client) -> AnyArray:
    return run(client)


def inline(client: Client) -> AnyArray:
    with client.pipeline() as pipeline:
        answer: AnyArray = pipeline.submit(l1_loss_backward, TWOS, ONES, ONES, reduction=0).result(
            30
        )
    return answer


def into_an_array_of_the_caller(client: Client) -> AnyArray:
    out = np.zeros(ELEMENTS, np.float32)
    call = client.options(outputs={"grad_input": out})
    call.run("aclnnL1LossBackward", TWOS, ONES, ONES, reduction=0)
    return out


def whole_from_chunks(client: Client) -> AnyArray:
    """Strided inputs are gathered before they are computed with."""
    wide = np.full((ELEMENTS, 2), 2, np.float32)[:, 0]
    return run(client, wide, np.ones((ELEMENTS, 2), np.float32)[:, 0], ONES)


def shared(client: Client) -> AnyArray:
    with client.shared(2**23) as memory:
        out = memory.zeros((ELEMENTS,), np.float32)
        call = client.options(outputs={"grad_input": out})
        arrays = [memory.array(array) for array in (TWOS, ONES, ONES)]
        call.run("aclnnL1LossBackward", *arrays, reduction=0)
        return out.copy()


WAYS: dict[str, tuple[Callable[[Client], AnyArray], dict[str, Any]]] = {
    "unary": (unary, {}),
    "inline in a stream": (inline, {}),
    "into an array of the caller": (into_an_array_of_the_caller, {}),
    "pieces, as chunks come": (unary, {"stream_from": 0}),
    "chunks": (whole_from_chunks, {"stream_from": 0}),
    "shared memory": (shared, {}),
    "local": (unary, {"target": "local:"}),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, server: Server) -> Iterator[Callable[[], AnyArray]]:
    act, options = WAYS[request.param]
    if act is shared and sys.platform != "linux":
        pytest.skip("shared memory needs Linux")
    with npucall_client.connect(**{"target": server.address, **options}) as client:
        yield lambda: act(client)


def test_what_is_whole_has_nothing_of_the_pattern(way: Callable[[], AnyArray]) -> None:
    assert np.abs(way()).max() <= 2
    assert not np.any(way() == POISON)


@pytest.mark.usefixtures("_half_is_left_out")
def test_what_a_computation_leaves_unwritten_is_found_on_every_path(
    way: Callable[[], AnyArray],
) -> None:
    unwritten = np.count_nonzero(way() == POISON)
    assert unwritten >= ELEMENTS // 4  # half of a few blocks


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
def test_a_server_that_a_test_starts_is_in_the_debug_mode() -> None:
    with running_server() as one:
        environment = Path(f"/proc/{one.process.pid}/environ").read_bytes()
    assert b"NPUCALL_POISON=1" in environment.split(b"\0")
