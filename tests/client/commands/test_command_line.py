"""The command ``npucall``: targets, widths, help, exit codes, errors."""

from __future__ import annotations

import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from google.protobuf import json_format
from tests.client import fake_server as fake
from tests.rows import each

typer = pytest.importorskip("typer", reason="the extra cli is not installed")
from rich.console import Console  # noqa: E402  # as typer

from npucall.errors import NpucallError, PermissionDeniedError, ShapeError  # noqa: E402
from npucall.operators import CATALOGUE  # noqa: E402  # after typer
from npucall.v1 import access_service_pb2 as access_pb  # noqa: E402
from npucall.v1 import operator_service_pb2 as operators_pb  # noqa: E402
from npucall_client.client import connect  # noqa: E402
from npucall_client.commands import calling, command  # noqa: E402  # needs typer
from npucall_client.commands.as_json import data_of  # noqa: E402
from npucall_client.commands.console import Column, output, show, table, the_target  # noqa: E402
from npucall_client.commands.exits import ExitCode  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

GIVEN = ["grad_output=[1,2]", "self=1", "target=1", "reduction=0"]
NOBODY = "127.0.0.1:1"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
NAMES = sorted(command.commands())


class Ended(NamedTuple):
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


@each(("words", "asked"), [(["info"], 0), (["run", "L1LossBackward", *GIVEN], 1)])
def test_a_command_asks_a_far_server_as_little_as_can_be(
    run: Callable[..., Ended], words: list[str], asked: int
) -> None:
    """Each question is a round trip; another one and a half open the connection.

    Before, `info` asked twice what the server is, and `run` for an operator that it knows.
    """
    for kind in "", "pool:":
        server = fake.FakeServer()
        infos: list[str] = []
        server.guard = lambda context: infos.append(context.peer())  # noqa: B023  # at once
        with fake.serving(server) as target:  # has no other methods
            assert run(*words, "--target", kind + target).returncode == 0
        assert (len(infos), server.unary) == (1 + asked, asked)


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """The subcommands, as their command line is parsed."""
    app = typer.Typer()
    for name, load in command.commands().items():
        app.command(name)(load())
    return dict(typer.main.get_command(app).commands)


def test_another_distribution_adds_a_subcommand(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "npucall_client.commands.reservation_command:release"
    mine = EntryPoint("mine", value, "npucall.commands")
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [mine] if group == mine.group else []
    )
    assert "Ends a reservation, whoever has it." in said("mine", "--help")
    assert "  mine " in said("--help")


@each("name", NAMES)
def test_every_subcommand_takes_the_target_and_some_a_soc(commands: Any, name: str) -> None:
    options = [word for parameter in commands[name].params for word in parameter.opts]
    assert {"--target", "-t"} <= set(options) or name == "toolkit"  # which needs no server
    of_a_soc = "info", "operators", "plan", "run", "conform", "replay"
    assert "--soc" in options or name not in of_a_soc


def test_the_target_as_an_argument_means_what_the_option_means(said: Any) -> None:
    by_option = said("operators", "--target", "local:")
    assert by_option == said("operators", "local:") == said("operators", NPUCALL_TARGET="local:")
    assert "Ascend310P3" in said("info", "--target", "local:", "--soc", "Ascend310P3")


def test_the_target_is_given_once(run: Any) -> None:
    assert the_target(None, None) is None
    assert the_target("local:", None) == the_target(None, "local:") == "local:"
    ended = run("info", "local:", "--target", "npu-host:50051")
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr == (
        "npucall: target: give it once; found local: and --target npu-host:50051\n"
    )


@each(
    ("words", "kind"),
    [
        ("info", operators_pb.GetServerInfoResponse),
        ("operators", operators_pb.OperatorInfo),
        ("operators -o KlDivBackward", operators_pb.OperatorInfo),
        ("usage", access_pb.GetUsageResponse),
        ("top", operators_pb.GetServerInfoResponse),
    ],
)
def test_json_is_the_message_that_a_server_answers(said: Any, words: str, kind: Any) -> None:
    told = json.loads(said(*words.split(), "-t", "local:", "--json"))
    for one in told if isinstance(told, list) else [told]:
        answer = one.get("info", one)
        answer.pop("carrier", None)
        assert data_of(json_format.ParseDict(answer, kind())) == answer


def test_json_has_the_numbers_of_a_call_and_what_a_plan_says(said: Any, tmp_path: Path) -> None:
    call = ("Exp", "self=[[0,1000,-1000]]", "-t", "local:", "--json")
    told = json.loads(said("run", *call))
    out = {"dtype": "float32", "shape": [1, 3], "values": [[1.0, "Infinity", 0.0]]}
    assert told["outputs"] == {"out": out}
    assert {"variant", "kernel_dtype", "timings", "total_ns", "warnings", "server"} < set(told)
    assert json.loads(said("run", *call, "--save", str(tmp_path)))["outputs"] == {}
    assert np.load(tmp_path / "out.npy").shape == (1, 3)
    told = json.loads(said("plan", "Exp", "self=bf16:2x3", "-t", "local:", "--json"))
    assert told["outputs"] == {"out": {"dtype": "BF16", "shape": [2, 3]}}


