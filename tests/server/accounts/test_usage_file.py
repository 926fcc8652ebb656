"""The file of the account: what outlives a restart, and what a full disk does."""

import errno
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.server.serving import serving

from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import connect
from npucall_server.accounts import usage_file
from npucall_server.accounts.usage import Usage, UsageKey, UsageLine
from npucall_server.accounts.usage_file import UsageFile
from npucall_server.devices import open_device
from npucall_server.settings.server import ServerSettings
from npucall_server.telemetry.log import Log, Record

NOON = 43_200 * 41
KL, GELU = "aclnnKlDivBackward", "aclnnGeluBackward"
ONE = np.ones(1, np.float32)


class Account:
    """An account with its file, as of one life of a server."""

    def __init__(self, path: Path, now: float = NOON) -> None:
        self.now = now
        self.text = io.StringIO()
        self.usage = Usage((KL, GELU), lambda: self.now)
        self.file = UsageFile(path, self.usage, Log(stream=self.text))

    def use(self, operator: str = KL, caller: str = "ann", reason: str = "OK") -> None:
        record = Record("Execute", "a name", "a peer", "vision", caller, operator, reason=reason)
        record.request_bytes, record.response_bytes = 100, 40
        record.device_ns = 10**9
        self.usage.called(record)

    def write(self) -> None:
        """As its thread does when it looks."""
        self.file._write(self.usage.unwritten())

    @property
    def warnings(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.text.getvalue().splitlines()]


@contextmanager
def account(path: Path, now: float = NOON) -> Iterator[Account]:
    made = Account(path, now)
    try:
        yield made
    finally:
        made.file.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.jsonl"


def test_a_line_has_a_caller_and_a_minute_with_the_operators_inside(path: Path) -> None:
    with account(path) as kept:
        kept.use(KL)
        kept.use(GELU, reason="QUEUE_FULL")
        kept.use(KL, caller="abe")
        kept.write()
        assert path.read_text() == ""
        kept.now += 60
        kept.write()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    used = {
        "calls": 1, "request_bytes": 100, "response_bytes": 40, "device_ns": 10**9,
        "calls_in_frames": 0,
    }  # fmt: skip
    minute = {"minute": NOON, "tenant": "vision"}
    answered, refused = ({**used, "refusals": each} for each in ({}, {"QUEUE_FULL": 1}))
    assert lines == [
        {**minute, "caller": "ann", "operators": {KL: answered, GELU: refused}},
        {**minute, "caller": "abe", "operators": {KL: answered}},
    ]


def test_the_account_and_its_quotas_outlive_restarts(path: Path) -> None:
    for life in range(3):  # all in one minute: what is restored must not be written again
        with account(path, NOON + 10 * life) as kept:
            kept.use(reason="CANCELLED")
    with account(path, NOON + 120) as kept:
        assert kept.usage.device_seconds("vision") == 3.0
        assert kept.usage.lines() == {
            UsageKey("vision", "ann", KL): UsageLine(3, 300, 120, 3 * 10**9, {"CANCELLED": 3})
        }
        assert kept.usage.since == NOON
        assert kept.warnings == []


def test_a_torn_last_line_is_passed_over_and_the_next_one_is_whole(path: Path) -> None:
    with account(path) as kept:
        kept.use()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with account(path, NOON + 60) as kept:
        assert kept.usage.device_seconds("vision") == 1.0
        kept.use()
    (warning,) = kept.warnings
    assert "found 1 other lines" in warning
    with account(path, NOON + 120) as kept:
        assert kept.usage.device_seconds("vision") == 2.0


OTHER_LINES = [
    b"\xff\xfe", b"[]", b"null", b"{}", b'{"minute": 0, "tenant": "a", "caller": "b"}',
    b'{"minute": "x", "tenant": "a", "caller": "b", "operators": {}}',
    b'{"minute": 1771200, "tenant": "a", "caller": "b", "operators": {"c": {"calls": null}}}',
]  # fmt: skip


def test_lines_of_another_kind_are_passed_over(path: Path, subtests: pytest.Subtests) -> None:
    for line in OTHER_LINES:
        with subtests.test(line=line):
            path.write_bytes(line + b"\n")
            with account(path) as kept:
                assert kept.usage.lines() == {}
                assert len(kept.warnings) == 1


def test_the_file_is_rotated_and_all_of_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_file, "MOST_BYTES", 1)
    monkeypatch.setattr(usage_file, "OLD_FILES", 4)
    with account(path) as kept:
        for _ in range(7):
            kept.use()
            kept.now += 60
            kept.write()
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["usage.jsonl", *(f"usage.jsonl.{number}" for number in range(1, 5))]
    minutes = [json.loads(each.read_text())["minute"] for each in sorted(path.parent.iterdir())]
    assert minutes == [NOON + 60 * minute for minute in (6, 5, 4, 3, 2)]
    with account(path, kept.now) as kept:
        assert kept.usage.device_seconds("vision") == 5.0


class FullDisk(io.FileIO):
    """A file on a disk that has room for 50 bytes of it."""

    def write(self, data: Any) -> int:
        room = 50 - self.tell()
        if room == 0:
            raise OSError(errno.ENOSPC, "full")
        return super().write(data[:room])


def test_a_full_disk_is_one_warning_and_what_is_missing_is_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with account(path) as kept:
        kept.use()
        kept.now += 60
        with monkeypatch.context() as full:
            full.setattr(UsageFile, "_open", lambda file: FullDisk(file._path, "ab"))
            kept.write()
            kept.use()
            kept.now += 60
            kept.write()
            assert path.read_bytes() == b""  # of a line that does not fit nothing stays
        assert kept.usage.device_seconds("vision") == 2.0
        kept.write()
        assert [json.loads(line)["minute"] for line in path.read_text().splitlines()] == [
            NOON, NOON + 60,
        ]  # fmt: skip
    (warning,) = kept.warnings
    assert warning.startswith(f"usage_file: the server cannot write to {path}: ")


def test_strangers_on_the_host_cannot_read_it(path: Path) -> None:
    with account(path):
        assert path.stat().st_mode & 0o007 == 0


def test_a_server_with_a_folder_begins_where_the_one_before_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "state/usage.jsonl"
    for calls in 1, 2:
        device = open_device(ServerSettings(), print)  # type: ignore[call-arg]
        with serving(device, state_folder=path.parent) as server, connect(server.target) as client:
            client.run(l1_loss_backward, ONE, ONE, ONE)
        used = [json.loads(line)["operators"] for line in path.read_text().splitlines()]
        name = "aclnnL1LossBackward"  # what the connection asked first has a line of its own
        assert sum(each[name]["calls"] for each in used if name in each) == calls
