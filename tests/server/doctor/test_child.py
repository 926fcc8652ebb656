"""Work in a process of its own: what it finds arrives, and its end is a finding too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from npucall_server.doctor.child import in_child
from npucall_server.doctor.finding import Finding, Section, fault, ok

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child imports this module to find its work."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])


def well(text: str) -> Iterator[Section | Finding]:
    yield Section("work", "working")
    yield ok(text)


def crash() -> Iterator[Section | Finding]:
    yield Section("work", "crashing")
    os.kill(os.getpid(), signal.SIGSEGV)
    yield ok("never")


def hang() -> Iterator[Section | Finding]:
    threading.Event().wait()
    yield ok("never")


def bug() -> Iterator[Section | Finding]:
    yield Section("work", "erring")
    raise SystemExit(3)


def noise() -> Iterator[Section | Finding]:
    print("what CANN logs")
    yield ok("here")


def test_what_the_work_prints_is_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(in_child(noise, (), PATIENCE)) == [ok("here")]
    assert capfd.readouterr() == ("", "what CANN logs\n")


def test_findings_arrive_and_a_good_end_says_nothing() -> None:
    assert list(in_child(well, ("here",), PATIENCE)) == [Section("work", "working"), ok("here")]


def test_a_crash_is_a_fault_that_says_what_was_done() -> None:
    *_, last = in_child(crash, (), PATIENCE)
    assert last == fault("SIGSEGV ended the process while crashing", last.todo)


def test_a_hang_is_a_fault() -> None:
    (finding,) = in_child(hang, (), 0.5)
    assert finding == fault("no answer for 0.5 s while starting", finding.todo)


def test_an_exit_code_is_a_fault() -> None:
    *_, last = in_child(bug, (), PATIENCE)
    assert last == fault("the process ended with 3 while erring", last.todo)
