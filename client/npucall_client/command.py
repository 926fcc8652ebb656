"""The command ``npucall``.

Its subcommands are the entry points of the group ``npucall.commands``, so that another
distribution, or an extra, can add one.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np

import npucall_client
from npucall.declare.call import element
from npucall.dtypes import BY_WIRE
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import declare
from npucall_client.argument_texts import arguments_of
from npucall_client.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError:
    sys.exit("npucall: expected the extra cli, found it missing: pip install 'npucall-client[cli]'")

_GROUP = "npucall.commands"
_UNVALIDATED = "no reference, unvalidated"
_ROLES = {pb.ROLE_INPUT: "in", pb.ROLE_OUTPUT: "out", pb.ROLE_INPUT_OUTPUT: "in/out"}
_HEALTH = {pb.DEVICE_HEALTH_NORMAL: "normal", pb.DEVICE_HEALTH_ABNORMAL: "abnormal"}

Target = Annotated[
    str | None,
    typer.Argument(
        help="HOST:PORT, unix:PATH, local: or pool:...; else NPUCALL_TARGET, 127.0.0.1:50051."
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="HOST:PORT, unix:PATH, local: or pool:...; else NPUCALL_TARGET, port 50051.",
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
    app.callback()(_options)
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        app.command(point.name)(point.load())
    try:
        app()
    except (NpucallError, TypeError, ValueError, OSError) as error:
        _fail(error)


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


def info(target: Target = None) -> None:
    """What a server is and allows: device, SoC, default variant, limits; how an NPU is."""
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
        "known as": _known_as(answer.caller),
        "reserved": _reserved(answer),
        "longest call": f"{limits.call_timeout_seconds:g} s" if limits.call_timeout_seconds else "",
        **_device_rows(answer.device),
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    Console().print(table)


def operators(
    target: Target = None,
    name: Annotated[
        str | None,
        typer.Option("--operator", "-o", help="Describe this one alone: aclnnKlDiv or KlDiv."),
    ] = None,
    variant: Annotated[str, typer.Option(help="Which variant of it.")] = "",
) -> None:
    """The operators of a server, and why it cannot run some; with --operator all about one."""
    with connect(target) as client:
        if name is not None:
            _describe(client.operator(_c_name(name), variant))
            return
        listed = client.operators()
    table = Table(box=None)
    for heading in "operator", "here":
        table.add_column(heading, no_wrap=True)
    table.add_column("what it computes")
    for operator in listed:
        here = "yes" if operator.available else "no"
        title = f"{operator.name} ({operator.variant})" if operator.variant else operator.name
        table.add_row(title, here, _in_short(operator))
    console = Console()
    console.print(table)
    console.print("All about one, such as its products and rules: npucall operators -o NAME")


def run(  # noqa: PLR0913  # options of a command
    operator: Annotated[str, typer.Argument(help="Name, for example aclnnKlDiv or KlDiv.")],
    arguments: Annotated[
        list[str],
        typer.Argument(
            help="NAME=VALUE. A tensor: a .npy file, or numbers as JSON such as [[2,3],[5,8]]. A "
            "list of tensors: A.npy,B.npy or [[2,3],[5]]. An attribute: a number, true or false, a "
            "text, a list of numbers. null: a null pointer. Of an operator without reference the "
            "outputs too: arrays of their shapes."
        ),
    ],
    target: TargetOption = None,
    variant: Annotated[str, typer.Option(help="Which variant of the operator.")] = "",
    dtype: Annotated[
        str,
        typer.Option(help="Of tensors given as numbers, but labels; of .npy files without one."),
    ] = "float32",
    output: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a tensor that is an output, though the listing takes it for an input."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Folder to save outputs to, as NAME.npy.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds.")] = None,
) -> None:
    """Runs an operator and prints or saves what it gives."""
    operator = _c_name(operator)
    with connect(target, timeout=timeout) as client:
        described = declare(client.operator(operator, variant))
        values, outputs = arguments_of(arguments, described, dtype, output or ())
        result = client.execute(operator, variant=variant, outputs=outputs, **values)
    console = Console(stderr=True)
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow")
    if not described.reference:
        console.print(f"{operator}: {_UNVALIDATED}", style="yellow")
    for name, array in _one_by_one(result.outputs):
        if save is None:
            print(f"{name} = {np.array2string(array, separator=', ')}")
        else:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{name}.npy", array)
    server = result.server
    console.print(
        f"{f'{operator} {result.variant}'.strip()} on {server.device} as {server.soc}: "
        f"{result.timings.run_ns / 1e6:.3f} ms on the device, {result.total_ns / 1e6:.3f} ms in all"
    )


def _describe(operator: pb.OperatorInfo) -> None:
    console = Console()
    title = f"{operator.name} {operator.variant}".strip()
    console.print(f"[bold]{title}[/bold]\n{operator.prototype}\n", highlight=False)
    print(operator.description)  # it has square brackets that rich would read
    if operator.unavailable_because:
        print(f"\nNot available here: {operator.unavailable_because}")
    headings = ("parameter", "in C", "role", "default", "meaning")
    table = Table(*headings, title="Parameters", box=None)
    for p in operator.parameters:
        default = p.WhichOneof("default_value")
        value = str(getattr(p, default)) if default else ""
        value = _names([p.dtype]) if default == "dtype" else value
        in_c = f"{p.c_type} {p.c_name}".strip()
        table.add_row(p.name, in_c, _ROLES.get(p.role, ""), value, p.description)
    console.print("\n", table, "\n")
    if not operator.reference:
        console.print("The roles of tensors are guessed from the header; every output is given.")
        return
    table = Table("product", "dtypes", "", title="Products", box=None)
    for product in operator.products:
        table.add_row(product.soc, _names(product.dtypes), "legacy" if product.legacy else "")
    console.print(table, "\n")
    table = Table("rule", "blames", "status", title="Rules, in order", box=None)
    for rule in operator.rules:
        status = str(rule.aclnn_status or "")
        table.add_row(rule.description, ", ".join(rule.blames), status)
    console.print(table)


def _c_name(name: str) -> str:
    """An operator's name in C, which may be typed without what nearly all of them begin with."""
    return name if name.startswith("acl") else f"aclnn{name}"


