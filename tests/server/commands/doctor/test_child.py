"""Work in a process of its own: what it finds arrives, and its end is a finding too."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from npucall_server.commands.doctor import child
from npucall_server.commands.doctor.child import in_child
from npucall_server.commands.doctor.finding import Finding, Section, fault, ok

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child imports this module to find its work."""
    monkeypatch.syspath_prepend(Path(__file__).parents[4])


def work(text: str) -> Iterator[Section | Finding]:
    print("what CANN logs")
    yield Section("work", "working")
    yield ok(text)


def crash() -> Iterator[Section | Finding]:
    yield Section("work", "crashing")
    os.kill(os.getpid(), signal.SIGSEGV)
    yield ok("never")


def hang() -> Iterator[Section | Finding]:
    threading.Event().wait()
    yield ok("never")


def test_findings_arrive_and_what_the_work_prints_is_no_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list(in_child(work, ("here",), PATIENCE)) == [Section("work", "working"), ok("here")]
    assert capfd.readouterr() == ("", "what CANN logs\n")


def test_a_crash_is_a_fault_that_says_what_was_done() -> None:
    *_, last = in_child(crash, (), PATIENCE)
    assert last == fault("SIGSEGV ended the process while crashing", last.todo)


def test_a_hang_is_a_fault() -> None:
    (finding,) = in_child(hang, (), 0.05)
    assert finding == fault("no answer for 0.05 s while starting", finding.todo)


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "the process ended with 3 while erring"),
     (-9, "SIGKILL ended the process while erring"),
     (None, "no answer for 10 s while erring, then ending"), (0, "")],
)  # fmt: skip
def test_an_exit_code_is_a_fault(code: int | None, said: str) -> None:
    process: Any = SimpleNamespace(join=lambda _: None, exitcode=code)
    found = list(child._ended(process, "erring"))
    assert found == ([fault(said, found[0].todo)] if said else [])
