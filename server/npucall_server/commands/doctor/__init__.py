"""The command ``npucall-server doctor``: finds what keeps an NPU of this host from working."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command
from npucall_server.commands.doctor import climb, host, report
from npucall_server.commands.doctor.child import in_child
from npucall_server.commands.doctor.device import examine
from npucall_server.commands.doctor.finding import Finding, Message, Section, Verdict
from npucall_server.commands.doctor.prototypes import check_prototypes
from npucall_server.devices.cann.host import header_folders
from npucall_server.exits import ExitCode
from npucall_server.settings.device_kinds import CANN
from npucall_server.settings.npu import ascend_environment, ascend_paths

_DESCRIPTION = (
    "Looks for what keeps an NPU from working, from the environment to calls whose numbers it "
    "compares with the CPU reference, and says what to do about each fault. Run it as the user, "
    "and in the environment or container, of the server. Exits with 0 if it finds no fault, else "
    "with 69."
)
_REPORT = (
    "write a file that you can send to others, as text and as JSON: all findings with their "
    "times, the assumptions about CANN that they settle, and what you still have to check by "
    "hand. It has versions, the processor, SoC and memory of the device, and paths from the "
    "environment; a finding about nodes names the user. It has no host name, no addresses, no "
    "tokens, and nothing about callers"
)
_CLIMB = (
    "instead, start a server that uses as little as it can of what CANN promises, judge it by "
    "`npucall conform --quick`, then one that uses a little more, and so on; says which is the "
    "first to fail. Needs the distribution npucall-conformance"
)
Messages: TypeAlias = Iterator[Message]

_ROOT = Path("/")
_SECONDS = 90.0
"""The limit for each step of CANN's work: a thread that planned may take a minute to end."""


def run(arguments: Sequence[str], root: Path = _ROOT, seconds: float = _SECONDS) -> int:
    """Runs the command; answers its exit code.

    ``root``: the folder that has /dev, /etc and /usr. ``seconds``: the limit for each step of
    CANN's work.
    """
    work = partial(_examine, root=root, seconds=seconds)
    return command_line.run("doctor", Command(_DESCRIPTION, _add_options, work), arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", type=_device, default="cann:0", metavar=CANN.form, help="default: cann:0"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--climb", action="store_true", help=_CLIMB)
    parser.add_argument("--report", type=_writable, metavar="FILE", help=_REPORT)


def _examine(given: argparse.Namespace, root: Path, seconds: float) -> int:
    if given.climb:
        return climb.climb(given.device)
    header, facts = report.header_of(f"cann:{given.device}"), dict[str, str]()
    kept: list[Finding] = []
    try:
        for line in report.as_lines(_found(_diagnose(given.device, root, seconds), kept, facts)):
            if not given.json:
                command_line.show(line)  # opening a device takes seconds
        end = report.as_json(header, facts, kept) if given.json else report.ending(kept)
        command_line.show(end)
    finally:  # an interrupted run writes a report too
        if given.report is not None:
            given.report.write_text(report.as_file(header, facts, kept), encoding="utf-8")
    return ExitCode.NO_DEVICE if report.count(kept, Verdict.FAULT) else 0


def _diagnose(number: int, root: Path, seconds: float) -> Messages:
    """Runs all checks for device ``number``."""
    paths = ascend_paths()
    yield Section("environment")
    yield from host.check_environment(ascend_environment(), root, number)
    yield Section("device nodes")
    yield from host.check_nodes(root)
    yield Section("driver")
    yield from host.check_driver(root)
    yield Section("custom packages")
    yield from host.check_custom_packages(paths)
    yield Section("headers")
    yield from check_prototypes(list(header_folders(paths)))
    yield from in_child(examine, (number, paths), seconds)


def _found(messages: Messages, kept: list[Finding], facts: dict[str, str]) -> Iterator[Finding]:
    """The findings, each with its section and the time since the message before it."""
    section, before = "", time.perf_counter()
    for message in messages:
        if isinstance(message, Finding):
            elapsed = (time.perf_counter() - before) * 1000
            times = (("elapsed", elapsed), *message.times)
            kept.append(message._replace(times=times, section=section))
            yield kept[-1]
        elif isinstance(message, Section):
            section = message.title
        else:
            facts.update(message)
        before = time.perf_counter()


def _writable(text: str) -> Path:
    """Checks that a file can be written, before all the work and not after it."""
    try:
        Path(text).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"expected a file to write, {error}") from error
    return Path(text)


def _device(text: str) -> int:
    number = CANN.number_in(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"expected {CANN.form}, found {text!r}")
    return number