def test_a_warning_of_the_server_is_on_standard_error(run: Any) -> None:
    call = "run KlDivTargetBackward grad_output=[1] self=[1] target=[1] reduction=3 -t local:"
    ended = run(*call.split())
    assert (ended.returncode, ended.stdout) == (0, "grad_target = [0.]\n")
    warning, about = ended.stderr.splitlines()
    assert warning.startswith("warning: reduction: 3 is not one of (0, 1, 2);")
    assert about.startswith("aclnnKlDivTargetBackward documented on local as ")


@pytest.mark.more  # five processes
def test_a_shell_completes_commands_options_and_operators() -> None:
    program = Path(sys.executable).with_name("npucall")
    script = f"""
        source <({program} --show-completion bash)
        complete() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _npucall_completion {program}
                      echo "${{COMPREPLY[@]}}"; }}
        complete npucall rese; complete npucall run --ti; complete npucall run klDiv
        complete npucall run KlDivT
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["reserve", "--timeout", "", "KlDivTargetBackward"]


@each(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_no_color_is_heard_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    console = output()
    show(console, table([Column("a")], [["[red]b[/red]"]], 80))
    assert ("\x1b[31m" in terminal.getvalue()) is coloured


def test_what_travels_for_more_than_a_second_is_shown_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 0.5, 1.5])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    for is_terminal in False, True:
        shown = Console(file=io.StringIO(), force_terminal=is_terminal, width=80)
        monkeypatch.setattr(calling, "Console", lambda *, stderr, shown=shown: shown)
        monkeypatch.setattr(calling, "time", clock)
        with connect("local:") as client, calling.travelling(client) as telling:
            told = telling._calls.options.progress
            assert (told is not None) is is_terminal
            if told is not None:
                told(2**20, 0, 2**22)
                assert shown.file.getvalue() == ""  # type: ignore[attr-defined]
                told(2**21, 0, 2**22)
    assert "2.1/4.2 MB" in shown.file.getvalue()  # type: ignore[attr-defined]


RECORDED = """
import numpy as np, npucall, sys
with npucall.connect() as npu:
    npu.run(npucall.ops.exp, np.zeros(3, np.float32))
