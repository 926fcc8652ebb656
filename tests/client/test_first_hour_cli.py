"""The first hour with the command ``npucall``: targets, widths, help, exit codes, errors."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any

import pytest

typer = pytest.importorskip("typer", reason="the extra cli is not installed")
from npucall.operators import CATALOGUE  # noqa: E402  # after typer
from npucall_client import command  # noqa: E402  # needs typer
from npucall_client.console import Column, output, show, table, the_target  # noqa: E402
from npucall_client.exits import ExitCode  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOBODY = "127.0.0.1:1"
NAMES = sorted(point.name for point in entry_points(group="npucall.commands"))


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Runs the command as in a pipe: only the environment may say how wide the output is."""

    def called(*words: str, **environment: str) -> Ended:
        for name in ("COLUMNS", "NPUCALL_TARGET"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["npucall", *words])
        with pytest.raises(SystemExit) as ended:
            command.main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Ended(code, *capfd.readouterr())

    return called


@pytest.fixture
def said(run: Callable[..., Ended]) -> Callable[..., str]:
    """The output of a command that ends well."""

    def called(*words: str, **environment: str) -> str:
        ended = run(*words, **environment)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    return called


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """The subcommands, as their command line is parsed."""
    app = typer.Typer()
    for point in entry_points(group="npucall.commands"):
        app.command(point.name)(point.load())
    return dict(typer.main.get_command(app).commands)


# One place for the target


@pytest.mark.parametrize("name", NAMES)
def test_every_subcommand_takes_the_target_by_the_same_option(name: str, commands: Any) -> None:
    options = [word for parameter in commands[name].params for word in parameter.opts]
    assert {"--target", "-t"} <= set(options)


def test_the_target_as_an_argument_means_what_the_option_means(said: Any) -> None:
    by_option = said("operators", "--target", "local:")
    assert by_option == said("operators", "local:") == said("operators", NPUCALL_TARGET="local:")


def test_the_target_is_given_once(run: Any) -> None:
    assert the_target(None, None) is None
    assert the_target("local:", None) == the_target(None, "local:") == "local:"
    ended = run("info", "local:", "--target", "npu-host:50051")
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr == (
        "npucall: target: give it once; found local: and --target npu-host:50051\n"
    )


@pytest.mark.parametrize("name", ["info", "operators", "run", "conform", "replay"])
def test_commands_that_may_compute_here_take_a_soc(name: str, commands: Any) -> None:
    assert "--soc" in [word for parameter in commands[name].params for word in parameter.opts]


def test_the_soc_is_that_of_local(said: Any) -> None:
    assert "Ascend310P3" in said("info", "--target", "local:", "--soc", "Ascend310P3")


# Nothing is cut


def test_no_name_is_cut_at_80_columns(said: Any) -> None:
    shown = said("operators", "-t", "local:", COLUMNS="80")
    assert max(map(len, shown.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    words = set(shown.split())
    assert {operator.name for operator in CATALOGUE} <= words


def test_in_a_pipe_a_row_is_a_line_without_colours_and_trailing_blanks(said: Any) -> None:
    shown = said("operators", "-t", "local:")
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []
    (row,) = [line for line in shown.splitlines() if line.startswith("aclnnKlDivBackward ")]
    said_of_it = "Gradient of kl_div(self, target) with respect to self."
    assert row.split() == ["aclnnKlDivBackward", "yes", *said_of_it.split()]


def test_one_operator_is_described_within_80_columns(said: Any) -> None:
    shown = said("operators", "-t", "local:", "-o", "KlDivBackward", COLUMNS="80")
    tables = shown.partition("\nParameters\n")[2]
    assert max(map(len, tables.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def test_a_table_that_is_too_wide_becomes_lines_of_heading_and_value(said: Any) -> None:
    wide = said("members", "-t", "local:")
    assert wide.split()[:4] == ["address", "state", "host", "device"]
    narrow = said("members", "-t", "local:", COLUMNS="40")
    assert "soc       Ascend910B1\n" in narrow
    assert max(map(len, narrow.splitlines())) <= 40


@pytest.mark.parametrize("width", [200, 60, 44, 30, 12])
def test_a_table_of_any_width_has_every_letter(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = [Column("name"), Column("calls", number=True), Column("meaning", prose=True)]
    rows = [["a_very_long_name_of_one", "12", "what it is for " * 4], ["b", "3", "y" * 50]]
    console = output()
    show(console, table(columns, rows, console.width))
    printed = capsys.readouterr().out
    assert "".join(printed.split()).count("y") == 50 + "".join(rows[0]).count("y")
    assert printed.count("\N{HORIZONTAL ELLIPSIS}") == 0
    assert "a_very_long_name_of_one" in "".join(printed.split())


def test_top_in_a_pipe_prints_once_and_ends(said: Any) -> None:
    assert "local as Ascend910B1" in said("top", "-t", "local:")


# Help


@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_is_plain_text_of_80_columns_with_examples(said: Any, name: str) -> None:
    shown = said(*filter(None, [name]), "--help", COLUMNS="80")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert shown.isascii()
    assert any(re.fullmatch(r" +npucall .+", line) for line in lines), shown
    listed = shown.partition("Commands:\n")[2]
    assert "..." not in listed
    assert [name for name in NAMES if listed and f"  {name} " not in listed] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_help_are_commands_that_there_are(name: str, commands: Any) -> None:
    shown = command._help(inspect.getdoc(commands[name].callback) or "")
    examples = re.findall(r"^ +npucall (.+)$", shown, re.MULTILINE)
    assert examples
    for example in examples:
        called, *words = shlex.split(example)
        assert called == name
        commands[name].make_context(name, words)  # raises for what it does not take


def test_the_version_is_told(said: Any) -> None:
    assert said("--version") == f"npucall {version('npucall-client')}\n"


# Exit codes and errors


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["info", "-t", "local:"], ExitCode.DONE),
        (["info", "--nothing"], ExitCode.USAGE),
        (["conform", "-t", "local:", "--profile", "none"], ExitCode.USAGE),
        (["run", "Exp", "self=[1]", "nothing=2", "-t", "local:"], ExitCode.USAGE),
        (["operators", "-t", "local:", "-o", "Nothing"], ExitCode.FAILED),
        (["conform", "-t", "local:", "--baseline", "nowhere"], ExitCode.USAGE),
        (["replay", "nowhere", "-t", "local:"], ExitCode.FAILED),
        (["reserve", "5", "-t", "local:", "--", "no-such-command"], ExitCode.NO_COMMAND),
    ],
)
def test_a_command_ends_with_a_code_of_the_table(
    run: Any, words: list[str], code: ExitCode
) -> None:
    ended = run(*words)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert bool(ended.stderr) is (code != ExitCode.DONE)


def test_nobody_answers_is_one_sentence(run: Any) -> None:
    ended = run("info", "--target", NOBODY, NPUCALL_CONNECT_TIMEOUT="0.2")
    assert ended.returncode == ExitCode.FAILED
    assert ended.stderr.startswith("npucall: ")
    assert ended.stderr.count("\n") == 1
    assert NOBODY in ended.stderr


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"no array"])
def test_a_file_that_is_no_array_is_no_traceback(run: Any, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    ended = run("run", "Exp", f"self={file}", "-t", "local:")
    said = f"npucall: {file}: expected a file that numpy.save wrote, found another\n"
    assert (ended.returncode, ended.stderr) == (ExitCode.USAGE, said)


def test_ctrl_c_is_no_traceback(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "connect", interrupted)
    ended = run("info", "-t", "local:")
    assert ended.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in ended.stderr
