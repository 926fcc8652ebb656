"""What a server has of its process and leaves for others: descriptors, a lock, the ready file.

What the command says of them is in ``test_exits.py``.
"""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.server.fakes import PATIENCE, until

from npucall_server.serving import device_lock, ready_file


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of somebody else."""
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


# --- Descriptors: as many as the process may have, and a word where these are few -----------------

PROGRAM = """
import json, resource
from npucall_server.serving import process_limits
from npucall_server.telemetry.log import Log

for limits in json.loads(input()):
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    possible = process_limits.connections(256, 2, 1088, Log())
    print(possible, *resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read from /proc")
def test_the_limit_is_raised_to_the_hard_one_and_a_log_says_how_many_files_are_needed() -> None:
    """In a process of its own, which gets smaller limits one after the other."""
    limits = {(100, 2000): 500, (64, 1024): 256, (1023, 1023): 255, (128, 128): 32}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, input=json.dumps([*limits]), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{n} {hard} {hard}" for (_, hard), n in limits.items()]
    warnings = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert warnings == [
        f"only {limit} files may be open at a time, enough for {connections} connections at each "
        "address: 256 need 1024 files; raise the limit (ulimit -Hn, LimitNOFILE)"
        for limit, connections in ((1023, 255), (128, 32))
    ]


# --- One process has a device, and a late one waits for it instead of failing ---------------------

HOLDER = """
import sys
from pathlib import Path
from npucall_server.serving.device_lock import take
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


def test_a_lock_does_not_follow_a_link_that_somebody_put_there(precious: Path) -> None:
    link = precious.with_name("lock")
    link.symlink_to(precious)
    with pytest.raises(device_lock.LockError):
        device_lock.take(link, 0, lambda _: None)
    assert precious.read_text() == "precious"


# --- The ready file is a new one, whatever somebody put where it is made --------------------------

NUMBER = "0011223344556677"


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
