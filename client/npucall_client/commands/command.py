"""The command ``npucall``.

Its subcommands are the entry points of the group ``npucall.commands``, so that another
distribution can add one: the conformance suite adds ``conform`` and ``replay``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np

import npucall_client
from npucall.declare.call import element
from npucall.declare.declaration import Operator
from npucall.errors import NpucallError, SettingError
from npucall.operators import CATALOGUE
from npucall.texts import missing_extra, missing_suite
from npucall.wire.listing import declare
from npucall_client.calls.argument_texts import arguments_of
from npucall_client.client import connect

try:
    import typer
except ImportError:
    sys.exit(missing_extra("npucall", "npucall-client", "cli"))
from rich.console import Console
from rich.markup import escape

from npucall_client.commands.command_texts import UNVALIDATED, describe, in_short, server_facts
from npucall_client.commands.console import (
    Column,
    Soc,
    Target,
    TargetOption,
    facts,
    output,
    show,
    table,
    the_target,
)
from npucall_client.commands.exits import ExitCode

_GROUP = "npucall.commands"
_OF_THE_SUITE = ("conform", "replay")
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
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text, which no width cuts
    )
    app.callback()(_options)
    points = entry_points(group=_GROUP)
    asked = next(iter(sys.argv[1:]), "")
    if asked in _OF_THE_SUITE and asked not in points.names:
        sys.exit(missing_suite(f"npucall {asked}"))
    for point in sorted(points, key=lambda point: point.name):
        command = point.load()
        app.command(point.name, help=_help(inspect.getdoc(command) or ""))(command)
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


def info(target: Target = None, target_option: TargetOption = None, soc: Soc = "") -> None:
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
    console = output()
    show(console, facts(server_facts(answer, carrier), console.width))


def operators(
    target: Target = None,
    target_option: TargetOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--operator", "-o", metavar="NAME", help="Describe one operator: aclnnKlDiv or KlDiv."
        ),
    ] = None,
    variant: Annotated[
        str, typer.Option(metavar="VARIANT", help="Which variant of the operator.")
    ] = "",
    soc: Soc = "",
) -> None:
    """Lists the operators of a server, or describes one of them.

    The list says which operators the server can run, and why it cannot run the others. With
    --operator you see the parameters, dtypes and rules of one.

    Examples:
        npucall operators --target npu-host:50051
        npucall operators --target local: --operator KlDivBackward
    """
    with connect(the_target(target, target_option), soc=soc or None) as client:
        if name is not None:
            describe(client.operator(name, variant))
            return
        listed = client.operators()
    rows = []
    for operator in listed:
        here = "yes" if operator.available else "no"
        title = f"{operator.name} ({operator.variant})" if operator.variant else operator.name
        rows.append([escape(title), here, in_short(operator)])
    console = output()
    columns = [Column("operator"), Column("here"), Column("what it computes", prose=True)]
    show(console, table(columns, rows, console.width))
    show(console, "Describe one of them: npucall operators --operator NAME")


def run(  # noqa: PLR0913  # options of a command
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="Its name: aclnnKlDiv or KlDiv.")
    ],
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE",
            help="The arguments. A tensor is a .npy file, or numbers as JSON such as "
            "[[2,3],[5,8]]. A list of tensors is A.npy,B.npy or [[2,3],[5]]. An attribute is a "
            "number, true or false, a text, or a list of numbers. null is a null pointer. If the "
            "operator has no reference, give the outputs too: arrays of their shapes.",
        ),
    ],
    target: TargetOption = None,
    variant: Annotated[
        str, typer.Option(metavar="VARIANT", help="Which variant of the operator.")
    ] = "",
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help="The dtype of tensors that you type as numbers (labels are int64), and of .npy "
            "files that do not name theirs.",
        ),
    ] = "float32",
    written: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="NAME",
            help="A tensor that is an output, though the server lists it as an input.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save the outputs there, as NAME.npy."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Until the call fails.")
    ] = None,
    soc: Soc = "",
) -> None:
    """Runs one operator and prints or saves its outputs.

    Standard output has the outputs; standard error has the warnings and the times.

    Examples:
        npucall run Softmax 'self=[[1,2,3]]' dim=1 --target local:
        npucall run KlDiv self=x.npy target=y.npy reduction=1 --save results
    """
    with connect(target, timeout=timeout, soc=soc or None) as client:
        described = _declared(operator, variant) or declare(client.operator(operator, variant))
        values, outputs = arguments_of(arguments, described, dtype, written or ())
        result = client.execute(operator, variant=variant, outputs=outputs, **values)
    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow")
    if not described.reference:
        console.print(f"{described.name}: {UNVALIDATED}", style="yellow")
    for name, array in _one_by_one(result.outputs):
        if save is None:
            print(f"{name} = {np.array2string(array, separator=', ')}")
        else:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{name}.npy", array)
    server = result.server
    console.print(
        f"{f'{described.name} {result.variant}'.strip()} on {server.device} as {server.soc}: "
        f"{result.timings.run_ns / 1e6:.3f} ms on the device, {result.total_ns / 1e6:.3f} ms in all"
    )


def _declared(name: str, variant: str) -> Operator[Any, Any] | None:
    """The operator as the contract declares it; None if only the server knows which one it is."""
    found = CATALOGUE.of_name(CATALOGUE.c_name(name))
    return next((each for each in found if each.variant == variant or len(found) == 1), None)


def _help(text: str) -> str:
    """A help text whose examples keep their lines (click looks for a backspace)."""
    return re.sub(r"\nExamples:\n+", "\nExamples:\n\n\b\n", text)


def _one_by_one(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays by name; those of a list as ``out[0]``."""
    for name, value in outputs.items():
        if isinstance(value, list):
            yield from ((element(name, index), array) for index, array in enumerate(value))
        else:
            yield name, value


def _fail(error: Exception, code: ExitCode) -> NoReturn:
    sentence = str(error)
    if isinstance(error, NpucallError) and not isinstance(error, SettingError):
        status = f", {error.aclnn_status} {error.aclnn_name}" if error.aclnn_status else ""
        names = dict.fromkeys((error.code.name, error.reason))  # once, if they are the same
        sentence += f" ({', '.join(names)}{status})"
    print(f"npucall: {sentence}", file=sys.stderr)
    sys.exit(code)
