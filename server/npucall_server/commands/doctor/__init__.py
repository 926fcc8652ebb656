"""The command ``npucall-server doctor``: finds what keeps an NPU of this host from working."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command
from npucall_server.commands.doctor import report
from npucall_server.commands.doctor.child import in_child
from npucall_server.commands.doctor.device import examine
from npucall_server.commands.doctor.environment import check_environment
from npucall_server.commands.doctor.finding import Finding, Message, Section, Verdict
from npucall_server.commands.doctor.host import check_custom_packages, check_driver, check_nodes
from npucall_server.commands.doctor.machine import described
from npucall_server.commands.doctor.prototypes import check_prototypes
from npucall_server.devices.cann.host import header_folders
from npucall_server.exits import ExitCode
from npucall_server.settings.device_kinds import CANN
from npucall_server.settings.npu import ascend_environment, ascend_paths

_DESCRIPTION = (
    "Looks for what keeps an NPU from working: environment, device nodes, driver, headers, "
    "libraries, versions, device. Then it plans and runs operators with every kind of parameter, "
    "copies in every way, and compares numbers with the CPU reference. It says what to do about "
    "each fault. Run it as the user, and in the environment or container, of the server. Exits "
    "with 0 if it finds no fault, else with 69."
)
_REPORT = (
    "write a file that you can send to others, as text and as JSON: all findings with their "
    "times, the assumptions about CANN that they settle, and what you still have to check by "
    "hand. It has the date, the versions of npucall, Python, kernel, CANN and driver, the "
    "processor, SoC and memory of the device, and paths from the environment; a finding about "
    "nodes names the user. It has no host name, no addresses, no tokens, and nothing about "
    "callers"
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
    parser.add_argument("--report", type=_writable, metavar="FILE", help=_REPORT)


def _examine(given: argparse.Namespace, root: Path, seconds: float) -> int:
    header = described(f"cann:{given.device}")
    kept: list[Message] = []
    messages = _kept(diagnose(given.device, root, seconds), kept)
    try:
        _print(header, messages, kept, is_json=given.json)
    except BrokenPipeError:  # the program that reads it, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:  # an interrupted run writes a report too
        if given.report is not None:
            given.report.write_text(report.as_file(header, kept), encoding="utf-8")
    faulty = any(isinstance(each, Finding) and each.verdict is Verdict.FAULT for each in kept)
    return ExitCode.NO_DEVICE if faulty else 0


def diagnose(number: int, root: Path, seconds: float) -> Messages:
    """Runs all checks for device ``number``."""
    paths = ascend_paths()
    yield Section("environment", "")
    yield from check_environment(ascend_environment(), root, number)
    yield Section("device nodes", "")
    yield from check_nodes(root)
    yield Section("driver", "")
    yield from check_driver(root)
    yield Section("custom packages", "")
    yield from check_custom_packages(paths)
    yield Section("headers", "")
    yield from check_prototypes(list(header_folders(paths)))
    yield from in_child(examine, (number, paths), seconds)


def _print(
    header: dict[str, Any], messages: Messages, kept: list[Message], *, is_json: bool
) -> None:
    """Prints messages as they come. At the end ``kept`` has all of them."""
    for line in report.as_lines(messages):
        if not is_json:
            sys.stdout.write(line)
            sys.stdout.flush()  # opening a device takes seconds
    sys.stdout.write(report.as_json(header, kept) if is_json else report.ending(kept))
    sys.stdout.flush()


def _writable(text: str) -> Path:
    """Checks that a file can be written, before all the work and not after it."""
    path = Path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"expected a file to write, {error}") from error
    return path


def _device(text: str) -> int:
    number = CANN.number_in(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"expected {CANN.form}, found {text!r}")
    return number


def _kept(messages: Messages, kept: list[Message]) -> Messages:
    """Passes messages on and keeps them. A finding gets the time since the message before it."""
    before = time.perf_counter()
    for message in messages:
        now = time.perf_counter()
        if isinstance(message, Finding):
            message = message._replace(times=(("elapsed", (now - before) * 1000), *message.times))  # noqa: PLW2901
        kept.append(message)
        yield message
        before = time.perf_counter()
