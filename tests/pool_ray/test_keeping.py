"""A keeper at work with real servers, without Ray."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pool.hosts import until
from tests.rows import each

from npucall_client import connect
from npucall_pool import bound
from npucall_pool.child import own_folder
from npucall_pool.keeping import Keeping
from npucall_pool.order import Order

PORTS = (51300, 51399)


def order(folder: Path, **changes: Any) -> Order:
    values: dict[str, Any] = {
        "name": "127.0.0.1-npu-0",
        "host": "127.0.0.1",
        "environment": sys.prefix,
        "program": "npucall-server",
        "arguments": (
            "serve", "--listen={host}:{port}", "--device={device}",
            "--ready-file={folder}/{name}.ready", "--device-lock={folder}/NPU-{number}.lock",
        ),
        "ports": PORTS,
        "port": PORTS[0],
        "folder": str(folder),
        **changes,
    }  # fmt: skip
    return Order(**values)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of locks; who holds one at the end is killed."""
    made = tmp_path / "own"
    made.mkdir(mode=0o700)
    yield made
    for lock in made.glob("*.lock"):
        if lock.read_text().isdigit():
            try:
                os.kill(int(lock.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue


def phase(keeping: Keeping) -> str:
    return str(json.loads(keeping.status())["phase"])


def test_a_server_is_kept_killed_started_again_and_stopped(folder: Path) -> None:
    keeping = Keeping(order(folder), ("3",))
    until(lambda: phase(keeping) == "serving", "the server serves")
    first = json.loads(keeping.status())
    with connect(first["address"]) as client:
        assert client.server_info().calls_in_flight == 0
    assert (folder / "NPU-3.lock").read_text() == str(first["pid"])
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: phase(keeping) == "serving" and "signal 9" in keeping.status(), "it serves again")
    last = json.loads(keeping.stop())
    assert (last["phase"], last["exit_code"], last["starts"]) == ("stopped", 0, 2)
    assert not Path(f"/proc/{last['pid']}").exists()


@pytest.mark.more
def test_wrong_settings_are_told_in_the_words_of_the_server(folder: Path) -> None:
    keeping = Keeping(order(folder, arguments=("serve", "--queue-length=many")))
    until(lambda: phase(keeping) == "out", "the server is out")
    why = json.loads(keeping.status())["why"]
    assert why.startswith("exit code 2, its settings are wrong: npucall-server: queue_length: ")


def test_an_environment_without_a_server_is_told(folder: Path) -> None:
    keeping = Keeping(order(folder, environment="/nowhere"))
    until(lambda: phase(keeping) == "out", "the server is out")
    why = json.loads(keeping.status())["why"]
    assert why == (
        "it cannot be started: expected a file, found none at /nowhere/bin/npucall-server"
    )


FAKE_SERVER = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""
KEEPER = (
    "import sys, time; from npucall_pool.keeping import Keeping; "
    "from npucall_pool.order import Order; "
    "Keeping(Order.of_text(sys.argv[1])); time.sleep(600)"
)


def test_a_server_dies_with_the_process_that_keeps_it(folder: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "fake-server").write_text(FAKE_SERVER)
    given = {"environment": str(tmp_path), "program": "fake-server"}
    told = order(folder, arguments=("{folder}/NPU-{number}.lock",), **given)
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER, told.as_text()])
    try:
        lock = folder / "NPU-0.lock"
        until(lambda: lock.exists() and lock.read_text(), "the server has its device")
        server = Path(f"/proc/{lock.read_text()}")
        assert server.exists()
    finally:
        keeper.kill()
        keeper.wait()
    until(lambda: not server.exists(), "the server is gone")


def test_a_program_whose_parent_is_gone_already_is_not_started() -> None:
    command = [sys.executable, "-I", "-m", "npucall_pool.bound", "1", "/bin/echo", "started"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (bound.PARENT_GONE, "")


def test_a_program_that_is_not_there_is_named() -> None:
    command = [sys.executable, "-I", "-m", "npucall_pool.bound", str(os.getpid()), "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr.startswith("npucall-pool: expected a program, found /nowhere: ")


def test_what_is_rays_own_does_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from npucall_pool import environment

    for name in "RAY_ADDRESS", "PYTHONPATH", "OMP_NUM_THREADS":
        monkeypatch.setenv(name, "rays")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "3")
    found = environment.of_server()
    assert "rays" not in found.values()
    assert found["ASCEND_RT_VISIBLE_DEVICES"] == "3"


@each(("visible", "device"), [("3", "cann:0"), ("", "cann:3"), ("2,3", "cann:3")])
def test_the_device_is_numbered_as_the_server_will_see_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, visible: str, device: str
) -> None:
    """In containers Ray is told not to set the variable, since the driver numbers anew there."""
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
    keeping = Keeping(order(folder, device="cann", environment="/nowhere"), ("3",))
    assert json.loads(keeping.status())["device"] == device


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(PermissionError, match="folder: expected one that user "):
        own_folder(str(open_to_all))


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(real)
    with pytest.raises(PermissionError, match="folder: expected one that user "):
        own_folder(str(link))
