"""``pool:file:``: a file that lists members, or a folder of ready files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.pool.heard import Heard, threads_named, until

from npucall_client.pool.members import Member
from npucall_client.pool.sources import source_of
from npucall_client.pool.sources.files import PathLister
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client.pool.members import Source


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "members"


@pytest.fixture
def source(path: Path) -> Iterator[Source]:
    source = source_of(ClientSettings.of(target=f"pool:file:{path}"))
    yield source
    source.close()


def members(*entries: Any) -> str:
    return json.dumps(
        {"members": [{"address": each} if isinstance(each, str) else each for each in entries]}
    )


def put(path: Path, text: str) -> None:
    """As whoever writes such a file well."""
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(text)
    draft.replace(path)


def test_a_file_lists_members_and_what_is_known_of_them(path: Path) -> None:
    entry = {"address": "10.0.0.1:1", "labels": {"rack": "3"}, "host": "n1", "server_name": "npu"}
    path.write_text(members(entry, "b:2"))
    listed = PathLister(path).listed()
    expected = Member("10.0.0.1:1", server_name="npu", host="n1", labels={"rack": "3"})
    assert listed == [expected, Member("b:2")]


def test_a_file_that_is_replaced_is_read_again(path: Path, source: Source) -> None:
    put(path, members("a:1"))
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1")
    put(path, members("a:1", "b:2"))
    heard.until_listed("a:1", "b:2")
    put(path, members("b:2"))
    source.look()
    heard.until_listed("b:2")
    assert heard.complete


def test_a_half_written_file_keeps_the_last_list_and_says_so(path: Path, source: Source) -> None:
    text = members("a:1", "b:2")
    path.write_text(text)
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1", "b:2")
    path.write_text(text[: len(text) // 2])
    source.look()
    until(source.why_empty)
    assert f"{path}: expected JSON, found: " in source.why_empty()
    path.write_text(members("c:3"))
    source.look()
    heard.until_listed("c:3")
    assert source.why_empty() == ""
    assert heard.updates == [["a:1", "b:2"], ["c:3"]]


def test_a_file_that_is_removed_keeps_the_last_list(path: Path, source: Source) -> None:
    path.write_text(members("a:1"))
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1")
    path.unlink()
    source.look()
    until(source.why_empty)
    assert "No such file" in source.why_empty()
    assert list(heard.members) == ["a:1"]


def test_a_file_may_come_after_the_client(path: Path, source: Source) -> None:
    heard = Heard()
    source.start(heard)
    until(source.why_empty)
    assert heard.updates == []
    put(path, members("a:1"))
    source.look()
    heard.until_listed("a:1")


def test_a_file_that_says_nobody_is_taken_at_its_word(path: Path, source: Source) -> None:
    path.write_text(members("a:1"))
    heard = Heard()
    source.start(heard)
    heard.until_listed("a:1")
    put(path, members())
    heard.until_listed()
    assert source.why_empty() == f"{path} lists no members"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected JSON, found: "),
        ("\x00", "expected JSON, found: "),
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
    path: Path, text: str, sentence: str
) -> None:
    path.write_text(text)
    lister = PathLister(path)
    for _ in range(2):
        with pytest.raises(ValueError, match="members: ") as caught:
            lister.listed()
        assert str(caught.value).startswith(f"{path}: ")
        assert sentence in str(caught.value)


def test_bytes_that_are_no_text_are_no_file_of_members(path: Path) -> None:
    path.write_bytes(b'{"members": [{"address": "\xff:1"}]}')
    with pytest.raises(ValueError, match="expected JSON, found: "):
        PathLister(path).listed()


def test_each_ready_file_of_a_folder_is_a_member(path: Path, source: Source) -> None:
    path.mkdir()
    (path / "npu0").write_text("n1:50051\n")
    (path / "npu1").write_text('{"address": "n1:50052", "labels": {"rack": "3"}}')
    (path / ".hidden").write_text("n1:1")
    (path / "npu2.123.part").write_text("n1:2")
    heard = Heard()
    source.start(heard)
    heard.until_listed("n1:50051", "n1:50052")
    assert heard.members["n1:50052"].labels == {"rack": "3"}
    put(path / "npu3", "n2:50051")
    (path / "npu0").unlink()
    source.look()
    heard.until_listed("n1:50052", "n2:50051")


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


def test_two_ready_files_of_one_address_are_one_member(path: Path) -> None:
    path.mkdir()
    (path / "new").write_text("n1:1")
    (path / "old").write_text("n1:1")
    assert PathLister(path).listed() == [Member("n1:1")]


def test_an_empty_folder_lists_nobody(path: Path) -> None:
    path.mkdir()
    lister = PathLister(path)
    assert lister.listed() == []
    assert lister.why_not() == f"{path} has no ready file"


def test_a_source_of_files_that_is_closed_has_no_thread(path: Path, source: Source) -> None:
    source.start(Heard())
    source.close()
    until(lambda: not threads_named("npucall-members"))
