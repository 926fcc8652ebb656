"""``npucall bench``: how long an operator runs on a device, and on which of two it is faster."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute
from npucall.declare.samples import sample, sample_storages
from npucall.dtypes import BY_NUMPY, dtype_named
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.tensors import Shape, TensorSpec, view
from npucall.wire.replies import ServerIdentity, Timings
from npucall_client.calls.argument_texts import arguments_of, shape_of
from npucall_client.calls.tensors import Empty
from npucall_client.client import Client, connect
from npucall_client.commands.as_json import AsJson, print_json
from npucall_client.commands.bench_picture import picture
from npucall_client.commands.calling import Dtype, declared
from npucall_client.commands.console import (
    Column,
    OperatorName,
    Soc,
    TargetOption,
    Variant,
    output,
    show,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNRESERVED = "the device is not reserved, so others may compute meanwhile: --reserve SECONDS"
_LARGE = 1_000_000.0
"""Nanoseconds of a millisecond."""


class Measured(NamedTuple):
    """The runs of one target."""

    target: str
    server: ServerIdentity
    variant: str
    timings: Sequence[Timings]
    reserved: bool

    @property
    def times(self) -> list[int]:
        """Nanoseconds on the device, by its clock, run by run."""
        return [each.run_ns for each in self.timings]

    def quantile(self, share: float, phase: str = "run_ns") -> float:
        """Of the nanoseconds of a phase."""
        return float(np.quantile([getattr(each, phase) for each in self.timings], share))


def bench(  # noqa: PLR0913  # options of a command
    operator: OperatorName,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Attributes, such as dim=1; tensors of another dtype or shape than the others, as "
            "DTYPE:SHAPE such as target=int64:4096; or as .npy files.",
        ),
    ] = None,
    shape: Annotated[
        str, typer.Option(metavar="SHAPE", help="Of the tensors, such as 4096x4096.")
    ] = "1024x1024",
    dtype: Dtype = "float32",
    target: TargetOption = None,
    against: Annotated[
        str | None, typer.Option(metavar="TARGET", help="A second target, called in turns.")
    ] = None,
    count: Annotated[int, typer.Option(min=2, metavar="NUMBER", help="Calls that count.")] = 100,
    warm_up: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Calls before them that do not.")
    ] = 10,
    variant: Variant = "",
    reserve: Annotated[
        float, typer.Option(metavar="SECONDS", help="Have the devices alone, so long at most.")
    ] = 0.0,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw every call.")] = None,
    soc: Soc = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Measures how long an operator runs on a device.

    The times are those that the server's device took, without copies, queue and network. Data are
    random numbers that the operator takes. With --against both targets are called in turns, and a
    rank test (Mann-Whitney) says how likely such a difference is by chance.

    Examples:
        npucall bench Softmax dim=1 --shape 4096x4096 --dtype f16 -t npu-a:50051
        npucall bench Gelu -t npu-a:50051 --against npu-b:50051 --reserve 30
    """
    targets = [target] if against is None else [target, against]
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(each, soc=soc or None)) for each in targets]
        given = _arguments(clients[0], operator, variant, arguments or [], dtype, shape)
        callers = [_reserved(stack, each, reserve) if reserve else each for each in clients]
        found = measured(callers, operator, variant, given, warm_up, count)
    chance = rank_test(found[0].times, found[1].times) if against else None
    title = f"{CATALOGUE.c_name(operator)} {dtype_named(dtype)} {shape}"
    if svg is not None:
        svg.write_text(picture(title, [(each.target, each.times) for each in found], chance))
    if as_json:
        print_json({"operator": title, "runs": [_data(each) for each in found], "p_value": chance})
    else:
        _show(title, found, chance)
    if not all(each.reserved for each in found):
        typer.echo(f"npucall: {_UNRESERVED}", err=True)


