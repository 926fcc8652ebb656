"""The command ``npucall-server doctor``: what keeps an NPU of this host from working."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from npucall_server.device_kinds import CANN
from npucall_server.devices.cann.host import header_folders
from npucall_server.doctor import report
from npucall_server.doctor.child import in_child
from npucall_server.doctor.device import examine
from npucall_server.doctor.environment import check_environment
from npucall_server.doctor.finding import Finding, Section, Verdict
from npucall_server.doctor.host import check_custom_packages, check_driver, check_nodes
from npucall_server.doctor.prototypes import check_prototypes
from npucall_server.exits import ExitCode
from npucall_server.npu_settings import ascend_environment, ascend_paths

_DESCRIPTION = (
    "Looks for what keeps an NPU from working: environment, device nodes, driver, libraries, "
    "versions, device, operators, headers; then runs an operator and compares its numbers with the "
    "CPU reference. Says what to do about each fault. To be run as the user, in the environment or "
    "container, in which the server runs. Exits with 0 if nothing is a fault, else with 69."
)
Messages: TypeAlias = Iterator[Section | Finding]

_ROOT = Path("/")
_SECONDS = 60.0
"""For all that CANN does."""


def run(arguments: Sequence[str], root: Path = _ROOT, seconds: float = _SECONDS) -> int:
    """Runs the command; answers its exit code.

    ``root``: the folder that has /dev, /etc and /usr; ``seconds``: what CANN may take in all.
    """
    parser = argparse.ArgumentParser("npucall-server doctor", description=_DESCRIPTION)
    parser.add_argument(
        "--device", type=_device, default="cann:0", metavar=CANN.form, help="default: cann:0"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    given = parser.parse_args(arguments)
    findings: list[Finding] = []
    messages = _kept(diagnose(given.device, root, seconds), findings)
    write = _write_json if given.json else _write_text
    try:
        write(given.device, messages, findings)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    faulty = any(finding.verdict is Verdict.FAULT for finding in findings)
    return ExitCode.NO_DEVICE if faulty else 0


def diagnose(number: int, root: Path, seconds: float) -> Messages:
    """Everything that is looked at, for device ``number``."""
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


def _write_text(number: int, messages: Messages, findings: list[Finding]) -> None:
    del number
    for line in report.as_lines(messages):
        sys.stdout.write(line)
        sys.stdout.flush()  # opening a device takes seconds
    sys.stdout.write(report.ending(findings))


def _write_json(number: int, messages: Messages, findings: list[Finding]) -> None:
    del findings
    sys.stdout.write(report.as_json(f"cann:{number}", messages))


def _device(text: str) -> int:
    number = CANN.number_in(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"expected {CANN.form}, found {text!r}")
    return number


def _kept(messages: Messages, findings: list[Finding]) -> Messages:
    """The messages; findings are kept too."""
    for message in messages:
        if isinstance(message, Finding):
            findings.append(message)
        yield message
