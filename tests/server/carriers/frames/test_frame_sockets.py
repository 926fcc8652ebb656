"""Where the Unix socket of frames is if nobody says it."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from tests.server.serving import Served, serving

from npucall_server.settings import server as settings

from .peer import WELCOME, FramePeer


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user in a temporary folder of its own."""
    own = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own / f"npucall-{os.geteuid()}"


def path_of(served: Served) -> str:
    return served.parts.methods.operators.frames_socket


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_each_server_has_a_path_that_nobody_else_can_reach(folder: Path) -> None:
    with serving() as first, serving() as second:
        assert len({path_of(first), path_of(second)}) == 2
        for served in (first, second):
            path = Path(path_of(served))
            assert path.parent == folder
            assert (mode_of(folder), mode_of(path)) == (0o700, 0o600)
            with FramePeer(str(path)) as peer:
                assert peer.enter().kind == WELCOME
    assert not list(folder.iterdir())


def test_others_reach_it_where_they_may_connect(folder: Path) -> None:
    with serving(shared_memory_users=(4242,)) as served:
        assert (mode_of(folder), mode_of(Path(path_of(served)))) == (0o711, 0o666)


def test_what_a_killed_server_left_goes_and_what_answers_stays(folder: Path) -> None:
    with serving() as served, socket.socket(socket.AF_UNIX) as killed:
        left = folder / "0.sock"
        killed.bind(str(left))  # as of a process that has gone: nobody listens
        with serving():
            assert not left.exists()
            with FramePeer(path_of(served)) as peer:
                assert peer.enter().kind == WELCOME


@pytest.mark.parametrize("fault", ["a link", "a file", "open to all"])
def test_a_folder_that_is_not_its_own_is_not_used(folder: Path, fault: str) -> None:
    if fault == "a link":
        folder.symlink_to(folder.parent)
    elif fault == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with serving() as served:
        assert not path_of(served)
        (warning,) = served.events("warning")
        assert "frames_socket: clients on this host use gRPC" in warning["message"]


def test_it_is_not_there_if_it_is_off_or_the_system_cannot(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(frames_socket="off") as served:
        assert not path_of(served)
    monkeypatch.setattr(settings, "_KNOWS_WHO_CONNECTS", False)
    with serving() as served:
        assert not path_of(served)
    assert not folder.exists()
