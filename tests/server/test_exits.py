"""The exit codes, and that the process really ends with them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.more import only

from npucall_client import connect
from npucall_client.testing import running_server
from npucall_server import __main__, addresses, binding
from npucall_server.exits import ExitCode

from .scripted import PATIENCE, until

CODES = {
    "DRAINED": (0, False),
    "BUG": (1, True),
    "SETTINGS": (2, False),
    "NO_DEVICE": (69, False),
    "DEVICE_LOST": (70, True),
    "CANNOT_BIND": (71, True),
    "DEVICE_TAKEN": (72, True),
    "DRAIN_TIMEOUT": (75, False),
}


def test_the_codes_are_those_of_the_documentation() -> None:
    assert {code.name: (int(code), code.restart) for code in ExitCode} == CODES


@pytest.mark.parametrize("code", ExitCode)
def test_every_code_says_what_it_means(code: ExitCode) -> None:
    assert code.meaning
    assert "\n" not in code.meaning


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "npucall_server", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_wrong_settings_end_with_2() -> None:
    ended = serve("--queue-length=many")
    assert ended.returncode == 2
    assert ended.stderr.startswith("npucall-server: queue_length: ")
    assert ended.stderr.count("\n") == 1


def test_a_device_that_is_not_there_ends_with_69() -> None:
    ended = serve("--device=cann:0")
    assert ended.returncode == 69
    assert "cann:0" in ended.stderr


def test_an_address_that_is_taken_ends_with_71() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = serve("--listen", address)
    assert ended.returncode == 71
    assert f"listen: expected a free address, found {address}" in ended.stderr


@pytest.mark.parametrize("setting", only("listen", "shared_memory"))
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing/socket", "expected a path in a folder that exists, found no folder "),
        ("file/socket", "expected a path in a folder that exists, found no folder "),
        (108 * "x", "expected a path of at most 107 bytes, found "),
    ],
)
def test_a_socket_s_path_that_no_restart_mends_ends_with_2(
    tmp_path: Path, setting: str, path: str, said: str
) -> None:
    (tmp_path / "file").touch()
    flags = {"listen": "127.0.0.1:0", setting: f"{tmp_path}/{path}"}
    if setting == "listen":
        flags["listen"] = f"unix:{flags['listen']}"
    ended = serve(*(f"--{name.replace('_', '-')}={value}" for name, value in flags.items()))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"npucall-server: {setting}: {said}")
    assert ended.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_written_to_has_no_place_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    fault = addresses.fault_of_path(tmp_path / "socket")
    assert fault == f"expected a folder where this user may create files, found {tmp_path}"


def test_a_ready_file_that_cannot_be_written_ends_with_2(tmp_path: Path) -> None:
    ended = serve("--listen=127.0.0.1:0", f"--ready-file={tmp_path}/missing/ready")
    assert ended.returncode == 2
    assert "npucall-server: ready_file: [Errno 2]" in ended.stderr


def test_printing_the_settings_ends_with_0() -> None:
    ended = serve("--print-settings", "--queue-length=3")
    assert ended.returncode == 0
    assert "queue_length = 3\n" in ended.stdout


def test_health_reports_wrong_settings_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_QUEUE_LENGTH", "many")
    ended = serve("health")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


def test_a_stopped_server_ends_with_0() -> None:
    with running_server() as server:
        assert server.stop() == 0


def test_a_bug_at_the_start_ends_with_1_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(binding, "bind", broken)
    assert __main__.serve(["--listen=127.0.0.1:0"]) == 1
    assert '"event": "bug"' in capsys.readouterr().err


def test_a_log_without_a_reader_changes_neither_answers_nor_the_exit_code(tmp_path: Path) -> None:
    """Python flushes standard error at its end and exits with 120 where that fails."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*command, f"--ready-file={ready}"], stderr=subprocess.PIPE, env=environment
    )
    try:
        until(ready.exists, "the server is ready")
        assert process.stderr is not None
        process.stderr.close()
        with connect(ready.read_text()) as client:
            assert client.server_info().calls_in_flight == 0
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
