"""The side socket: who gets memory, what breaks the protocol, what the path is."""

import io
import json
import math
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.server.fakes import ledger, until
from tests.shared import Memory, Refused, Side

from npucall.places import RegionPart
from npucall_server.shared import regions as regions_module
from npucall_server.shared import side_socket, unix_sockets
from npucall_server.shared.regions import Regions
from npucall_server.shared.side_socket import SideSocket
from npucall_server.telemetry.log import Log

KIB = 2**10
US = os.geteuid()
SOMEBODY = US + 1


class WatchedRegions(Regions):
    """Remembers the files of its memory."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, ledger())
        self.inodes: set[int] = set()

    def create(self, *arguments: Any) -> tuple[bytes, int]:
        name, descriptor = super().create(*arguments)
        self.inodes.add(os.fstat(descriptor).st_ino)
        return name, descriptor


class Served(SideSocket):
    """A side socket, its regions and its log."""

    def __init__(self, path: Path, limit: int = 1 << 21, users: tuple[int, ...] = ()) -> None:
        self.path, self.regions, self.text = path, WatchedRegions(limit), io.StringIO()
        super().__init__(path, users, self.regions, Log(stream=self.text))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.getvalue().splitlines()]

    def serves(self) -> bool:
        with Memory(self.path, 1) as memory:
            return memory.bytes[0] == 0


@contextmanager
def serving(path: Path, limit: int = 1 << 21, users: tuple[int, ...] = ()) -> Iterator[Served]:
    """At its end nothing may be left."""
    served = Served(path, limit, users)
    try:
        yield served
        until(lambda: served.regions.bytes_taken == 0, "all memory is given back")
    finally:
        served.close()
    assert not path.exists()
    assert descriptors(path, served.regions.inodes) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "side.sock"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    with serving(path) as served:
        yield served


@pytest.fixture(autouse=True)
def _no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a connection is not that its time is over."""
    monkeypatch.setattr(side_socket, "REQUEST_SECONDS", 1000.0)


def descriptors(path: Path, inodes: Iterable[int] = ()) -> int:
    """How many of this process are of a side socket, or of files of memory."""
    table = Path("/proc/net/unix").read_text().splitlines()
    sockets = {f"socket:[{line.split()[6]}]" for line in table if line.endswith(str(path))}
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it has been closed meanwhile
            link = str(each.readlink())
            is_memory = link.startswith("/memfd:") and each.stat().st_ino in inodes
            found += link in sockets or is_memory
    return found


def reason(side: Side) -> str:
    """Why it is refused; behind that the connection must end."""
    try:
        side.answer()
    except Refused as refused:
        assert side.is_closed()
        return str(refused)
    return "OK"


def test_clients_get_memory_of_their_own_until_they_close_the_connection(served: Served) -> None:
    with Memory(served.path, 100) as first, Memory(served.path, 10) as second:
        first.bytes[4:8] = b"abcd"
        assert served.regions.view(RegionPart(first.id, 4, 4), "self") == b"abcd"
        assert second.bytes[4:8] == bytes(4)
        assert first.id != second.id
        assert served.regions.bytes_taken == 8 * KIB
        until(lambda: {each.expires for each in served._holdings} == {math.inf}, "no time is set")
    until(lambda: served.regions.bytes_taken == 0, "the memory is forgotten")


REFUSED = [
    (b"\xff\xff", "MESSAGE_MALFORMED"),
    (b"GET / HTTP/1.1\r\n", "MESSAGE_MALFORMED"),
    (b"", "MESSAGE_MALFORMED"),  # none asked for
    (b"\x08\x00", "MESSAGE_MALFORMED"),  # 0 bytes
    (b"\x08\x01" + b"\x12\x80\x40" + bytes(8192), "MESSAGE_MALFORMED"),  # too long
    (b"\x08\x01" + b"\x10\x00" * 4096, "MESSAGE_MALFORMED"),  # likewise
    (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "TOO_LARGE"),  # 2**64 - 1
    (b"\x08\x81\x80\x40", "TOO_LARGE"),  # 1 MiB + 1
]


def test_a_request_that_cannot_be_is_refused_and_the_connection_ends(served: Served) -> None:
    told = []
    for packet, _ in REFUSED:
        with Side(served.path) as side:
            side.send(packet)
            told.append((packet, reason(side)))
    assert told == REFUSED
    assert served.serves()
    assert served.events() == []


def test_fields_of_a_newer_client_are_passed_over(served: Served) -> None:
    with Side(served.path) as side:
        side.send(b"\x08\x01\x12\x03abc")
        name, descriptor = side.answer()
        os.close(descriptor)
        assert len(name) == 16


@pytest.mark.parametrize(("size", "count"), [(1 << 20, 1), (1, 2)])
def test_one_process_has_at_most_half_and_leaves_the_rest_to_others(
    served: Served, monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> None:
    """Of the memory; of four regions."""
    monkeypatch.setattr(regions_module, "MAX_REGIONS", 4)
    with ExitStack() as held, Side(served.path) as side:
        for _ in range(count):
            held.enter_context(Memory(served.path, size))
        side.ask(1)
        assert reason(side) == "QUEUE_FULL"
        as_user(monkeypatch, US)  # as process 4711
        with Memory(served.path, size) as memory:
            assert memory.bytes[0] == 0
        monkeypatch.undo()
    assert served.serves()


def test_of_several_users_one_has_at_most_half(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path, users=(SOMEBODY,)) as served:
        with Memory(path, 1 << 20), Side(path) as side:
            as_user(monkeypatch, US)  # another process of theirs
            side.ask(1)
            assert reason(side) == "QUEUE_FULL"
            as_user(monkeypatch, SOMEBODY)
            assert served.serves()
        monkeypatch.undo()


def test_a_second_packet_ends_the_region(served: Served) -> None:
    with Memory(served.path, 100) as memory:
        memory.ask(100)
        assert memory.is_closed()
        until(lambda: served.regions.bytes_taken == 0, "the memory is forgotten")


def test_descriptors_that_a_client_sends_along_are_thrown_away(served: Served) -> None:
    sent = os.memfd_create("sent")
    inode = os.fstat(sent).st_ino
    with Side(served.path) as side:
        socket.send_fds(side, [b"\x08\x01"], [sent] * 60)
        _, descriptor = side.answer()
        os.close(descriptor)
        until(lambda: descriptors(served.path, {inode}) == 3, "what it sent is closed")
    os.close(sent)


def test_a_client_that_says_nothing_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path) as served:
        with monkeypatch.context() as hasty:
            hasty.setattr(side_socket, "REQUEST_SECONDS", 0.01)
            with Side(path) as side:
                assert side.is_closed()
        assert served.serves()


