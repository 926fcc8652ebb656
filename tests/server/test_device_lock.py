"""One process has a device, and a late one waits for it instead of failing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from npucall_client import connect
from npucall_client.testing import running_server
from npucall_server import device_lock

from .scripted import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def late_server(lock: Path, wait: float, ready: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0", f"--ready-file={ready}",
         f"--device-lock={lock}", f"--device-lock-wait={wait}"],
        stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_late_server_waits_until_the_one_before_is_gone_however_it_went(
    lock: Path, tmp_path: Path
) -> None:
    ready = tmp_path / "late"
    with running_server(f"--device-lock={lock}") as first:
        late = late_server(lock, PATIENCE, ready)
        try:
            assert late.stderr is not None
            said = late.stderr.readline().decode()
            assert f"process {first.process.pid} has {lock}" in said
            assert not ready.exists()
            first.process.kill()
            until(ready.exists, "the late server answers")
            with connect(ready.read_text()) as client:
                assert client.server_info().calls_in_flight == 0
            assert lock.read_text() == str(late.pid)
        finally:
            late.kill()
            late.communicate()


def test_a_server_that_waited_in_vain_ends_with_72_and_names_who_has_the_device(
    lock: Path, tmp_path: Path
) -> None:
    with running_server(f"--device-lock={lock}") as first:
        late = late_server(lock, 0.2, tmp_path / "late")
        said = late.communicate(timeout=PATIENCE)[1].decode()
        assert late.returncode == 72
        assert (
            f"npucall-server: device_lock: process {first.process.pid} has held {lock} for 0.2 s "
            "(device_lock_wait); end that process, or wait longer"
        ) in said


def test_a_lock_where_no_file_can_be_made_ends_with_2(tmp_path: Path) -> None:
    late = late_server(tmp_path / "missing" / "lock", 0, tmp_path / "late")
    said = late.communicate(timeout=PATIENCE)[1].decode()
    assert (late.returncode, said.count("\n")) == (2, 1)
    assert said.startswith("npucall-server: device_lock: expected a file that this user may write,")


def test_a_lock_does_not_follow_a_link_that_somebody_put_there(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "lock"
    link.symlink_to(precious)
    with pytest.raises(device_lock.LockError):
        device_lock.take(link, 0, lambda _: None)
    assert precious.read_text() == "precious"
