"""The far link: that its wire is as slow as it says, and that nothing is left of it."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import far_link
import link
import pytest
from link import Link
from tests.end_to_end import wire

ROOT = Path(__file__).parents[2]
SLOW = Link("slow", round_trip=0.1, rate=8e6)
MIB = 2**20

needs_a_wire = pytest.mark.skipif(bool(link.missing()), reason=f"no wire: {link.missing()}")


def test_without_root_it_says_so_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(link.sys, "platform", "linux")
    monkeypatch.setattr(link.os, "geteuid", lambda: 1000)
    assert far_link.main([]) == far_link.NOT_POSSIBLE
    assert "skipped: user: expected root" in capsys.readouterr().err


@pytest.mark.more
@needs_a_wire
def test_bytes_take_no_less_time_than_delay_and_rate_of_the_wire_say() -> None:
    with SLOW.up() as ends:
        kernel = far_link._kernel(ends, MIB // 4)
    assert kernel.round_trip >= 0.1
    assert kernel.up >= 0.1 + 2 / 8


@pytest.mark.long
@needs_a_wire
def test_every_measurement_gives_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = ["--round-trip", "1", "--rate", "400", "--rounds", "1", "--folder", str(tmp_path)]
    assert far_link.main(fast) == 0
    told = capsys.readouterr().out
    assert all(f"far link, {name}" in told for name in far_link.MEASURED)


@pytest.mark.long
@needs_a_wire
def test_nothing_is_left_of_it_when_it_is_killed() -> None:
    command = [sys.executable, "benchmarks/far_link.py"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as benchmark:
        try:
            wire.until(lambda: "npucall_server" in names(benchmark.pid), "its server runs")
            started = below(benchmark.pid)
        finally:
            benchmark.send_signal(signal.SIGKILL)
    wire.until(lambda: not any(map(runs, started)), "all that it started has ended")


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    own: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        own = [int(each) for each in children.read_text().split()]
    return own + [each for child in own for each in below(child)]


def names(pid: int) -> str:
    """The command lines of all of them."""
    found = []
    for each in below(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            found.append(Path(f"/proc/{each}/cmdline").read_text())
    return " ".join(found)


def runs(pid: int) -> bool:
    """Whether there is such a process, other than one that nobody has asked for its end."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
