"""The far link: that its wire is as slow as it says, and that nothing is left of it."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from itertools import takewhile
from operator import lt
from pathlib import Path

import far_link
import link
import pytest
from link import Ends, Link, far_server
from tests.end_to_end import wire
from tests.summary import figures

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
SLOW = Link("slow", round_trip=0.1, rate=8e6)
MIB = 2**20
ROUND_TRIP = 0.8
"""Seconds: longer than a client thinks, shorter than a link of which the kernel despairs."""

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


def round_trips(ends: Ends, *words: str) -> float:
    """For which a command waits, one after the other."""
    trips = True
    while trips:  # or what the last command left on the wire would count
        time.sleep(1.5 * ROUND_TRIP)
        trips = bool(ends.trips())
    command = [*ends.client, TOOLS / "npucall", *words]
    subprocess.run(command, check=True, capture_output=True)
    return ends.trips() / 2


@pytest.mark.long
@needs_a_wire
def test_commands_wait_for_as_many_round_trips_as_the_page_says() -> None:
    """If a client takes longer than one to think, as on a busy machine, pings come in between."""
    with Link("far", ROUND_TRIP, rate=1e9).up() as ends, far_server(ends) as server:
        for target in server.target, f"pool:{server.target}":
            for most, words in (6, ("info",)), (4, ("run", "Exp", "self=[0]")):
                tries = (round_trips(ends, *words, f"--target={target}") for _ in range(20))
                counted = list(takewhile(partial(lt, most), tries))
                figures(f"{words[0]} of {target.partition(':')[0]}: {counted or most} round trips")
                assert len(counted) < 20


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
