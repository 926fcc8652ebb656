"""Callers whose arrays are in shared memory, and a server that goes."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import SharedMemoryError, TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall.dtypes import AnyArray
    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = [
    pytest.mark.usefixtures("sender_in_sweeps"),
    pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory"),
]
MIB = 2**20
ONE = np.ones((), np.float32)
NUMBERS = np.arange(-MIB, MIB, dtype=np.float32)
SIGNS = np.sign(NUMBERS)


@contextmanager
def server(folder: Path, listen: str = "127.0.0.1:0") -> Iterator[ServerProcess]:
    flags = (f"--shared-memory={folder}/socket", "--shared-memory-limit=128MiB")
    with running_server(*flags, listen=listen) as server:
        yield server


def signs(client: Client, array: AnyArray, out: AnyArray) -> AnyArray:
    writing = client.options(outputs={"grad_input": out})
    return writing.run(l1_loss_backward, ONE, array, 0 * ONE, reduction=2)


def test_a_server_that_was_killed_gets_the_bytes_once_it_is_back(tmp_path: Path) -> None:
    with server(tmp_path) as first:
        client = npucall_client.connect(first.target)
        memory = client.shared(32 * MIB)
        array, out = memory.array(NUMBERS), memory.zeros(NUMBERS.shape, np.float32)
        first.process.kill()
        first.process.wait()
    with server(tmp_path, first.target), client:
        with pytest.warns(RuntimeWarning, match="shared memory"):
            assert np.array_equal(signs(client, array, out), SIGNS)
        assert np.array_equal(signs(client, array, np.zeros_like(out)), SIGNS)
        assert not memory.shared


@pytest.mark.more
def test_a_server_that_was_stopped_shares_new_memory_once_it_is_back(tmp_path: Path) -> None:
    with server(tmp_path) as first:
        client = npucall_client.connect(first.target)
        gone = client.shared(MIB)
        assert first.stop() == 0
    with server(tmp_path, first.target), client, client.shared(32 * MIB) as memory:
        array, out = memory.array(NUMBERS), memory.zeros(NUMBERS.shape, np.float32)
        assert signs(client, array, out) is out
        assert np.array_equal(out, SIGNS)
        gone.close()
        assert memory.shared


def test_a_pipeline_goes_on_over_a_restart(tmp_path: Path) -> None:
    with server(tmp_path) as first:
        client = npucall_client.connect(first.target)
        memory = client.shared(32 * MIB)
        array = memory.array(NUMBERS)
        pipeline = client.pipeline()
        pipeline.submit(l1_loss_backward, ONE, array, 0 * ONE, reduction=2).result(wire.PATIENCE)
        first.process.kill()
        first.process.wait()
    with server(tmp_path, first.target), client, pipeline:
        with pytest.warns(RuntimeWarning, match="shared memory"):
            result = pipeline.submit(l1_loss_backward, ONE, array, 0 * ONE, reduction=2).result()
        assert np.array_equal(result, SIGNS)


def test_outputs_beside_those_in_shared_memory_may_be_long(tmp_path: Path) -> None:
    given = np.full((1, MIB), -2, np.float32)
    with server(tmp_path) as one, npucall_client.connect(one.target) as client:
        with client.shared(32 * MIB) as memory:
            array, out = memory.array(given), memory.zeros(given.shape, np.float32)
            calls = client.options(outputs={"grad_input": out})
            with calls.pipeline() as pipeline:
                call = pipeline.submit("aclnnPreluBackward", array, array, array[0])
                sums = call.answer(wire.PATIENCE).outputs["grad_weight"]
        assert (np.unique(out).tolist(), np.unique(sums).tolist()) == ([4.0], [4.0])


def test_the_servers_limit_is_its_own_error(tmp_path: Path) -> None:
    with server(tmp_path) as one, npucall_client.connect(one.target) as client:
        with pytest.raises(TooLargeError, match="shared_memory_limit"):
            client.shared(65 * MIB)
        with client.shared(64 * MIB) as memory:
            assert memory.zeros(1, np.uint8) == 0


def test_a_server_without_the_setting_says_so() -> None:
    with (
        running_server() as one,
        npucall_client.connect(one.target) as client,
        pytest.raises(SharedMemoryError, match="--shared-memory PATH"),
    ):
        client.shared(MIB)
