"""``pool:file:`` and ``pool:dns:``: what they list, and a source that looks again and again."""

import gc
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.pool.heard import PATIENCE, Heard, threads_named, until
from tests.rows import each

from npucall_client.pool.members import Member
from npucall_client.pool.sources import source_of
from npucall_client.pool.sources.files import PathLister
from npucall_client.pool.sources.poller import Poller
from npucall_client.settings import ClientSettings


class FakeLister:
    """Lists addresses; none: it fails. Waits for ``goes_on`` each time."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def listed(self) -> list[Member]:
        self.asked += 1
        assert self.goes_on.wait(PATIENCE)
        if not self.addresses:
            raise OSError("it is gone")
        return [Member(address) for address in self.addresses]

    def why_not(self) -> str:
        return ""


@pytest.fixture
def lister() -> FakeLister:
    return FakeLister("a:1")


@pytest.fixture
def source(lister: FakeLister, request: pytest.FixtureRequest) -> Iterator[Poller]:
    """Its thread has the test's name."""
    source = Poller(lister, 1000.0, request.node.name)
    yield source
    source.close()
    lister.goes_on.set()
    until(lambda: not threads_named(request.node.name), "its thread has ended")


def test_who_hears_is_told_of_changes_alone(lister: FakeLister, source: Poller) -> None:
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1")
    assert heard.complete
    source.look()
    until(lambda: lister.asked == 2)
    lister.addresses = ("b:1", "c:1")
    source.look()
    heard.until_listed("b:1", "c:1")
    assert heard.updates == [["a:1"], ["b:1", "c:1"]]


def test_it_looks_again_without_being_asked(lister: FakeLister) -> None:
    source, heard = Poller(lister, 0.25, "npucall-looks"), Heard()
    source.start(heard)
    heard.until_listed("a:1")
    lister.addresses = ("b:1",)
    heard.until_listed("b:1")
    source.close()


def test_where_a_look_fails_the_last_list_counts(lister: FakeLister, source: Poller) -> None:
    lister.addresses = ()
    heard = Heard()
    source.start(heard)
    until(source.why_empty)
    assert (source.why_empty(), heard.updates) == ("it is gone", [])
    for addresses in ("a:1",), (), ("c:1",):
        lister.addresses = addresses
        source.look()
        until(lambda: (source.why_empty() == "") is bool(lister.addresses))
        if addresses:
            heard.until_listed(*addresses)
    assert heard.updates == [["a:1"], ["c:1"]]


def test_many_failures_at_once_ask_few_times(lister: FakeLister, source: Poller) -> None:
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1")
    lister.goes_on.clear()
    source.look()
    until(lambda: lister.asked == 2)
    for _ in range(1000):
        source.look()
    lister.goes_on.set()
    until(lambda: lister.asked == 3)
    assert lister.asked == 3


def test_nobody_hears_anything_after_the_close(lister: FakeLister, source: Poller) -> None:
    lister.goes_on.clear()
    heard = Heard()
    source.start(heard)
    until(lambda: lister.asked)
    source.close()
    lister.goes_on.set()
    until(lambda: not threads_named(source._name))
    assert heard.updates == []


def test_a_source_does_not_keep_alive_who_hears(source: Poller) -> None:
    class Pool(Heard):
        def update(self, members: Any, *, complete: bool) -> None:
            self(members, complete=complete)

    pool = Pool()
    source.start(pool.update)
    pool.until_listed("a:1")
    del pool
    gc.collect()
    source.look()
    until(lambda: not threads_named(source._name))


def _entry(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)


def test_each_address_of_a_name_is_a_member_whose_certificate_has_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(name: str, port: int, **_: Any) -> list[Any]:
        assert (name, port) == ("npu.lab", 50051)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [_entry(address, port) for address in addresses]

    addresses = ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"]
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    source, heard = source_of(ClientSettings.of(target="pool:dns:npu.lab:50051")), Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051")
    assert {member.server_name for member in heard.members.values()} == {"npu.lab"}
    addresses.clear()
    source.look()
    until(source.why_empty)
    assert source.why_empty() == ("npu.lab: the name has no addresses: Name or service not known")
    source.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "members"


