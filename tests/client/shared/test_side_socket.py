"""How memory is got on the side socket, whatever the server does."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.fake_server import PATIENCE, until
from tests.client.fake_side_socket import (
    ID,
    Behaviour,
    FakeSideSocket,
    granted,
    memory_file,
    send,
    side_socket,
)
from tests.rows import each

from npucall.errors import (
    DeadlineError,
    InternalError,
    NpucallError,
    QueueFullError,
    SharedMemoryError,
)
from npucall.v1 import shared_memory_pb2
from npucall.wire.status import to_status
from npucall_client.shared.side_socket import Region, ask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")
SIZE = 8192


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeSideSocket]:
    with side_socket(tmp_path / "side") as fake:
        yield fake


def asked(fake: FakeSideSocket, behaviour: Behaviour | None = None) -> Region:
    if behaviour is not None:
        fake.behaviours = [behaviour] * 99
    return ask(fake.path, SIZE, PATIENCE)


def descriptors() -> int:
    """How many files of memory this process has open."""
    links = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    return sum("memfd" in link for link in links)


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:memory")


def test_each_side_sees_what_the_other_writes_until_the_end(fake: FakeSideSocket) -> None:
    region = asked(fake)
    assert (region.id, region.memory.nbytes, region.memory.dtype) == (ID, SIZE, np.uint8)
    assert region.start == region.memory.ctypes.data
    region.memory[5] = 7
    assert fake.memories[ID][5] == 7
    fake.memories[ID][6] = 8
    assert region.memory[6] == 8
    assert region.is_open
    assert [region.end(), region.end()] == [True, False]
    assert fake.ended.acquire(timeout=PATIENCE)
    assert not region.is_open
    region.memory[:] = 3  # it outlives the region
    assert region.memory.sum() == 3 * SIZE


@pytest.mark.alone
@pytest.mark.filterwarnings("ignore:.*fork")
def test_memory_stays_in_no_mapping_descriptor_or_forked_process(fake: FakeSideSocket) -> None:
    region = asked(fake)
    assert mappings() == 2
    region.end()
    del region  # the fake keeps its own mapping, and a descriptor for it
    until(lambda: (mappings(), descriptors()) == (1, 1))
    garbage = answering(b"garbage", memory_file(SIZE), memory_file(SIZE))
    with pytest.raises(InternalError):
        asked(fake, garbage)
    assert [fake.ended.acquire(timeout=PATIENCE) for _ in range(2)] == [True, True]
    until(lambda: (mappings(), descriptors()) == (1, 1))
    fake.behaviours.clear()
    _fork(asked(fake), fake)


def _fork(region: Region, fake: FakeSideSocket) -> None:
    """A forked process neither ends a region nor keeps it."""
    child = os.fork()
    if child == 0:
        region.end()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BlockingIOError):  # not at its end
        region._connection.recv(1, socket.MSG_DONTWAIT)
    assert region.is_open
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    os.close(read)
    region.end()
    ended = fake.ended.acquire(timeout=PATIENCE)
    os.close(write)
    os.waitpid(child, 0)
    assert ended


def test_a_refusal_is_the_servers_own_error(fake: FakeSideSocket) -> None:
    status = to_status(QueueFullError("not now")).SerializeToString()
    response = shared_memory_pb2.SharedMemoryResponse(error=status).SerializeToString()
    with pytest.raises(QueueFullError, match="not now"):
        asked(fake, answering(response))


def answering(data: bytes, *files: int) -> Behaviour:
    """Answers once with these bytes and descriptors."""
    return lambda connection, _: send(connection, data, *files)


def sends(data: bytes, *sizes: int, **seals: int) -> Any:
    """Makes an answer with memory of so many bytes."""
    return lambda _: answering(data, *(memory_file(size, **seals) for size in sizes))


def of_a_disk(folder: Path) -> Behaviour:
    (folder / "file").write_bytes(bytes(SIZE))
    return answering(granted(), os.open(folder / "file", os.O_RDWR))


NUMBERS = np.random.default_rng(1)


@each(
    ("answer", "expected"),
    [
        (sends(b"garbage"), "expected a response, found other bytes"),
        (sends(b"\x7a\x01x"), "expected an id of 16 bytes, found 0"),  # another outcome
        (sends(granted(b"short")), "expected an id of 16 bytes, found 5"),
        (sends(granted()), "expected one file descriptor, found 0"),
        (sends(granted(), SIZE, SIZE), "expected one file descriptor, found 2"),
        (sends(granted(), SIZE - 1), f"expected a file of {SIZE} bytes, found {SIZE - 1}"),
        (sends(granted(), SIZE + 1), f"expected a file of {SIZE} bytes, found {SIZE + 1}"),
        (sends(granted(), SIZE, seals=0), "sealed against truncation"),
        (of_a_disk, "sealed against truncation"),
        *((sends(NUMBERS.bytes(size)), ".") for size in range(1, 60)),
    ],
)
def test_an_answer_that_breaks_the_contract_is_an_error(
    answer: Any, expected: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("side")
    with (
        side_socket(folder / "side") as fake,
        pytest.raises(NpucallError if expected == "." else InternalError, match=expected),
    ):
        asked(fake, answer(folder))


def test_a_server_that_does_not_answer_or_accept_is_waited_for_in_time(
    fake: FakeSideSocket, tmp_path: Path
) -> None:
    fake.behaviours = [lambda _, __: None]
    with pytest.raises(DeadlineError, match=r"side for shared memory gave no answer in 0\.05 s"):
        ask(fake.path, SIZE, 0.05)
    assert fake.ended.acquire(timeout=PATIENCE)
    path = str(tmp_path / "busy")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as busy,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first,
    ):
        busy.bind(path)
        busy.listen(0)
        first.connect(path)  # takes the only place
        with pytest.raises(DeadlineError, match=r"no answer in 0\.05 s"):
            ask(path, SIZE, 0.05)


@each("name", ["missing", "stale", "x" * 120])
def test_a_socket_that_is_not_there_says_what_a_volume_would_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "stale":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
            gone.bind(str(path))
    with pytest.raises(SharedMemoryError, match=r"mount the socket here") as caught:
        ask(str(path), SIZE, PATIENCE)
    assert str(path) in str(caught.value)
    assert "NPUCALL_SHARED_MEMORY_SOCKET" in str(caught.value)


def test_another_platform_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SharedMemoryError, match="expected Linux, found darwin"):
        ask("/nowhere", SIZE, PATIENCE)
