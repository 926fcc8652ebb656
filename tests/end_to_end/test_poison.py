"""The debug mode finds, on every path, a computation that leaves half of its output unwritten."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall import buffers
from npucall.compute import evaluate
from npucall.compute.work import Work
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.dtypes import AnyArray
    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ELEMENTS = 300_000
"""More than a message of a stream holds, so that answers come in chunks too."""
TWOS, ONES = np.full(ELEMENTS, 2, np.float32), np.ones(ELEMENTS, np.float32)
POISON = np.frombuffer(bytes([buffers.PATTERN] * 4), np.float32)[0]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server in this process, whose evaluation the tests break."""
    with wire.server_here(shared_memory=tmp_path_factory.mktemp("side") / "socket") as server:
        yield server.address


@contextmanager
def half_left_out() -> Iterator[None]:
    """Of the blocks that a call, or a piece of one, has."""
    whole: Any = evaluate.compute_blocks

    def half(work: Any, inputs: Any, outputs: Any, indices: Any, *rest: Any) -> None:
        some = [indices[number] for number in range(len(indices) // 2)]
        whole(work, inputs, outputs, some, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "block", 1000)
        patch.setattr(evaluate, "compute_blocks", half)
        yield


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


@pytest.mark.parametrize("way", WAYS)
def test_what_a_computation_leaves_unwritten_is_found_on_every_path(way: str, target: str) -> None:
    """And what is whole has nothing of the pattern."""
    act, options = WAYS[way]
    if act is shared and sys.platform != "linux":
        pytest.skip("shared memory needs Linux")
    with npucall_client.connect(**{"target": target, **options}) as client:
        answer = act(client)
        assert np.abs(answer).max() <= 2
        assert not np.any(answer == POISON)
        with half_left_out():
            unwritten = np.count_nonzero(act(client) == POISON)
    assert unwritten >= ELEMENTS // 4  # half of a few blocks


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
def test_a_server_that_a_test_starts_is_in_the_debug_mode(endless_server: ServerProcess) -> None:
    environment = Path(f"/proc/{endless_server.process.pid}/environ").read_bytes()
    assert b"NPUCALL_POISON=1" in environment.split(b"\0")
