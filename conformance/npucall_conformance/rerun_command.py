"""``npucall rerun``: the calls of a file once more, and how their answers differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from npucall.dtypes import AnyArray, DType
from npucall.errors import NpucallError
from npucall.wire.messages import split_request, split_response
from npucall.wire.recordings import Recorded, recorded
from npucall.wire.rpcs import EXECUTE
from npucall_client.calls.arguments import BoundCall
from npucall_client.client import Client, connect
from npucall_client.commands.as_json import AsJson, print_json
from npucall_client.commands.console import Soc, Target, TargetOption, the_target
from npucall_conformance.judging.check import arrays_of, described
from npucall_conformance.judging.profiles import CANN_STANDARD, PROFILES, known_profile
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.arguments import wide
from npucall_conformance.wire import AnswerOrError, WireAnswer, received, send


class Compared(NamedTuple):
    """A call of the file, and how its answer differs now."""

    number: int
    """Its place among the calls, from 1 on."""
    operator: str
    status: str
    """``same`` bits, ``near`` enough by the profile, or ``differs``."""
    problems: tuple[str, ...] = ()


def rerun(  # noqa: PLR0913  # options of a command
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What npucall record wrote.")],
    target: Target = None,
    target_option: TargetOption = None,
    soc: Soc = "",
    profile: Annotated[
        str,
        typer.Option(
            metavar="PROFILE",
            help=f"Judge numbers that differ: {', '.join(PROFILES)}. Without it every bit counts.",
        ),
    ] = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Makes recorded calls again and compares the answers.

    The exit code is 0 if all answers are the same, or near enough by --profile; else 1.

    Examples:
        npucall rerun calls.rec --target npu-host:50051
        npucall rerun calls.rec --target local: --profile cann-standard
    """
    profile = known_profile(profile)
    with connect(the_target(target, target_option), soc=soc or None) as client:
        found = [*_compared(file, client, profile)]
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        _show(found)
    if not found or any(each.status == "differs" for each in found):
        raise typer.Exit(1)


def _compared(file: Path, client: Client, profile: str) -> Iterator[Compared]:
    calls = (call for call in recorded(file) if call.method == EXECUTE.name)
    for number, call in enumerate(calls, 1):
        before, now = _before(call), _now(call, client)
        problems = tuple(_problems(before, now, profile))
        same = not problems and (isinstance(before, NpucallError) or _same_bits(before, now))
        status = "differs" if problems else "same" if same else "near"
        yield Compared(number, call.operator, status, problems)


def _before(call: Recorded) -> AnswerOrError:
    if call.error is not None:
        return call.error
    return received(split_response(call.response or b""), 0)


def _now(call: Recorded, client: Client) -> AnswerOrError:
    request = split_request(call.request)
    storage: dict[str, Any] = {f"storage {n}": each for n, each in enumerate(request.storage)}
    try:
        return send(client, BoundCall(call.operator.partition(".")[0], request.call, storage))
    except NpucallError as error:
        return error


def _same_bits(before: WireAnswer, now: AnswerOrError) -> bool:
    return isinstance(now, WireAnswer) and before.storages == now.storages


def _problems(before: AnswerOrError, now: AnswerOrError, profile: str) -> Iterator[str]:
    if isinstance(before, NpucallError) or isinstance(now, NpucallError):
        if type(before) is not type(now):
            yield f"expected {described(before)}, found {described(now)}"
        return
    if dict(before.outputs) != dict(now.outputs):
        yield f"expected outputs {dict(before.outputs)}, found {dict(now.outputs)}"
        return
    expected, got = arrays_of(before), arrays_of(now)
    for name, spec in before.outputs.items():
        if before.storages[name] != now.storages[name]:
            kernel = before.reply.kernel_dtype or spec.dtype
            problem = _off(expected[name], got[name], spec.dtype, kernel, profile)
            if problem:
                yield f"{name}{problem}"


def _off(expected: AnyArray, got: AnyArray, dtype: DType, kernel: DType, profile: str) -> str:
    """How far an output is off; empty if it is near enough."""
    exact = expected if dtype.kind in ("int", "bool") else None
    value = wide(expected)
    truth = Expected(
        value, np.abs(value), 1, kernel, stepwise=False, dtype=dtype, biased=True, exact=exact
    )
    judged_by = profile or CANN_STANDARD
    verdict = judge(judged_by, got, truth)
    if profile and verdict.passed:
        return ""
    differ = np.count_nonzero((expected != got) & ~((expected != expected) & (got != got)))  # noqa: PLR0124  # NaN
    place = ", ".join(map(str, verdict.worst))
    worst = f"[{place}]: expected {expected[verdict.worst]}, found {got[verdict.worst]}"
    return (
        f"{worst}, {verdict.ulp:.3g} ulp off, {verdict.ratio:.3g} of what {judged_by} allows; "
        f"{differ} of {expected.size} elements differ"
    )


def _show(found: list[Compared]) -> None:
    for each in found:
        for problem in each.problems:
            print(f"{each.number} {each.operator}: {problem}")
    counts = [each.status for each in found]
    print(
        f"{len(found)} calls: {counts.count('same')} the same, {counts.count('near')} near enough, "
        f"{counts.count('differs')} differ"
    )