sys.exit(7)
"""


def test_record_runs_a_command_and_keeps_its_calls(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "calls.rec"
    words = ("record", str(file), "-t", "local:", "--", sys.executable, "-c", RECORDED)
    ended = run(*words)
    assert (ended.returncode, ended.stdout) == (7, "")
    size = f"{file.stat().st_size} B"
    assert ended.stderr == f"npucall: recorded 1 calls, {size}\n  1 of aclnnExp\n"
    told = run("run", "Exp", "self=[0,0,0]", "-t", f"recorded:{file}")
    assert (told.returncode, told.stdout) == (0, "out = [1., 1., 1.]\n")
    ended = run(*words)
    assert ended.returncode == ExitCode.USAGE
    assert f"{file}: expected to make this file: File exists" in ended.stderr
    ended = run("record", str(tmp_path / "none.rec"), "--", sys.executable, "-c", "")
    assert (ended.returncode, ended.stderr) == (0, "npucall: recorded 0 calls, 0 B\n")


@each(
    ("program", "said"),
    [
        ("chmod(0o400)", "lacks calls, which had no room: the file has 1.0 GiB at most"),
        ("unlink()", "expected the recorded calls: No such file or directory"),
    ],
)
def test_record_says_at_the_end_what_is_not_in_its_file(
    run: Any, tmp_path: Path, program: str, said: str
) -> None:
    file = tmp_path / f"{program}.rec"
    child = (sys.executable, "-c", f"from pathlib import Path; Path({str(file)!r}).{program}")
    ended = run("record", str(file), "--", *child)
    assert ended.returncode == ExitCode.FAILED
    assert f"npucall: {file}" in ended.stderr
    assert said in ended.stderr.splitlines()[-1]


def test_no_name_is_cut_at_80_columns(said: Any) -> None:
    shown = said("operators", "-t", "local:", COLUMNS="80")
    assert max(map(len, shown.splitlines())) <= 80
    assert {operator.name for operator in CATALOGUE} <= set(shown.split())
    one = said("operators", "-t", "local:", "-o", "KlDivBackward", COLUMNS="80")
    assert max(map(len, one.partition("\nParameters\n")[2].splitlines())) <= 80
    assert ELLIPSIS not in shown + one


def test_in_a_pipe_a_row_is_a_line_without_colours_and_trailing_blanks(said: Any) -> None:
    shown = said("operators", "-t", "local:")
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []
    (row,) = [line for line in shown.splitlines() if line.startswith("aclnnKlDivBackward ")]
    said_of_it = "Gradient of kl_div(self, target) with respect to self."
    assert row.split() == ["aclnnKlDivBackward", "yes", *said_of_it.split()]
    assert "local as Ascend910B1" in said("top", "-t", "local:")  # prints once and ends


def test_a_table_that_is_too_wide_becomes_lines_of_heading_and_value(said: Any) -> None:
    wide = said("members", "-t", "local:")
    assert wide.split()[:4] == ["address", "state", "host", "device"]
    narrow = said("members", "-t", "local:", COLUMNS="40")
    assert "soc       Ascend910B1\n" in narrow
    assert max(map(len, narrow.splitlines())) <= 40


@each("width", [200, 60, 44, 30, 12])
def test_a_table_of_any_width_has_every_letter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = [Column("name"), Column("calls", number=True), Column("meaning", prose=True)]
    rows = [["a_very_long_name_of_one", "12", "what it is for " * 4], ["b", "3", "y" * 50]]
    console = output()
    show(console, table(columns, rows, console.width))
    printed = capsys.readouterr().out
    assert "".join(printed.split()).count("y") == 50 + "".join(rows[0]).count("y")
    assert ELLIPSIS not in printed
    assert "a_very_long_name_of_one" in "".join(printed.split())


@each("name", ["", *NAMES])
def test_help_is_plain_text_of_80_columns_with_examples(said: Any, name: str) -> None:
    shown = said(*filter(None, [name]), "--help", COLUMNS="80")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert shown.isascii()
    assert any(re.fullmatch(r" +npucall .+", line) for line in lines), shown
    listed = shown.partition("Commands:\n")[2]
    assert "..." not in listed
    assert [name for name in NAMES if listed and f"  {name} " not in listed] == []
    assert said("--version") == f"npucall {version('npucall-client')}\n"


@each("name", NAMES)
def test_the_examples_of_the_help_are_commands_that_there_are(commands: Any, name: str) -> None:
    shown = command._help(inspect.getdoc(commands[name].callback) or "")
    examples = re.findall(r"^ +npucall (.+)$", shown, re.MULTILINE)
    assert examples
    for example in examples:
        called, *words = shlex.split(example)
        assert called == name
        commands[name].make_context(name, words)  # raises for what it does not take


@each(
    ("words", "code"),
    [
        ("info -t local:", ExitCode.DONE),
        ("info --nothing", ExitCode.USAGE),
        ("conform -t local: --profile none", ExitCode.USAGE),
        ("run Exp self=[1] nothing=2 -t local:", ExitCode.USAGE),
        ("operators -t local: -o Nothing", ExitCode.FAILED),
        ("info -t nowhere:port", ExitCode.USAGE),
        ("run Exp self=no-such-file.npy -t local:", ExitCode.USAGE),
        ("run Exp self=[1] --dtype f99 -t local:", ExitCode.USAGE),
        ("conform -t local: -o Exp --baseline nowhere", ExitCode.USAGE),
        ("replay nowhere -t local:", ExitCode.FAILED),
        ("plan Exp self=q8:3 -t local:", ExitCode.USAGE),
        ("run Exp self=f32:3 -t local:", ExitCode.USAGE),
        ("reserve 5 -t local: -- no-such-command", ExitCode.NO_COMMAND),
    ],
)
def test_a_command_ends_with_a_code_of_the_table(run: Any, words: str, code: ExitCode) -> None:
    ended = run(*words.split())
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert bool(ended.stderr) is (code != ExitCode.DONE)


@each(
    ("like", "found"),
    [
        ("MseLossB", ["aclnnMseLossBackward"]),
        (
            "torch.nn.functional.kl_div",
            ["aclnnKlDiv", "aclnnKlDivBackward", *["aclnnKlDivTargetBackward"] * 3],
        ),
        ("area: losses", None),
        ("two horns", None),
    ],
)
def test_operators_are_found_by_a_part_of_what_is_known_of_them(
    run: Any, like: str, found: list[str] | None
) -> None:
    ended = run("operators", "-t", "local:", "--json", "--like", like)
    if found is None:
        assert ended.returncode == ExitCode.USAGE
        assert "--like: expected a part of" in ended.stderr
    else:
        assert [each["name"] for each in json.loads(ended.stdout)] == found


def test_nobody_answers_is_one_sentence(run: Any) -> None:
    ended = run("info", "--target", NOBODY, NPUCALL_CONNECT_TIMEOUT="0.2")
    assert ended.returncode == ExitCode.FAILED
    assert ended.stderr.startswith("npucall: ")
    assert ended.stderr.count("\n") == 1
    assert NOBODY in ended.stderr


@each(
    ("error", "told"),
    [
        (PermissionDeniedError("admins only"), "npucall: admins only (PERMISSION_DENIED)\n"),
        (ShapeError("x: too long"), "npucall: x: too long (INVALID_ARGUMENT, SHAPE_MISMATCH)\n"),
    ],
)
def test_code_and_reason_are_named_once_if_they_are_one_word(
    run: Any, monkeypatch: pytest.MonkeyPatch, error: NpucallError, told: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command, "connect", refused)
    assert run("info", "-t", "local:").stderr == told


@each("content", [b"", b"\x93NUMPY", b"no array"])
def test_a_file_that_is_no_array_is_no_traceback(run: Any, tmp_path: Path, content: bytes) -> None:
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