def _in_short(operator: pb.OperatorInfo) -> str:
    """What the table of operators says of one, with rich's marks."""
    lines = [escape(operator.summary.replace("``", "")) if operator.reference else _UNVALIDATED]
    if operator.unavailable_because:
        lines.append(f"[yellow]{escape(operator.unavailable_because)}[/yellow]")
    return "\n".join(lines)


def _device_rows(device: pb.DeviceInfo) -> dict[str, str]:
    """What a device says of itself; rows without text are not shown."""
    used = device.utilization
    units = {
        "cube": used.cube_percent if used.HasField("cube_percent") else None,
        "vector": used.vector_percent if used.HasField("vector_percent") else None,
        "AI CPU": used.aicpu_percent if used.HasField("aicpu_percent") else None,
    }
    free, total = _size(device.memory_free_bytes), _size(device.memory_total_bytes)
    return {
        "CANN": device.cann_version,
        "driver": device.driver_version,
        "runtime": device.runtime_version,
        "device memory": f"{free or 'none'} free of {total}" if total else "",
        "busy": ", ".join(f"{n} {value} %" for n, value in units.items() if value is not None),
        "health": _HEALTH.get(device.health, ""),
        "guess": device.product_guess,
    }


def _known_as(caller: pb.CallerInfo) -> str:
    """Who the server takes this caller for, where it asks."""
    if not caller.tenant:
        return ""
    known_by = pb.KnownBy.Name(caller.known_by).removeprefix("KNOWN_BY_").replace("_", " ").lower()
    role = pb.CallerRole.Name(caller.role).removeprefix("CALLER_ROLE_").lower()
    end = f", for {_duration(caller.expires_seconds)}" if caller.expires_seconds else ""
    return f"{caller.tenant}/{caller.name} by {known_by}, role {role}{end}"


def _duration(seconds: float) -> str:
    """In the largest unit of which there are two."""
    for unit, length in ("days", 86_400), ("hours", 3600), ("minutes", 60):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _reserved(answer: pb.GetServerInfoResponse) -> str:
    """Who has the device alone."""
    if not answer.HasField("reservation"):
        return ""
    reservation, holder = answer.reservation, answer.reservation.holder
    who = "/".join(name for name in (holder.tenant, holder.name) if name)
    return f"by {who}, for {reservation.ends_seconds:.0f} s more; {reservation.waiting} wait"


def _one_by_one(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays, those of lists as ``out[0]``."""
    for name, value in outputs.items():
        if isinstance(value, list):
            yield from ((element(name, index), array) for index, array in enumerate(value))
        else:
            yield name, value


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