def measured(  # noqa: PLR0913  # what is measured, and how
    clients: Sequence[Client],
    operator: str,
    variant: str,
    given: Mapping[str, Any],
    warm_up: int,
    count: int,
) -> list[Measured]:
    """Calls in turns; who is first changes from turn to turn."""
    timings: list[list[Timings]] = [[] for _ in clients]
    order = [*zip(clients, timings, strict=True)]
    for number in range(warm_up + count):
        for client, times in order if number % 2 else reversed(order):
            result = client.execute(operator, variant=variant, **given)
            if number >= warm_up:
                times.append(result.timings)
    return [
        Measured(each.target, answer.server, answer.variant, times, _is_alone(each))
        for each, times in order
        for answer in [each.execute(operator, variant=variant, **given)]
    ]


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """How likely two samples of one distribution differ so much in their ranks, from 0 to 1.

    The test of Mann and Whitney, two-sided, by its normal approximation with ties.
    """
    _, places, counts = np.unique([*first, *second], return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[places]
    n, m = len(first), len(second)
    ties = float((counts.astype(float) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties))
    off = abs(float(ranks[:n].sum()) - n * (n + m + 1) / 2) - 0.5
    return 1.0 if off <= 0 or not spread else math.erfc(off / spread / math.sqrt(2))


def _arguments(  # noqa: PLR0913  # what a user types
    client: Client, operator: str, variant: str, texts: list[str], dtype: str, shape: str
) -> dict[str, Any]:
    """The arguments of the call: what is typed, and random numbers for the other tensors."""
    called = declared(client, operator, variant)
    typed, outputs = arguments_of(texts, called, dtype)
    if not called.reference:
        return {**typed, "outputs": outputs}
    tensors = {
        name: TensorSpec(BY_NUMPY[np.dtype(value.dtype)], value.shape)
        for name, value in typed.items()
        if not isinstance(called.by_name[name], Attribute) and value is not None
    }
    attributes = {name: typed[name] for name in typed.keys() - tensors.keys()}
    made = _made(client, called, dtype, shape_of(shape), {**tensors, **attributes})
    return {
        **made,
        **{name: value for name, value in typed.items() if not isinstance(value, Empty)},
    }


def _made(
    client: Client, called: Operator[Any, Any], dtype: str, shape: Shape, given: dict[str, Any]
) -> dict[str, Any]:
    """Arguments that the operator takes, some of them given as specs and values."""
    product = product_of(client._info().server.soc)  # noqa: SLF001  # connect has asked
    call = sample(called, product, CATALOGUE, dtype_named(dtype), shape=shape, given=given)
    updated = {name: spec for name, spec in call.outputs.items() if name in call.read}
    storages = sample_storages(call, 0)
    arrays = call.in_lists(
        {
            name: view(spec, storages[name])
            if name in storages
            else np.zeros(spec.shape, spec.dtype.numpy)
            for name, spec in {**call.inputs, **updated}.items()
        }
    )
    follows = {called.sample.follows: dtype_named(dtype).numpy} if called.sample.follows else {}
    return {**called.sample.attributes, **follows, **arrays}


def _reserved(stack: ExitStack, client: Client, seconds: float) -> Client:
    return stack.enter_context(client.reserve(seconds, wait=seconds))


def _is_alone(client: Client) -> bool:
    """Whether nobody else can have used the device."""
    return bool(client._calls.exclusive.key) or client.carrier() == "local"  # noqa: SLF001


def _data(measured: Measured) -> dict[str, Any]:
    return {
        "target": measured.target,
        "server": asdict(measured.server),
        "variant": measured.variant,
        "reserved": measured.reserved,
        "run_ns": measured.times,
        "medians": {phase: measured.quantile(0.5, phase) for phase in Timings._fields},
        **{f"{name}_ns": measured.quantile(share) for name, share in _SHOWN.items()},
    }


_SHOWN = {"min": 0.0, "median": 0.5, "p90": 0.9}


def _show(title: str, found: Sequence[Measured], chance: float | None) -> None:
    console = output()
    rows = [
        [
            each.target,
            f"{each.server.device} as {each.server.soc}",
            *(f"{each.quantile(share) / _LARGE:.4g} ms" for share in _SHOWN.values()),
        ]
        for each in found
    ]
    columns = [Column("target"), Column("device"), *(Column(name, number=True) for name in _SHOWN)]
    show(console, f"{title}, {len(found[0].timings)} calls", table(columns, rows, console.width))
    if chance is not None:
        first, second = (each.quantile(0.5) for each in found)
        ratio = second / first if first else math.inf
        show(console, f"{found[1].target} takes {ratio:.3g} times as long; p = {chance:.2g}")
