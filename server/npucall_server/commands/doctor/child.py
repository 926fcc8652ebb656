"""Runs work in a process of its own, so that a crash or a hang is only a finding."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from npucall_server.commands.doctor.finding import Finding, Message, Section, fault

_END_SECONDS = 10.0
"""How long the process may take to end after the work is done."""
_CRASH = (
    "read standard error above, and CANN's log (ASCEND_PROCESS_LOG_PATH, by default ~/ascend/log); "
    "the usual cause is a toolkit, an operator package and a driver of different versions"
)
_HANG = (
    "look at `npu-smi info`: if it hangs too, driver or device are at fault (`dmesg`); if another "
    "process occupies the device, end it"
)

Work = Callable[..., Iterable[Message]]


def in_child(work: Work, arguments: tuple[Any, ...], seconds: float) -> Iterator[Message]:
    """Yields the messages of the work as they come.

    Then yields a fault if the process crashed, or if no message came for ``seconds``. The process
    is a new one, not a fork: CANN must not be forked.
    """
    fresh = multiprocessing.get_context("spawn")
    receiver, sender = fresh.Pipe(duplex=False)
    child = fresh.Process(target=_send_all, args=(sender, work, arguments), daemon=True)
    child.start()
    sender.close()
    doing = "starting"
    try:
        while receiver.poll(seconds):
            message: Message = receiver.recv()
            if isinstance(message, Section):
                doing = message.doing or doing
            yield message
        yield _hang(doing, seconds)
    except EOFError:
        yield from _ended(child, doing)
    finally:
        child.kill()
        child.join()


def _send_all(sender: Connection[Any, Any], work: Work, arguments: tuple[Any, ...]) -> None:
    os.dup2(2, 1)  # CANN may log to standard output, where the parent prints findings
    for message in work(*arguments):
        sender.send(message)
    sender.close()


def _ended(child: Any, doing: str) -> Iterator[Finding]:
    child.join(_END_SECONDS)
    if child.exitcode is None:
        yield _hang(f"{doing}, then ending", _END_SECONDS)
    elif code := child.exitcode:
        name = signal.Signals(-code).name if code < 0 else ""
        how = f"{name} ended the process" if name else f"the process ended with {code}"
        yield fault(f"{how} while {doing}", _CRASH)


def _hang(doing: str, seconds: float) -> Finding:
    return fault(f"no answer for {seconds:g} s while {doing}", _HANG)
