"""Whatever ends or is cut, every call is answered, rightly; faults one after the other."""

import signal
import time
from collections.abc import Callable

import pytest

from .bench import Bench
from .hosts import until

HANG = "--timeout=30"
"""A call that takes longer is lost."""
QUICK = ("static", "directory")


def kill_servers(bench: Bench) -> None:
    """One of each host."""
    for each in bench.servers[::2]:
        each.kill()
        time.sleep(0.5)
        each.wait()
        time.sleep(0.5)


def kill_a_keeper(bench: Bench) -> None:
    bench.servers[1].kill_keeper()
    bench.servers[1].wait()


def kill_the_directory(bench: Bench) -> None:
    bench.directory.kill()
    bench.directory.wait()
    time.sleep(2)


def cut_a_host(bench: Bench, seconds: float = 5.0) -> None:
    with bench.hosts["two"].cut():
        time.sleep(seconds)
    time.sleep(2)


def cut_one_way(bench: Bench) -> None:
    """First it hears nobody, then nobody hears it."""
    for half in ("INPUT", "-i", "eth0"), ("OUTPUT", "-o", "eth0"):
        with bench.hosts["three"].losing(*half):
            time.sleep(5)
        time.sleep(3)


def lose_packets(bench: Bench) -> None:
    share = ("-m", "statistic", "--mode", "random", "--probability", "0.05")
    with bench.hosts["one"].losing("INPUT", "-i", "eth0", *share):
        time.sleep(10)


def restart_everything(bench: Bench) -> None:
    """One after the other, each asked to drain; the directory too."""
    for each in (*bench.servers, bench.directory):
        each.kill(signal.SIGTERM)
        each.wait()


FAULTS = (kill_servers, cut_a_host, restart_everything)
MORE_FAULTS = (kill_a_keeper, kill_the_directory, cut_one_way, lose_packets)


def title(fault: Callable[[Bench], None]) -> str:
    return fault.__name__


@pytest.mark.parametrize("source", QUICK)
@pytest.mark.parametrize(
    "fault",
    [*FAULTS, *(pytest.param(fault, marks=pytest.mark.long) for fault in MORE_FAULTS)],
    ids=title,
)
def test_no_call_is_lost(bench: Bench, fault: Callable[[Bench], None], source: str) -> None:
    with bench.calling(source, HANG) as callers:
        fault(bench)
        fault(bench)
        seen = callers.stop()
    seen.check()


@pytest.mark.long
@pytest.mark.parametrize("source", QUICK)
def test_a_host_that_was_away_for_long_is_called_again(bench: Bench, source: str) -> None:
    """A cut of 90 s: the directory has removed its members, connections have broken."""
    with bench.calling(source, HANG) as callers:
        cut_a_host(bench, 90.0)
        seen = callers.stop()
    seen.check()

    def members() -> int:
        with bench.calling(source, "--threads", "24") as callers:
            time.sleep(2)
            return len(callers.stop().by_server)

    until(lambda: members() == len(bench.servers), "its members are called")
