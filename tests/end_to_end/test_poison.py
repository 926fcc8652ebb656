"""The debug mode finds, on every way, a computation that leaves half of its output unwritten."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npucall import memory
from npucall.compute import evaluate
from npucall.compute.work import Work
from npucall_client.testing import ServerProcess

from . import wire
from .test_every_path import WAYS, Case, Clients, run, sharing

ELEMENTS = 300_000
"""More than a message of a stream holds, so that answers come in chunks too."""
ARRAYS = {
    "grad_output": np.full(ELEMENTS, 2, np.float32),
    "self": np.ones(ELEMENTS, np.float32),
    "target": np.ones((ELEMENTS, 2), np.float32)[:, 0],  # gathered before it is computed with
}
CASE = Case("aclnnL1LossBackward", ARRAYS, {"reduction": 0})
POISON = np.frombuffer(bytes([memory.PATTERN] * 4), np.float32)[0]
OF_TWO_SERVERS = "over forgotten memory"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Of a server in this process, whose evaluation the tests break."""
    (flag,) = sharing(tmp_path_factory.mktemp("side") / "socket") or [""]
    side = flag.partition("=")[2] or None
    names = ("parallel", "single", "short chunks")
    with wire.server_here(shared_memory=side) as server:
        clients = Clients(local="local:", **dict.fromkeys(names, server.address))
        yield clients
        clients.close()


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


@pytest.mark.parametrize("way", ["local", *(way for way in WAYS if way != OF_TWO_SERVERS)])
def test_what_a_computation_leaves_unwritten_is_found_on_every_way(
    way: str, clients: Clients
) -> None:
    """And what is whole has nothing of the pattern. Arrays of the caller's are full of 77."""
    like = {"grad_input": np.zeros(ELEMENTS, np.float32)}

    def answer() -> Any:
        if way == "local":
            return run(clients.of("local"), CASE)["grad_input"]
        return WAYS[way](clients, CASE, like)["grad_input"]

    assert set(np.unique(answer())) <= {-2, 0, 2}
    with half_left_out():
        found = answer()
    unwritten = np.count_nonzero((found == POISON) | (found == 77))
    assert unwritten >= ELEMENTS // 4  # half of a few blocks


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
def test_a_server_that_a_test_starts_is_in_the_debug_mode(endless_server: ServerProcess) -> None:
    environment = Path(f"/proc/{endless_server.process.pid}/environ").read_bytes()
    assert b"NPUCALL_POISON=1" in environment.split(b"\0")
