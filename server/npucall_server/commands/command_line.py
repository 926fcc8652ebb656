"""What the commands have alike: how they read their arguments, say what is wrong, and end.

It imports only what a health probe may import.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from npucall_server.exits import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall_server.settings.listener import ListenerSettings

    S = TypeVar("S", bound=ListenerSettings)

SERVER, DIRECTORY = "npucall-server", "npucall-directory"
_PRINT = "--print-settings"


class Command(NamedTuple):
    """A command beside ``serve``."""

    about: str
    options: Callable[[argparse.ArgumentParser], None]
    """Adds its options to its parser."""
    work: Callable[[argparse.Namespace], int]
    """Does what it is for, and answers the exit code. Raises ValueError or OSError."""


def run(
    name: str, what: Command | Mapping[str, Command], arguments: Sequence[str], about: str = ""
) -> int:
    """Runs a command, or the one of several that the first argument names; answers its exit code.

    ``about``: what several are for together.
    """
    if isinstance(what, Command):
        parser = argparse.ArgumentParser(f"{SERVER} {name}", description=what.about)
        _prepare(parser, what)
    else:
        parser = argparse.ArgumentParser(f"{SERVER} {name}", description=about)
        several = parser.add_subparsers(required=True, metavar=" | ".join(what))
        for word, each in what.items():
            _prepare(several.add_parser(word, help=each.about), each)
    given = parser.parse_args(arguments)
    try:
        return int(given.work(given))
    except (OSError, ValueError) as error:
        return fail(SERVER, ExitCode.SETTINGS, str(error))


def _prepare(parser: argparse.ArgumentParser, command: Command) -> None:
    command.options(parser)
    parser.set_defaults(work=command.work)


# --- Commands that read all settings --------------------------------------------------------------


def main_of(
    command: str,
    read: Callable[[Sequence[str]], S],
    serve: Callable[[S], ExitCode],
    arguments: list[str],
) -> NoReturn:
    """Serves, says its version or prints its settings, and exits."""
    if arguments == ["--version"]:
        import npucall_server  # noqa: PLC0415  # its version is read from the distribution

        sys.stdout.write(f"{command} {npucall_server.__version__}\n")
        sys.exit(ExitCode.DRAINED)
    prints = arguments[:1] == ["settings"]
    kept = [each for each in arguments[prints or arguments[:1] == ["serve"] :] if each != _PRINT]
    if _PRINT in arguments:
        sys.stderr.write(f"{command}: {_PRINT} is a command now: {command} settings\n")
    try:
        settings = read(kept)
    except ValueError as error:
        sys.exit(fail(command, ExitCode.SETTINGS, str(error)))
    if prints or _PRINT in arguments:
        show(settings.as_toml())
        sys.exit(ExitCode.DRAINED)
    code = serve(settings)
    _flush_or_discard()
    if code is ExitCode.DRAIN_TIMEOUT:
        os._exit(code)  # Python would wait for the threads of calls that were cut; some never end
    sys.exit(code)


# --- Output ---------------------------------------------------------------------------------------


def fail(command: str, code: ExitCode, message: str) -> ExitCode:
    """Says why the process ends."""
    if sys.stderr is not None:  # closed at the start
        sys.stderr.write(f"{command}: {message}\n")
    return code


def show(text: str) -> None:
    """Writes to standard output at once, whose reader, such as head, may have enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest text, aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _flush_or_discard() -> None:
    """Flushes the output, or drops it if its reader has gone: else Python would exit with 120."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
