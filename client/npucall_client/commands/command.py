"""The command ``npucall``.

Its subcommands are those of ``_MODULES``, some of them in the conformance suite or in
``npucall-exec``, and the entry points of the group ``npucall.commands``, by which other
distributions add some.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, NoReturn

import npucall_client
from npucall.errors import NpucallError, SettingError
from npucall.texts import missing_distribution, missing_extra
from npucall_client.client import connect

try:
    import typer
except ImportError:
    sys.exit(missing_extra("npucall", "npucall-client", "cli"))
from rich.markup import escape

from npucall_client.commands.as_json import AsJson, data_of, print_json
from npucall_client.commands.command_texts import alike, describe, in_short, server_facts
from npucall_client.commands.console import (
    Column,
    Soc,
    Target,
    TargetOption,
    Variant,
    facts,
    operator_names,
    output,
    show,
    table,
    the_target,
)
from npucall_client.commands.exits import ExitCode

_GROUP = "npucall.commands"
_COMMANDS = "npucall_client.commands"
_SUITE = "npucall_conformance"
_EXEC = "npucall_exec"
_MODULES = {
    "bench": f"{_COMMANDS}.bench",
    "conform": f"{_SUITE}.conform_command",
    "exec": f"{_EXEC}.exec_command",
    "info": f"{_COMMANDS}.command",
    "mcp": f"{_COMMANDS}.mcp_server",
    "members": f"{_COMMANDS}.members",
    "operators": f"{_COMMANDS}.command",
    "plan": f"{_COMMANDS}.calling",
    "record": f"{_COMMANDS}.recording",
    "release": f"{_COMMANDS}.reservation_command",
    "replay": f"{_SUITE}.conform_command",
    "rerun": f"{_SUITE}.rerun_command",
    "reserve": f"{_COMMANDS}.reservation_command",
    "run": f"{_COMMANDS}.calling",
    "toolkit": f"{_EXEC}.exec_command",
    "top": f"{_COMMANDS}.top",
    "usage": f"{_COMMANDS}.usage",
}
"""The module of each; the function in it has the same name."""
_HELP = """Runs operators of Ascend NPUs on a server, or in this process.

Every command that needs a server takes --target (-t): HOST:PORT, unix:PATH, local: for this
process, or pool:... for a pool. Without it the target is that of NPUCALL_TARGET, or
127.0.0.1:50051. If a command takes nothing else, the target may also be its first argument.

Examples:

    npucall operators --target local:
    npucall run Softmax 'self=[[1,2,3]]' dim=1 --target local:
    npucall conform --target npu-host:50051 --quick

Exit codes: 0 done, 1 an error, 2 a wrong command line. 1 of conform also means that the server does
not conform; reserve ends with the exit code of its command. All codes: docs/exit-codes.md.
"""


def main() -> None:
    """Runs the subcommand that ``sys.argv`` names."""
    app = typer.Typer(
        help=_help(_HELP),
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text, which no width cuts
    )
    app.callback()(_options)
    asked = next(iter(sys.argv[1:]), "")
    every = _own_commands()
    if asked not in every:
        every = commands()
    if asked in _MODULES and asked not in every:
        folder = _MODULES[asked].partition(".")[0].removeprefix("npucall_")
        sys.exit(missing_distribution(f"npucall {asked}", folder))
    for name in [asked] if asked in every else sorted(every):  # to load one is quick
        command = every[name]()
        app.command(name, help=_help(inspect.getdoc(command) or ""))(command)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except NpucallError as error:
        is_setting = isinstance(error, SettingError)
        _fail(error, ExitCode.USAGE if is_setting else ExitCode.FAILED)
    except (TypeError, ValueError) as error:
        _fail(error, ExitCode.USAGE)
    except (EOFError, OSError) as error:
        _fail(error, ExitCode.FAILED)


def commands() -> dict[str, Callable[[], Callable[..., Any]]]:
    """The subcommands by name: what loads each. Those of others only where these are installed."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # few need it, it costs each start

    others = [point for point in entry_points(group=_GROUP) if point.name not in _MODULES]
    return {**{point.name: point.load for point in others}, **_own_commands()}


def _own_commands() -> dict[str, Callable[[], Callable[..., Any]]]:
    """Those of ``_MODULES`` that are installed."""
    missing = tuple(package for package in (_SUITE, _EXEC) if find_spec(package) is None)
    return {
        name: partial(_function, module, name)
        for name, module in _MODULES.items()
        if not module.startswith(missing)
    }


def _function(module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _say_version(asked: bool) -> None:  # noqa: FBT001  # the value of an option
    if asked:
        print(f"npucall {npucall_client.__version__}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command without a subcommand."""


def info(
    target: Target = None,
    target_option: TargetOption = None,
    soc: Soc = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Shows a server: its device, its limits, its version.

    Also: how calls travel, as whom the server knows you, who has reserved the device, and how an
    NPU is.

    Examples:
        npucall info
        npucall info --target npu-host:50051
        npucall info --target local: --soc Ascend310P3
    """
    with connect(the_target(target, target_option), soc=soc or None) as client:
        answer = client._info()  # noqa: SLF001  # connect has asked
        carrier = client.carrier()
    if as_json:
        print_json({**data_of(answer), "carrier": carrier})
        return
    console = output()
    show(console, facts(server_facts(answer, carrier), console.width))


def operators(  # noqa: PLR0913  # options of a command
    target: Target = None,
    target_option: TargetOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--operator",
            "-o",
            metavar="NAME",
            help="Describe one operator: aclnnKlDiv or KlDiv.",
            autocompletion=operator_names,
        ),
    ] = None,
    like: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="List those whose name in CANN or in PyTorch, area or summary has this text.",
        ),
    ] = "",
    variant: Variant = "",
    soc: Soc = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Lists the operators of a server, or describes one of them.

    The list says which operators the server can run, and why it cannot run the others. With
    --operator you see the parameters, dtypes and rules of one.

    Examples:
        npucall operators --target npu-host:50051
        npucall operators --target local: --like interpolate
        npucall operators --target local: --operator KlDivBackward
    """
    with connect(the_target(target, target_option), soc=soc or None) as client:
        if name is not None:
            described = client.operator(name, variant)
            print_json(data_of(described)) if as_json else describe(described)
            return
        listed = [*client.operators()]
        listed = alike(like, listed) if like else listed
    if as_json:
        print_json([data_of(each) for each in listed])
        return
    rows = []
    for operator in listed:
        here = "yes" if operator.available else "no"
        title = f"{operator.name} ({operator.variant})" if operator.variant else operator.name
        rows.append([escape(title), here, in_short(operator)])
    console = output()
    columns = [Column("operator"), Column("here"), Column("what it computes", prose=True)]
    show(console, table(columns, rows, console.width))
    show(console, "Describe one of them: npucall operators --operator NAME")


def _help(text: str) -> str:
    """A help text whose examples keep their lines (click looks for a backspace)."""
    return re.sub(r"\nExamples:\n+", "\nExamples:\n\n\b\n", text)


def _fail(error: Exception, code: ExitCode) -> NoReturn:
    sentence = str(error)
    if isinstance(error, NpucallError) and not isinstance(error, SettingError):
        status = f", {error.aclnn_status} {error.aclnn_name}" if error.aclnn_status else ""
        names = dict.fromkeys((error.code.name, error.reason))  # once, if they are the same
        sentence += f" ({', '.join(names)}{status})"
    print(f"npucall: {sentence}", file=sys.stderr)
    sys.exit(code)
