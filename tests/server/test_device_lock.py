"""One process has a device, and a late one waits for it instead of failing.

What the command does with the lock is in ``test_exits.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from npucall_server import device_lock

from .fakes import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from npucall_server.device_lock import take
take(Path(sys.argv[1]), 0, print)
print("taken", flush=True)
input()
"""


def test_a_late_server_waits_until_the_one_before_is_gone_however_it_went(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    notes: list[str] = []
    late = threading.Thread(target=device_lock.take, args=(lock, PATIENCE, notes.append))
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "taken\n"
        late.start()
        until(lambda: bool(notes), "it waits")
        assert f"process {first.pid} has {lock}" in notes[0]
        first.kill()
    late.join(PATIENCE)
    assert lock.read_text() == str(os.getpid())
    assert len(notes) == 1


def test_a_lock_does_not_follow_a_link_that_somebody_put_there(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "lock"
    link.symlink_to(precious)
    with pytest.raises(device_lock.LockError):
        device_lock.take(link, 0, lambda _: None)
    assert precious.read_text() == "precious"
