"""The ready file is a new one, whatever somebody put where it is made."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from npucall_server import ready_file

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = "0011223344556677"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of somebody else."""
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "ready"


def test_the_file_is_there_with_all_of_its_content_and_no_draft_is_left(ready: Path) -> None:
    ready_file.write(ready, "127.0.0.1:50051")
    assert ready.read_text() == "127.0.0.1:50051"
    assert list(ready.parent.iterdir()) == [ready]


def test_a_link_at_its_path_is_replaced_and_not_followed(ready: Path, precious: Path) -> None:
    ready.symlink_to(precious)
    ready.with_name("ready.part").symlink_to(precious)  # where drafts were made once
    ready_file.write(ready, "address")
    assert (ready.read_text(), ready.is_symlink()) == ("address", False)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("planted", ["link", "file", "dangling link"])
def test_what_lies_where_the_draft_is_made_is_not_written_to(
    ready: Path, precious: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can know the name of the draft; here somebody does."""
    monkeypatch.setattr(ready_file.secrets, "token_hex", lambda _: NUMBER)
    draft = ready.with_name(f"ready.{NUMBER}.part")
    if planted == "file":
        os.link(precious, draft)
    else:
        draft.symlink_to(precious if planted == "link" else precious.with_name("nowhere"))
    with pytest.raises(FileExistsError):
        ready_file.write(ready, "address")
    assert precious.read_text() == "precious"
    assert not ready.exists()
    assert not precious.with_name("nowhere").exists()


def test_a_draft_that_cannot_take_its_place_is_removed(ready: Path) -> None:
    ready.mkdir()
    with pytest.raises(OSError, match=re.escape(str(ready))):
        ready_file.write(ready, "address")
    assert list(ready.parent.iterdir()) == [ready]
