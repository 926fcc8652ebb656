"""``client.shared`` of a server that goes while it is asked, and of one that means what it says."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeadlineError, SharedMemoryError
from npucall_client.remote import retry

from .side_script import SharingScript, connected, side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory"),
    pytest.mark.usefixtures("sender"),
]
MIB = 2**20


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.0,))


@pytest.fixture
def script(tmp_path: Path) -> Iterator[SharingScript]:
    with side(tmp_path / "side") as memory:
        yield SharingScript(memory)


def closes(script: SharingScript) -> None:
    """The socket is closed where an answer is expected, twice."""
    script.memory.behaviours = [lambda connection, _: connection.shutdown(socket.SHUT_RDWR)] * 2


def is_gone(script: SharingScript) -> None:
    script.socket += "-gone"


def refuses(script: SharingScript) -> None:
    """The socket's file is there and its process is not, as after kill -9."""
    is_gone(script)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(script.socket)


FAULTS = [closes, is_gone, refuses]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_goes_while_it_is_asked_is_followed_by_one_that_shares(
    script: SharingScript, monkeypatch: pytest.MonkeyPatch, fault: Callable[[SharingScript], None]
) -> None:
    path = script.socket

    def pause(self: retry.Attempts, error: Exception) -> float | None:
        script.socket = path  # the next server is there
        return pause_after(self, error)

    pause_after = retry.Attempts.pause_after
    monkeypatch.setattr(retry.Attempts, "pause_after", pause)
    fault(script)
    # Asked at first by connect, then before and after each time that memory is asked for.
    script.instances = ["first", "first", "second", "second", "third"]
    with connected(script) as client, client.shared(MIB) as memory:
        assert memory.shared


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_lives_on_means_it(
    script: SharingScript, fault: Callable[[SharingScript], None]
) -> None:
    fault(script)
    script.instances = ["the same"] * 9
    with connected(script) as client, pytest.raises(SharedMemoryError, match=r"socket .*side"):
        client.shared(MIB)
    assert len(script.instances) == 9 - 3  # connect, before, after: not asked a second time


def test_who_is_refused_hears_which_user_it_is(script: SharingScript) -> None:
    closes(script)
    with connected(script) as client, pytest.raises(SharedMemoryError, match="you are user"):
        client.shared(MIB)


def test_it_takes_no_longer_than_the_timeout_of_a_call(script: SharingScript) -> None:
    script.memory.behaviours = [lambda connection, _: connection.recv(1)]
    with (
        connected(script) as client,
        pytest.raises(DeadlineError, match="gave no answer"),
    ):
        client.options(timeout=0.2).shared(MIB)
