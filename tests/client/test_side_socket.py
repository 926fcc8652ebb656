"""How memory is got on the side socket, whatever the server does."""

from __future__ import annotations

import gc
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from npucall.errors import (
    DeadlineError,
    InternalError,
    NpucallError,
    QueueFullError,
    SharedMemoryError,
    TooLargeError,
)
from npucall.v1 import shared_memory_pb2
from npucall.wire.status import to_status
from npucall_client.shared.side_socket import Region, ask

from .side_script import ID, PATIENCE, answering, granted, memory_file, side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .side_script import SideScript

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")
SIZE = 8192


@pytest.fixture
def script(tmp_path: Path) -> Iterator[SideScript]:
    gc.collect()  # memory that other tests left to the collector is not to end during this one
    with side(tmp_path / "side") as script:
        yield script


def asked(script: SideScript, timeout: float = PATIENCE) -> Region:
    return ask(script.path, SIZE, timeout)


def open_files() -> list[str]:
    """What the descriptors of this process are, those of pytest and of threads' own aside."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:  # the folder's own
            continue
    return sorted(name for name in names if "memfd" in name)


def test_the_memory_has_the_size_asked_for_and_the_servers_id(script: SideScript) -> None:
    region = asked(script)
    assert (region.id, region.memory.nbytes, region.memory.dtype) == (ID, SIZE, np.uint8)
    assert region.start == region.memory.ctypes.data
    region.end()


def test_each_side_sees_what_the_other_writes(script: SideScript) -> None:
    region = asked(script)
    region.memory[5] = 7
    assert script.memories[ID][5] == 7
    script.memories[ID][6] = 8
    assert region.memory[6] == 8
    region.end()


def test_the_end_of_a_region_is_the_end_of_its_connection(script: SideScript) -> None:
    region = asked(script)
    assert region.is_open
    assert region.end()
    assert script.ended.acquire(timeout=PATIENCE)
    assert not region.is_open


def test_a_region_ends_once(script: SideScript) -> None:
    region = asked(script)
    assert [region.end(), region.end()] == [True, False]


def test_the_memory_outlives_the_region(script: SideScript) -> None:
    region = asked(script)
    region.end()
    region.memory[:] = 3
    assert region.memory.sum() == 3 * SIZE


def test_the_mapping_goes_with_the_last_array(script: SideScript) -> None:
    before = Path("/proc/self/maps").read_text().count("memfd:memory")
    region = asked(script)
    assert Path("/proc/self/maps").read_text().count("memfd:memory") == before + 2
    region.end()
    del region  # the script keeps its own
    assert Path("/proc/self/maps").read_text().count("memfd:memory") == before + 1


@pytest.mark.parametrize("error", [TooLargeError("too much"), QueueFullError("not now")])
def test_a_refusal_is_the_servers_own_error(script: SideScript, error: NpucallError) -> None:
    status = to_status(error).SerializeToString()
    response = shared_memory_pb2.SharedMemoryResponse(error=status).SerializeToString()
    script.behaviours = [answering(response)]
    with pytest.raises(type(error), match=str(error)):
        asked(script)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"garbage", "expected a response, found other bytes"),
        (b"\x7a\x01x", "expected an id of 16 bytes, found 0"),
        (granted(b"short"), "expected an id of 16 bytes, found 5"),
        (granted(), "expected one file descriptor, found 0"),
    ],
    ids=["garbage", "another outcome", "short id", "no descriptor"],
)
def test_an_answer_that_breaks_the_contract_is_an_internal_error(
    script: SideScript, data: bytes, expected: str
) -> None:
    script.behaviours = [answering(data)]
    with pytest.raises(InternalError, match=expected):
        asked(script)


def test_more_than_one_descriptor_is_refused(script: SideScript) -> None:
    script.behaviours = [answering(granted(), memory_file(SIZE), memory_file(SIZE))]
    with pytest.raises(InternalError, match="expected one file descriptor, found 2"):
        asked(script)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_a_file_of_another_size_is_refused(script: SideScript, size: int) -> None:
    script.behaviours = [answering(granted(), memory_file(size))]
    with pytest.raises(InternalError, match=f"expected a file of {SIZE} bytes, found {size}"):
        asked(script)


def test_a_file_that_could_be_cut_off_is_refused(script: SideScript) -> None:
    script.behaviours = [answering(granted(), memory_file(SIZE, seals=0))]
    with pytest.raises(InternalError, match="sealed against truncation"):
        asked(script)


def test_a_file_on_a_disk_is_refused(script: SideScript, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    file = os.open(tmp_path / "file", os.O_RDWR)
    script.behaviours = [answering(granted(), file)]
    with pytest.raises(InternalError, match="sealed against truncation"):
        asked(script)


def test_an_answer_that_is_refused_leaves_no_descriptor(script: SideScript) -> None:
    before = open_files()
    script.behaviours = [answering(b"garbage", memory_file(SIZE), memory_file(SIZE))]
    with pytest.raises(InternalError):
        asked(script)
    assert script.ended.acquire(timeout=PATIENCE)
    assert open_files() == before


def test_a_connection_that_is_closed_without_a_word_names_the_setting(script: SideScript) -> None:
    script.behaviours = [lambda connection, _: connection.shutdown(socket.SHUT_RDWR)]
    with pytest.raises(SharedMemoryError, match=r"closed .* its setting shared_memory_users"):
        asked(script)


def test_a_server_that_does_not_answer_is_waited_for_in_time(script: SideScript) -> None:
    script.behaviours = [lambda _, __: None]
    with pytest.raises(DeadlineError, match=r"side for shared memory gave no answer in 0\.05 s"):
        asked(script, timeout=0.05)
    assert script.ended.acquire(timeout=PATIENCE)


def test_a_server_that_does_not_accept_is_waited_for_in_time(tmp_path: Path) -> None:
    path = str(tmp_path / "busy")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as busy:
        busy.bind(path)
        busy.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.connect(path)  # takes the only place
            with pytest.raises(DeadlineError, match=r"no answer in 0\.05 s"):
                ask(path, SIZE, 0.05)


@pytest.mark.parametrize("kind", ["missing", "stale", "long"])
def test_a_socket_that_is_not_there_says_what_a_volume_would_do(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 120 if kind == "long" else "side")
    if kind == "stale":
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


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_that_ends_its_copy_leaves_the_region(script: SideScript) -> None:
    region = asked(script)
    child = os.fork()
    if child == 0:
        region.end()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BlockingIOError):  # not at its end
        region._connection.recv(1, socket.MSG_DONTWAIT)
    assert region.is_open
    region.end()
    assert script.ended.acquire(timeout=PATIENCE)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_region_ends_though_a_forked_process_lives(script: SideScript) -> None:
    region = asked(script)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    os.close(read)
    region.end()
    ended = script.ended.acquire(timeout=PATIENCE)
    os.close(write)
    os.waitpid(child, 0)
    assert ended


def test_garbage_on_any_length_is_refused_and_leaves_nothing(script: SideScript) -> None:
    before = open_files()
    numbers = np.random.default_rng(1)
    script.behaviours = [answering(numbers.bytes(size)) for size in range(1, 60)]
    for _ in range(1, 60):
        with pytest.raises(NpucallError):
            asked(script)
    assert open_files() == before
