"""The exit codes, and that a server that cannot start says why and ends with the right one."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tests.server.fakes import PATIENCE, until
from tests.server.serving import serving
from tests.server.tenant_server import ask

from npucall_server.__main__ import main
from npucall_server.commands import serve as command
from npucall_server.devices import NoDeviceError
from npucall_server.exits import ExitCode
from npucall_server.serving import binding, device_lock
from npucall_server.settings import addresses

Serve = Callable[..., tuple[object, str]]

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
SERVER = sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"


def test_the_codes_are_those_of_the_documentation_and_say_what_they_mean() -> None:
    assert {code.name: (int(code), code.restart) for code in ExitCode} == CODES
    assert all(code.meaning and "\n" not in code.meaning for code in ExitCode)


# --- What keeps it from serving -------------------------------------------------------------------


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str]) -> Iterator[Serve]:
    """The command in this process, with flags with which it does not get to serve."""
    logger = logging.getLogger()
    before = list(logger.handlers)

    def run(**settings: object) -> tuple[object, str]:
        given = {"listen": "127.0.0.1:0", "keep_memory": 0, **settings}
        with pytest.raises(SystemExit) as ended:
            command.main([f"--{k.replace('_', '-')}={v}" for k, v in given.items()])
        return ended.value.code, capsys.readouterr().err

    yield run
    logger.handlers[:] = before


def test_a_socket_s_path_that_no_restart_mends_ends_with_2(
    serve: Serve, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "file").touch()
    for setting, form in ("listen", "unix:{}"), ("shared_memory", "{}"):
        for path, said in {
            "missing/socket": "expected a path in a folder that exists, found no folder ",
            "file/socket": "expected a path in a folder that exists, found no folder ",
            108 * "x": "expected a path of at most 107 bytes, found ",
        }.items():
            with subtests.test(setting, path=path):
                code, told = serve(**{setting: form.format(tmp_path / path)})
                assert code == 2
                assert told.startswith(f"npucall-server: {setting}: {said}")
                assert told.count("\n") == 1


def test_an_address_that_is_taken_ends_with_71_and_who_has_it_goes_on(serve: Serve) -> None:
    with serving() as server, socket.create_server(("127.0.0.1", 0)) as listening:
        other = f"127.0.0.1:{listening.getsockname()[1]}"
        for setting, taken in ("listen", server.target), ("metrics_listen", other):
            code, told = serve(**{setting: taken})
            assert code == 71
            assert f"{setting}: expected a free address, found {taken}" in told
        with grpc.insecure_channel(server.target) as channel:
            ask(channel)


def test_a_file_that_cannot_be_used_ends_with_2(serve: Serve, tmp_path: Path) -> None:
    missing, config = tmp_path / "missing" / "file", tmp_path / "settings.toml"
    config.write_text(f'token_hashes = "{missing}"\n[tenants.a]\n')
    for settings, said in [
        ({"config": config}, "access: [Errno 2] No such file or directory: "),
        ({"usage_file": missing}, "usage_file: expected a file that the server can read and "),
        ({"device_lock": missing}, "device_lock: expected a file that this user may write, "),
    ]:
        code, told = serve(**settings)
        assert (code, told.count("\n")) == (2, 1)
        assert told.startswith(f"npucall-server: {said}")


def test_without_the_extra_the_setting_of_metrics_names_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    code, told = serve(metrics_listen="127.0.0.1:0")
    assert code == 2
    assert told == (
        "npucall-server: metrics_listen: the extra metrics is missing; "
        "pip install './server[metrics]', in npucall's sources\n"
    )


def test_a_device_that_is_not_there_ends_with_69(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise NoDeviceError("cann:0: expected CANN, found none")

    monkeypatch.setattr(command, "open_device", absent)
    assert serve(device="cann:0") == (69, "npucall-server: cann:0: expected CANN, found none\n")


def test_a_device_that_another_process_keeps_ends_with_72_and_names_the_process(
    serve: Serve, tmp_path: Path
) -> None:
    """Here the other one is a descriptor of this process, which counts as much."""
    lock = tmp_path / "lock"
    device_lock.take(lock, 0, lambda _: None)
    code, told = serve(device_lock=lock, device_lock_wait=0.2)
    assert code == 72
    assert f"process {os.getpid()} has {lock}; this server waits up to 0.2 s" in told
    assert (
        f"npucall-server: device_lock: process {os.getpid()} has held {lock} for 0.2 s "
        "(device_lock_wait); end that process, or wait longer"
    ) in told


def test_a_bug_at_the_start_ends_with_1_and_is_logged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(binding, "bind", broken)
    code, told = serve()
    assert code == 1
    assert '"event": "bug"' in told


def test_a_folder_that_cannot_be_written_to_has_no_place_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    fault = addresses.fault_of_path(tmp_path / "socket")
    assert fault == f"expected a folder where this user may create files, found {tmp_path}"


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The code with which the command ends."""
    monkeypatch.setattr(sys, "argv", ["npucall-server", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_printing_the_settings_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "npucall-server: --print-settings is a command now: npucall-server settings\n"
    for arguments, said in (
        (["settings"], ""), (["--print-settings"], old), (["serve", "--print-settings"], old),
    ):  # fmt: skip
        assert ended(monkeypatch, *arguments, "--queue-length=3") == 0
        out, error = capsys.readouterr()
        assert "queue_length = 3\n" in out
        assert error == said


def test_health_reports_wrong_settings_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUCALL_QUEUE_LENGTH", "many")
    assert ended(monkeypatch, "health") == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.more
def test_a_ready_file_that_cannot_be_written_ends_the_process_with_2(tmp_path: Path) -> None:
    command = [*SERVER, f"--ready-file={tmp_path}/missing/ready"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "npucall-server: ready_file: [Errno 2]" in done.stderr


def test_a_server_obeys_signals_and_answers_though_nobody_reads_its_log_any_more(
    tmp_path: Path,
) -> None:
    """SIGHUP: it reads its tenants again; SIGTERM: it ends with 0.

    Python flushes standard error at its end and exits with 120 where that fails.
    """
    config, tokens, ready = tmp_path / "settings.toml", tmp_path / "tokens", tmp_path / "ready"
    tokens.touch(0o600)
    tables = f'token_hashes = "{tokens}"\n[tenants.a]\n'
    config.write_text(tables)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*SERVER, f"--config={config}", f"--ready-file={ready}"],
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        until(ready.exists, "the server is ready")
        config.write_text(tables + "[tenants.b]\n")
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert any(b"read again: a, b" in line for line in process.stderr)
        process.stderr.close()
        with grpc.insecure_channel(ready.read_text()) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                ask(channel)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
