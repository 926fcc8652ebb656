"""``client.shared``: arrays in it, and a server that goes while it is asked for memory."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.client.fake_server import MIB, connected
from tests.client.fake_side_socket import SharingServer, hangs_up, side_socket

from npucall.errors import DeadlineError, DTypeError, SharedMemoryError
from npucall_client import Client
from npucall_client.sending import attempts

BOTH_SENDERS = pytest.mark.usefixtures("sender")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")
ONE = np.ones((), np.float32)


def test_an_array_has_the_shape_dtype_and_values_asked_for(local: Client) -> None:
    given = np.arange(6, dtype=np.float16).reshape(2, 3).T
    with local.shared(4096) as memory:
        assert not memory.shared  # nobody else has it
        array = memory.empty((2, 3), ml_dtypes.bfloat16)
        assert (array.shape, array.dtype, array.nbytes) == ((2, 3), ml_dtypes.bfloat16, 12)
        assert memory.empty(np.int64(5), np.float32).shape == (5,)
        copied = memory.array(given)
        given[0, 0] = 9
        assert (copied.dtype, copied.tolist()) == (np.float16, [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
        assert copied.flags.c_contiguous
        memory.clear()
        assert memory.zeros(16, np.float32).tolist() == [0.0] * 16


def test_what_cannot_travel_or_be_has_no_place(local: Client) -> None:
    with local.shared(64) as memory:
        shape: Any
        for shape in -1, (2, -1), (-2, -3):
            with pytest.raises(ValueError, match="expected extents of 0 or more"):
                memory.empty(shape, np.uint8)
        assert memory.left == 64
        with pytest.raises(DTypeError, match="array: expected a dtype among"):
            memory.array(np.array(["text"]))
        with pytest.raises(TypeError, match=r"references|object"):
            memory.empty(2, object)
    for size in 0, -1:
        with pytest.raises(ValueError, match=f"nbytes: expected 1 or more, found {size}"):
            local.shared(size)


def test_an_array_without_room_is_a_memory_error_that_says_how_much_is_left(local: Client) -> None:
    with local.shared(192) as memory:
        assert (memory.nbytes, memory.left) == (192, 192)
        first = memory.empty(65, np.uint8)
        assert memory.left == 64
        with pytest.raises(MemoryError, match="64 of 192 bytes left, and the array needs 65"):
            memory.empty(65, np.uint8)
        assert memory.empty(64, np.uint8).size == 64
        assert memory.left == 0
        assert memory.empty((0, 3), np.float32).shape == (0, 3)
        memory.clear()
        assert memory.empty(128, np.uint8).ctypes.data == first.ctypes.data


def test_arrays_outlive_their_memory_which_gives_no_more(local: Client) -> None:
    with local.shared(64) as memory:
        array = memory.array(np.arange(4, dtype=np.float32))
    memory.close()
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="the shared memory is closed"):
        memory.empty(1, np.uint8)
    assert repr(memory) == "<SharedMemory of 64 bytes, closed>"


# A server that goes while it is asked, and one that means what it says.


def closes(server: SharingServer) -> None:
    """Twice."""
    server.memory.behaviours = [hangs_up] * 2


def is_gone(server: SharingServer) -> None:
    server.socket += "-gone"


def refuses(server: SharingServer) -> None:
    """The socket's file is there and its process is not, as after kill -9."""
    is_gone(server)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(server.socket)


FAULTS = [closes, is_gone, refuses]


@ON_LINUX
@BOTH_SENDERS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_goes_while_it_is_asked_is_followed_by_one_that_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[SharingServer], None]
) -> None:
    def pause(self: attempts.Attempts, *given: Any) -> float | None:
        server.socket = path  # the next server is there
        return paused(self, *given)

    paused = attempts.Attempts.pause
    monkeypatch.setattr(attempts, "PAUSES", (0.0,))
    monkeypatch.setattr(attempts.Attempts, "pause", pause)
    with side_socket(tmp_path / "side") as memory_socket:
        server = SharingServer(memory_socket)
        path = server.socket
        fault(server)
        # Asked at first by connect, then before and after each time that memory is asked for.
        server.instances = ["first", "first", "second", "second", "third"]
        with connected(server) as client, client.shared(MIB) as memory:
            assert memory.shared


@ON_LINUX
@pytest.mark.parametrize("fault", FAULTS)
def test_a_living_server_means_it(tmp_path: Path, fault: Callable[[SharingServer], None]) -> None:
    with side_socket(tmp_path / "side") as memory_socket:
        server = SharingServer(memory_socket)
        fault(server)
        server.instances = ["the same"] * 9
        said = "you are user" if fault is closes else r"socket .*side"
        with connected(server) as client, pytest.raises(SharedMemoryError, match=said):
            client.shared(MIB)
    assert len(server.instances) == 9 - 3  # connect, before, after: not asked a second time


@ON_LINUX
@BOTH_SENDERS
def test_it_takes_no_longer_than_the_timeout_of_a_call(tmp_path: Path) -> None:
    with side_socket(tmp_path / "side") as memory_socket:
        memory_socket.behaviours = [lambda connection, _: connection.recv(1)]
        with (
            connected(SharingServer(memory_socket)) as client,
            pytest.raises(DeadlineError),
        ):
            client.options(timeout=0.2).shared(MIB)