def members(*entries: Any) -> str:
    return json.dumps(
        {"members": [{"address": each} if isinstance(each, str) else each for each in entries]}
    )


def test_a_file_that_is_replaced_is_read_again(path: Path) -> None:
    path.write_text(members("a:1"))
    source, heard = source_of(ClientSettings.of(target=f"pool:file:{path}")), Heard()
    source.start(heard)
    heard.until_listed("a:1")
    for addresses in ("a:1", "b:2"), (), ("b:2",):
        draft = path.with_name("members.part")  # as whoever writes such a file well
        draft.write_text(members(*addresses))
        draft.replace(path)
        source.look()
        heard.until_listed(*addresses)
        assert source.why_empty() == ("" if addresses else f"{path} lists no members")
    path.unlink()
    source.look()
    until(source.why_empty)
    assert "No such file" in source.why_empty()
    assert list(heard.members) == ["b:2"]
    source.close()


def test_a_file_lists_members_and_what_is_known_of_them(path: Path) -> None:
    entry = {"address": "10.0.0.1:1", "labels": {"rack": "3"}, "host": "n1", "server_name": "npu"}
    path.write_text(members(entry, "b:2"))
    expected = Member("10.0.0.1:1", server_name="npu", host="n1", labels={"rack": "3"})
    assert PathLister(path).listed() == [expected, Member("b:2")]


@each(
    ("content", "sentence"),
    [
        ("", "expected JSON, found: "),
        ("\x00", "expected JSON, found: "),
        (members("a:1", "b:2")[:20], "expected JSON, found: "),  # half written
        (b'{"members": [{"address": "\xff:1"}]}', "expected JSON, found: "),
        ("[" * 100_000, "expected JSON, found: "),
        ("[]", 'expected {"members": [...]}, found something else'),
        ('{"members": {}}', 'expected {"members": [...]}, found something else'),
        (members(3), "members: expected objects, found int"),
        (members({}), "expected HOST:PORT"),
        (members({"address": 3}), "address: expected a text, found int"),
        (members("unix:/run/npucall.sock"), "expected HOST:PORT"),
        (members("dns:1"), "expected the name or IP address"),
        (members({"address": "a:1", "lables": {}}), "found lables"),
        (members({"address": "a:1", "labels": {"rack": 3}}), "labels: expected texts by name"),
        (members({"address": "a:1", "labels": []}), "labels: expected texts by name"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_again_and_again(
    path: Path, content: str | bytes, sentence: str
) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    lister = PathLister(path)
    for _ in range(2):
        with pytest.raises(ValueError, match="members: ") as caught:
            lister.listed()
        assert str(caught.value).startswith(f"{path}: ")
        assert sentence in str(caught.value)


def test_each_ready_file_of_a_folder_is_a_member(path: Path) -> None:
    path.mkdir()
    lister = PathLister(path)
    assert (lister.listed(), lister.why_not()) == ([], f"{path} has no ready file")
    (path / "npu0").write_text("n1:50051\n")
    (path / "npu1").write_text('{"address": "n1:50052", "labels": {"rack": "3"}}')
    (path / "npu9").write_text("n1:50051")  # the same again
    (path / ".hidden").write_text("n1:1")
    (path / "npu2.123.part").write_text("n1:2")
    second = Member("n1:50052", labels={"rack": "3"})
    assert lister.listed() == [Member("n1:50051"), second]
    (path / "npu0").unlink()
    (path / "npu9").unlink()
    assert lister.listed() == [second]


def test_a_bad_ready_file_keeps_its_member_and_no_other_from_being_listed(path: Path) -> None:
    path.mkdir()
    (path / "npu0").write_text("n1:1")
    (path / "npu1").write_text("n1")
    lister = PathLister(path)
    assert lister.listed() == [Member("n1:1")]
    assert f"{path}/npu1: expected HOST:PORT" in lister.why_not()
    (path / "npu0").write_text("n1:")
    (path / "npu1").write_text("n1:2")
    for _ in range(2):
        assert lister.listed() == [Member("n1:1"), Member("n1:2")]
        assert lister.why_not().startswith(f"{path}/npu0: expected HOST:PORT")
