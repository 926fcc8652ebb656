"""From binding to draining: addresses, the ready file, health."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import npucall_client
from npucall_server.binding import BindError

from .serving import serving

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def socket_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AF_UNIX takes 107 bytes."""
    return tmp_path_factory.mktemp("s")


def answers(target: str) -> bool:
    with npucall_client.connect(target) as client:
        return client.server_info().server.device == "fake"


def test_the_ready_file_names_the_address_for_others_until_the_server_has_stopped(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    with serving(ready_file=ready) as server:
        assert ready.read_text() == server.target
        host, _, port = server.target.rpartition(":")
        assert host == "127.0.0.1"
        assert 0 < int(port) < 65536
    assert not ready.exists()
    with serving(ready_file=ready, advertise="npu1.lab:50051"):
        assert ready.read_text() == "npu1.lab:50051"


def test_a_unix_socket_that_a_killed_server_left_does_not_keep_the_next_one_out(
    socket_folder: Path,
) -> None:
    path = socket_folder / "left.sock"
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    assert path.exists()
    with serving(listen=f"unix:{path}") as server:
        assert server.target == f"unix:{path}"
        assert answers(server.target)


def test_a_unix_socket_in_use_is_not_taken_over(socket_folder: Path) -> None:
    target = f"unix:{socket_folder}/used.sock"
    with serving(listen=target):
        with (
            pytest.raises(BindError, match="where another server answers"),
            serving(listen=target),
        ):
            pass
        assert answers(target)


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="no IPv6")  # noqa: PTH110
def test_a_server_listens_on_the_other_loopback() -> None:
    with serving(listen="[::1]:0") as server:
        assert server.target.startswith("[::1]:")
        assert answers(server.target)


def test_listening_for_everybody_is_warned_of_and_loopback_is_not() -> None:
    for settings, warnings in ({"listen": "0.0.0.0:0", "insecure_bind": True}, 1), ({}, 0):
        with serving(**settings) as server:  # type: ignore[arg-type]
            assert len(server.events("serving")) == 1
            assert len(server.events("warning")) == warnings


def test_draining_and_stopping_are_logged() -> None:
    with serving() as server:
        pass
    assert [line["calls"] for line in server.events("draining")] == [0]
    assert [line["finished"] for line in server.events("stopped")] == [True]
