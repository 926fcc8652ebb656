"""A file that is read again when it changes, however that came about."""

import os
from pathlib import Path

import pytest

from npucall.environment import watched_file
from npucall.environment.watched_file import WatchedFile

LONG_AGO = 1_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that nobody has written to for long."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def file(path: Path) -> WatchedFile:
    """The same, which somebody has looked at."""
    file = WatchedFile(path)
    assert file.changed() == b"one"
    assert file.changed() is None
    assert file.content == b"one"
    return file


def test_an_empty_file_is_answered_once(path: Path) -> None:
    path.write_bytes(b"")
    file = WatchedFile(path)
    assert file.changed() == b""
    assert file.changed() is None


def test_what_is_written_in_place_is_noticed(path: Path, file: WatchedFile) -> None:
    path.write_bytes(b"two")
    assert file.changed() == b"two"


def test_what_is_written_within_a_tick_of_the_file_system_is_noticed(path: Path) -> None:
    path.write_bytes(b"one")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    file = WatchedFile(path)
    file.changed()
    path.write_bytes(b"two")
    os.utime(path, ns=times)
    assert file.changed() == b"two"


def test_a_file_put_in_its_place_with_its_time_and_size_is_noticed(
    path: Path, file: WatchedFile
) -> None:
    other = path.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, (LONG_AGO, LONG_AGO))
    other.replace(path)
    assert file.changed() == b"two"


def test_a_link_that_points_elsewhere_is_noticed(path: Path) -> None:
    link, other = path.with_name("link"), path.with_name("other")
    link.symlink_to(path)
    file = WatchedFile(link)
    file.changed()
    other.write_bytes(b"two")
    link.unlink()
    link.symlink_to(other)
    assert file.changed() == b"two"


def test_a_file_that_was_touched_and_says_the_same_has_not_changed(
    path: Path, file: WatchedFile
) -> None:
    path.touch()
    assert file.changed() is None


def test_a_missing_file_is_an_error_until_it_is_there_again(path: Path, file: WatchedFile) -> None:
    path.unlink()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            file.changed()
    assert file.content == b"one"
    path.write_bytes(b"two")
    assert file.changed() == b"two"


def test_a_file_that_nobody_can_have_meant_is_refused(
    path: Path, file: WatchedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "LARGEST", 3)
    path.write_bytes(b"two")
    assert file.changed() == b"two"
    path.write_bytes(b"four")
    with pytest.raises(OSError, match="expected at most 3 bytes"):
        file.changed()
