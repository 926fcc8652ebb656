"""``npucall run`` and ``npucall plan``: one call that a user types."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from npucall.declare.call import element
from npucall.declare.declaration import Operator
from npucall.operators import CATALOGUE
from npucall.texts import size
from npucall.wire.listing import declare
from npucall_client.calls.argument_texts import arguments_of
from npucall_client.calls.options import Plan, Result
from npucall_client.client import Client, connect
from npucall_client.commands.as_json import AsJson, array_data, print_json
from npucall_client.commands.command_texts import UNVALIDATED
from npucall_client.commands.console import OperatorName, Soc, TargetOption, Variant

_SILENT_SECONDS = 1.0
"""A transfer that is shorter is not shown."""

Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME=VALUE",
        help="The arguments. A tensor is a .npy file, or numbers as JSON such as [[2,3],[5,8]]; of "
        "plan, and as an output, also DTYPE:SHAPE such as f32:64x1000. A list of tensors is "
        "A.npy,B.npy or [[2,3],[5]]. An attribute is a number, true or false, a text, or a list of "
        "numbers. null is a null pointer. If the operator has no reference, give the outputs too.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="DTYPE",
        help="The dtype of tensors that you type as numbers (labels are int64), and of .npy files "
        "that do not name theirs.",
    ),
]
Written = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="NAME",
        help="A tensor that is an output, though the server lists it as an input.",
    ),
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Until the call fails.")]


def run(  # noqa: PLR0913  # options of a command
    operator: OperatorName,
    arguments: Arguments,
    target: TargetOption = None,
    variant: Variant = "",
    dtype: Dtype = "float32",
    written: Written = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save the outputs there, as NAME.npy."),
    ] = None,
    timeout: Timeout = None,
    soc: Soc = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Runs one operator and prints or saves its outputs.

    Standard output has the outputs; standard error has the warnings and the times.

    Examples:
        npucall run Softmax 'self=[[1,2,3]]' dim=1 --target local:
        npucall run KlDiv self=x.npy target=y.npy reduction=1 --save results
    """
    with connect(target, timeout=timeout, soc=soc or None) as client:
        described, values, outputs = _call(client, operator, variant, arguments, dtype, written)
        with travelling(client) as telling:
            result = telling.execute(operator, variant=variant, outputs=outputs, **values)
    arrays = dict(_one_by_one(result.outputs))
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(save / f"{name}.npy", array)
    if as_json:
        print_json(_result_data(result, {} if save is not None else arrays))
        return
    _say(described, result.warnings)
    for name, array in arrays.items() if save is None else ():
        print(f"{name} = {np.array2string(array, separator=', ')}")
    server = result.server
    _remarks().print(
        f"{f'{described.name} {result.variant}'.strip()} on {server.device} as {server.soc}: "
        f"{result.timings.run_ns / 1e6:.3f} ms on the device, {result.total_ns / 1e6:.3f} ms in all"
    )


def plan(  # noqa: PLR0913  # options of a command
    operator: OperatorName,
    arguments: Arguments,
    target: TargetOption = None,
    variant: Variant = "",
    dtype: Dtype = "float32",
    written: Written = None,
    timeout: Timeout = None,
    soc: Soc = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Says what a call would give and need, and computes nothing.

    The call is checked as by run. Of tensors only shape and dtype count, so DTYPE:SHAPE is enough.

    Examples:
        npucall plan Softmax self=f16:4096x4096 dim=1 --target local:
    """
    with connect(target, timeout=timeout, soc=soc or None) as client:
        described, values, outputs = _call(client, operator, variant, arguments, dtype, written)
        found = client.plan(operator, variant=variant, outputs=outputs, **values)
    if as_json:
        specs = {
            name: {"dtype": spec.dtype.name, "shape": spec.shape}
            for name, spec in found.outputs.items()
        }
        print_json({**_answer_data(found), "outputs": specs, "workspace": found.workspace_bytes})
        return
    _say(described, found.warnings)
    for name, spec in found.outputs.items():
        print(f"{name} = {spec.dtype} of shape {spec.shape}")
    title = f"{described.name} {found.variant}".strip()
    _remarks().print(
        f"{title} on {found.server.device} as {found.server.soc}: computes in "
        f"{found.kernel_dtype or 'a dtype of its own'}, needs {size(found.workspace_bytes)} of "
        "workspace"
    )


@contextmanager
def travelling(client: Client) -> Iterator[Client]:
    """A client that shows, at a terminal, how much of a call has travelled after a second."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield client
        return
    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    begin, bar = time.monotonic(), Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=None)

    def told(sent: int, received: int, known: int) -> None:
        if time.monotonic() - begin > _SILENT_SECONDS:
            bar.start()
            bar.update(task, completed=sent + received, total=known)

    try:
        yield client.options(progress=told)
    finally:
        bar.stop()


def _call(  # noqa: PLR0913  # what a user types
    client: Client,
    operator: str,
    variant: str,
    arguments: list[str],
    dtype: str,
    written: list[str] | None,
) -> tuple[Operator[Any, Any], dict[str, Any], dict[str, Any]]:
    """The operator, the arguments of a call, and its outputs."""
    described = declared(client, operator, variant)
    return described, *arguments_of(arguments, described, dtype, written or ())


def _remarks() -> Console:
    """Standard error."""
    return Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def _say(described: Operator[Any, Any], warnings: Sequence[str]) -> None:
    """What the user should know, though the call is valid."""
    for warning in warnings:
        _remarks().print(f"warning: {warning}", style="yellow")
    if not described.reference:
        _remarks().print(f"{described.name}: {UNVALIDATED}", style="yellow")


def _answer_data(answer: Result | Plan) -> dict[str, Any]:
    """What results and plans have alike, as what JSON can hold."""
    return {
        "variant": answer.variant,
        "kernel_dtype": None if answer.kernel_dtype is None else answer.kernel_dtype.name,
        "warnings": answer.warnings,
        "server": asdict(answer.server),
    }


def _result_data(result: Result, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_answer_data(result),
        "timings": result.timings._asdict(),
        "total_ns": result.total_ns,
        "outputs": {name: array_data(array) for name, array in arrays.items()},
    }


def declared(client: Client, name: str, variant: str) -> Operator[Any, Any]:
    """The operator as the contract declares it; only if the server must say which, it is asked."""
    found = CATALOGUE.of_name(CATALOGUE.c_name(name))
    here = next((each for each in found if each.variant == variant or len(found) == 1), None)
    return here or declare(client.operator(name, variant))


def _one_by_one(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays by name; those of a list as ``out[0]``."""
    for name, value in outputs.items():
        if isinstance(value, list):
            yield from ((element(name, index), array) for index, array in enumerate(value))
        else:
            yield name, value
