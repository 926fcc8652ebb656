"""The command ``npucall``.

Its subcommands are the entry points of the group ``npucall.commands``, so that another
distribution, or an extra, can add one.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np

from npucall.dtypes import BY_NUMPY, BY_WIRE
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ImportError:
    sys.exit("npucall: expected the extra cli, found it missing: pip install 'npucall-client[cli]'")

_GROUP = "npucall.commands"

Target = Annotated[
    str | None,
    typer.Argument(help="HOST:PORT, unix:PATH or local:; else NPUCALL_TARGET, 127.0.0.1:50051."),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", help="HOST:PORT, unix:PATH or local:; else NPUCALL_TARGET, port 50051."
    ),
]


def main() -> None:
    """Runs the subcommand that ``sys.argv`` names."""
    app = typer.Typer(
        help="Calls operators of Ascend NPUs, or of the CPU reference.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        app.command(point.name)(point.load())
    try:
        app()
    except (NpucallError, TypeError, ValueError, OSError) as error:
        _fail(error)


def info(target: Target = None) -> None:
    """What a server is and allows: device, SoC, default variant, limits."""
    with connect(target) as client:
        answer = client.server_info()
    table = Table(show_header=False, box=None)
    server, limits = answer.server, answer.limits
    rows = {
        "device": server.device,
        "SoC": f"{server.soc} (family {answer.product})",
        "default variant": answer.default_variant,
        "version": answer.version,
        "instance": f"{server.instance}, up for {answer.uptime_seconds:.0f} s",
        "largest message": _size(limits.max_message_bytes),
        "memory limit": _size(limits.memory_limit),
        "queue": f"{answer.calls_in_flight} calls in flight, {limits.queue_length} may wait"
        if limits.queue_length
        else "",
        "longest call": f"{limits.call_timeout_seconds:g} s" if limits.call_timeout_seconds else "",
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    Console().print(table)


def operators(
    target: Target = None,
    name: Annotated[
        str | None, typer.Option("--operator", "-o", help="Describe this operator alone.")
    ] = None,
    variant: Annotated[str, typer.Option(help="Which variant of it.")] = "",
) -> None:
    """The operators of a server; with --operator all about one."""
    with connect(target) as client:
        if name is not None:
            _describe(client.operator(name, variant))
            return
        listed = client.operators()
    table = Table(box=None)
    for heading in "operator", "variant", "here":
        table.add_column(heading, no_wrap=True)
    table.add_column("products and what it computes")
    for operator in listed:
        products = ", ".join(p.soc + ("*" if p.legacy else "") for p in operator.products)
        here = "yes" if operator.available else "no"
        summary = operator.summary.replace("``", "")
        table.add_row(operator.name, operator.variant, here, f"{summary}\n[dim]{products}[/dim]")
    console = Console()
    console.print(table)
    console.print("* accepted by the software, not listed in current documents")


def run(  # noqa: PLR0913  # options of a command
    operator: Annotated[str, typer.Argument(help="Name, for example aclnnKlDivBackward.")],
    arguments: Annotated[
        list[str],
        typer.Argument(
            help="NAME=VALUE. A tensor: a .npy file, or numbers as JSON such as [[2,3],[5,8]]. An "
            "attribute: an integer, true or false. null: a null pointer."
        ),
    ],
    target: TargetOption = None,
    variant: Annotated[str, typer.Option(help="Which variant of the operator.")] = "",
    dtype: Annotated[
        str, typer.Option(help="Of tensors given as numbers, and of .npy files without one.")
    ] = "float32",
    save: Annotated[
        Path | None, typer.Option(help="Folder to save outputs to, as NAME.npy.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds.")] = None,
) -> None:
    """Runs an operator and prints or saves what it gives."""
    with connect(target, timeout=timeout) as client:
        described = client.operator(operator, variant)
        values = dict(_argument(text, described, dtype) for text in arguments)
        result = client.execute(operator, variant=variant, **values)
    console = Console(stderr=True)
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow")
    for name, array in result.outputs.items():
        if save is None:
            print(f"{name} = {np.array2string(array, separator=', ')}")
        else:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{name}.npy", array)
    server = result.server
    console.print(
        f"{operator} {result.variant} on {server.device} as {server.soc}: "
        f"{result.timings.run_ns / 1e6:.3f} ms on the device, {result.total_ns / 1e6:.3f} ms in all"
    )


def _argument(text: str, operator: pb.OperatorInfo, dtype: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE, read as the parameter's role asks."""
    name, equals, value = text.partition("=")
    roles = {parameter.name: parameter.role for parameter in operator.parameters}
    if not equals or name not in roles or roles[name] == pb.ROLE_OUTPUT:
        known = ", ".join(key for key, role in roles.items() if role != pb.ROLE_OUTPUT)
        raise ValueError(f"{text}: expected NAME=VALUE with a name among {known}")
    if value.endswith(".npy"):
        return name, _load(Path(value), dtype)
    try:
        number = json.loads(value)
    except json.JSONDecodeError:
        raise ValueError(
            f"{name}: expected a .npy file, or numbers, true, false or null, found {value!r}"
        ) from None
    if number is None or roles[name] == pb.ROLE_ATTRIBUTE:
        return name, number
    return name, np.array(number, _dtype(dtype))


def _load(path: Path, dtype: str) -> Any:
    """The array in a file; NumPy writes types that it does not have itself without their names."""
    array = np.load(path, allow_pickle=False)
    return array.view(_dtype(dtype)) if array.dtype.kind == "V" else array


def _dtype(name: str) -> np.dtype[Any]:
    known = {str(dtype): dtype for dtype in BY_NUMPY}
    if name not in known:
        raise ValueError(f"dtype: expected one of {', '.join(known)}, found {name!r}")
    return known[name]


def _describe(operator: pb.OperatorInfo) -> None:
    console = Console()
    title = f"{operator.name} {operator.variant}".strip()
    console.print(f"[bold]{title}[/bold]\n{operator.prototype}\n", highlight=False)
    print(operator.description)  # it has square brackets that rich would read
    table = Table("parameter", "C type", "default", "meaning", title="Parameters", box=None)
    for p in operator.parameters:
        default = p.WhichOneof("default_value")
        table.add_row(
            p.name, p.c_type, str(getattr(p, default)) if default else "", p.description
        )  # fmt: skip
    console.print("\n", table, "\n")
    table = Table("product", "dtypes", "", title="Products", box=None)
    for product in operator.products:
        table.add_row(product.soc, _names(product.dtypes), "legacy" if product.legacy else "")
    console.print(table, "\n")
    table = Table("rule", "blames", "status", title="Rules, in order", box=None)
    for rule in operator.rules:
        status = str(rule.aclnn_status or "")
        table.add_row(rule.description, ", ".join(rule.blames), status)
    console.print(table)


def _names(dtypes: Iterable[int]) -> str:
    return ", ".join(str(BY_WIRE[dtype]) for dtype in dtypes)


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count else ""


def _fail(error: Exception) -> NoReturn:
    sentence = str(error)
    if isinstance(error, NpucallError):
        status = f", {error.aclnn_status} {error.aclnn_name}" if error.aclnn_status else ""
        sentence += f" ({error.code.name}, {error.reason}{status})"
    sys.exit(f"npucall: {sentence}")