def test_a_client_that_goes_away_before_its_answer_leaves_nothing(served: Served) -> None:
    for _ in range(50):
        with Side(served.path) as side:
            side.ask(1)
    assert served.serves()


def test_more_connections_than_there_may_be_are_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_socket, "MOST_CONNECTIONS", 2)
    with serving(path), Memory(path, 1), Memory(path, 1), Side(path) as third:
        assert third.is_closed()


def test_without_a_descriptor_left_a_client_waits_until_there_is_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path) as served:
        monkeypatch.setattr(served, "_listener", Exhausted(served._listener, times=2))
        monkeypatch.setattr(unix_sockets, "PAUSE_SECONDS", 0.001)
        assert served.serves()


class Exhausted:
    """A listening socket for which there is no descriptor a few times; equal to the real one."""

    def __init__(self, listener: socket.socket, times: int) -> None:
        self._listener, self._times = listener, times

    def __eq__(self, other: object) -> bool:
        return other is self._listener

    def __hash__(self) -> int:
        return hash(self._listener)

    def accept(self) -> Any:
        if self._times:
            self._times -= 1
            raise OSError(24, "Too many open files")
        return self._listener.accept()

    def close(self) -> None:
        self._listener.close()


def test_a_bug_ends_one_connection_and_is_logged(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken, Side(served.path) as side:
        broken.setattr(served.regions, "create", lambda *_: 1 / 0)
        side.ask(1)
        assert side.is_closed()
    (event,) = served.events()
    assert event["event"] == "bug"
    assert "ZeroDivisionError" in event["traceback"]
    assert served.serves()


def as_user(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """The kernel tells the server that whoever connects is this user."""
    monkeypatch.setattr(unix_sockets, "who_connected", lambda _: (4711, user))


def test_another_user_is_closed_without_a_word_and_one_a_minute_is_noted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are counted. Each is followed by a pause, so that they take little of a core."""
    pauses: list[float] = []
    monkeypatch.setattr(served._stopping, "wait", pauses.append)
    as_user(monkeypatch, SOMEBODY)
    for count in range(21):
        if count == 20:
            until(lambda: served._unsaid == 19, "the last is counted")
            served._silent_until = 0  # a minute later
        with Side(served.path) as side:
            assert side.is_closed()
    until(lambda: pauses == [0.001] * 21, "there was a pause for each")
    for event, before in zip(served.events(), (0, 19), strict=True):
        del event["time"]
        assert event == {
            "event": "shared memory refused", "user": SOMEBODY, "process": 4711,
            "others_before": before,
        }  # fmt: skip


def test_users_of_the_setting_get_memory_and_the_servers_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path, users=(SOMEBODY, 2**32 - 2)) as served:
        for user in US, SOMEBODY, 2**32 - 2:
            as_user(monkeypatch, user)
            assert served.serves()


def test_the_kernel_tells_who_connects() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert unix_sockets.who_connected(ours) == (os.getpid(), US)


@pytest.mark.parametrize(("users", "mode"), [((), 0o600), ((US,), 0o600), ((SOMEBODY,), 0o666)])
def test_others_can_reach_the_socket_only_where_some_may(
    path: Path, users: tuple[int, ...], mode: int
) -> None:
    with serving(path, users=users):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_socket_that_a_killed_server_left_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(str(path))
    assert path.exists()
    with serving(path) as served:
        assert served.serves()


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM, None])
def test_what_somebody_else_has_there_is_not_replaced(
    path: Path, kind: socket.SocketKind | None
) -> None:
    """A socket on which somebody listens, or a file."""
    if kind is None:
        path.write_text("precious")
        with pytest.raises(FileExistsError, match="a file is there that is not a socket"):
            Served(path)
        assert path.read_text() == "precious"
        return
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(FileExistsError, match="another server uses it"):
            Served(path)
    assert path.is_socket()


def test_a_path_that_is_too_long_or_in_no_folder_is_refused(tmp_path: Path) -> None:
    for path in tmp_path / ("x" * 120), tmp_path / "nowhere" / "side.sock":
        with pytest.raises(OSError, match=r"too long|No such file"):
            Served(path)
        assert descriptors(path) == 0


def test_a_file_that_is_there_by_now_is_left_alone(path: Path) -> None:
    served = Served(path)
    path.unlink()
    path.write_text("another one")
    served.close()
    assert path.read_text() == "another one"


def test_when_the_server_stops_regions_end(path: Path) -> None:
    served = Served(path)
    with Memory(path, 1) as memory:
        served.close()
        assert memory.is_closed()
        assert served.regions.bytes_taken == 0
        memory.bytes[:1] = b"x"  # what is mapped stays
