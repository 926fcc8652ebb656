"""``npucall conform`` and ``npucall replay``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from npucall.dtypes import dtype_named
from npucall.products import product_of
from npucall.texts import did_you_mean, plain
from npucall_client.client import connect as connect_and_wait
from npucall_client.commands.as_json import AsJson, print_json
from npucall_client.commands.console import Soc, Target, TargetOption, the_target
from npucall_conformance import golden
from npucall_conformance.cases.blocks import BLOCKS
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.select import Selection, select, variants_of
from npucall_conformance.judging.profiles import CANN_STANDARD, PROFILES, known_profile
from npucall_conformance.options import judge, versions
from npucall_conformance.running.runner import QUICK_REPEAT, REPEAT
from npucall_conformance.running.subject import ADAPTERS, SubjectOpener
from npucall_conformance.statements import statements

_REPORTS = "npucall_conformance.reporting"
_SOC = "Ascend910B1"
"""By default, golden data are for this SoC."""
connect = partial(connect_and_wait, wait=False)
"""The suite itself waits for a busy server, and reports which cases it could not judge."""
Adapter = Annotated[
    str,
    typer.Option(
        metavar="LIBRARY",
        help="Judge the NPU of this host through a library, without a server: "
        f"{', '.join(ADAPTERS)}.",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        metavar="PROFILE",
        help=f"Tolerances: {', '.join(PROFILES)}. Default: cpu-strict for a CPU reference, "
        "cann-standard for a device.",
    ),
]


def conform(  # noqa: PLR0913  # options of a command
    target: Target = None,
    target_option: TargetOption = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="A second server, to judge and to compare with."),
    ] = None,
    soc: Soc = "",
    adapter: Adapter = "",
    operator: Annotated[
        list[str] | None,
        typer.Option("--operator", "-o", metavar="NAME", help="Only this operator: KlDivBackward."),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(metavar="DTYPE", help="Only this dtype: f32, bf16.")
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(metavar="BLOCK", help=f"Only this kind of cases: {', '.join(BLOCKS)}."),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only the case with this id.")
    ] = None,
    quick: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--quick", help="A sample of everything, in seconds.")
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Makes other data; the ids stay the same.")
    ] = 0,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="How often each case of the block crowd makes its call. "
            f"Default: {REPEAT}; with --quick {QUICK_REPEAT}.",
        ),
    ] = None,
    profile: Profile = "",
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as JSON.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as JUnit XML.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as a page.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write each failing case there, for npucall replay."),
    ] = None,
    allow_skipped: Annotated[  # noqa: FBT002  # a flag
        bool,
        typer.Option(
            "--allow-skipped", help="Conform also if a case was skipped that should have run."
        ),
    ] = False,
    allow_missing: Annotated[  # noqa: FBT002  # a flag
        bool,
        typer.Option(
            "--allow-missing",
            help="If the server does not have an operator, a dtype or a path that it should have, "
            "skip it. Without this option it fails.",
        ),
    ] = False,
    fuzz: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Judge random calls for so long, and not the cases. A call that fails is made "
            "small. The same --seed draws the same calls in the same order.",
        ),
    ] = 0.0,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the inputs, expected outputs and tolerances of the cases, and call no "
            f"server. Defaults: --soc {_SOC}, --profile {CANN_STANDARD}.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Accept the known deviations that this file names."),
    ] = None,
    write_baseline: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--write-baseline", help="Write what fails into the file of --baseline.")
    ] = False,
    list_: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--list", help="Print the ids of the cases and run nothing.")
    ] = False,
) -> None:
    """Judges whether a server computes what it should.

    Every operator is called with many cases, and compared with an independent statement of what it
    computes. Options that may be given again: --operator, --dtype, --block, --case.

    The exit code is 0 if the server conforms. It is 1 if a case fails, and also if the server
    conforms in part: something was skipped that should have been judged.

    Examples:
        npucall conform --target npu-host:50051 --quick
        npucall conform --target npu-host:50051 --html report.html --save failures
        npucall conform --target local: --operator KlDivBackward --dtype bf16
        npucall conform --target npu-host:50051 --against local: --quick
    """
    target = the_target(target, target_option)
    chosen = replace(_selection(case, operator, dtype, block), quick=quick, fuzz=fuzz)
    profile = known_profile(profile)
    if fuzz and (case or block or quick):
        raise ValueError("fuzz: expected none of --case, --block and --quick, which are of cases")
    cases = [] if fuzz else _cases(chosen)
    if list_:
        print(*(each.id for each in cases), sep="\n")
        return
    if export is not None:
        _export(export, cases, soc or _SOC, profile or CANN_STANDARD, seed)
        return
    found = judge(
        connect, target, chosen, cases, against=against, soc=soc, adapter=adapter, profile=profile,
        seed=seed, repeat=repeat, save=save, baseline=baseline, write_baseline=write_baseline,
        allow_skipped=allow_skipped, allow_missing=allow_missing,
    )  # fmt: skip
    for form, path in {"as_json": json, "as_junit": junit, "as_page": html}.items():
        if path is not None:
            text = getattr(import_module(f"{_REPORTS}.files"), form)(found)
            path.write_text(text, encoding="utf-8")
    import_module(f"{_REPORTS}.terminal").show(found)
    if not found.passed:
        raise typer.Exit(1)


def replay(  # noqa: PLR0913  # options of a command
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that conform --save wrote.")
    ],
    target: Target = None,
    target_option: TargetOption = None,
    soc: Soc = "",
    adapter: Adapter = "",
    profile: Profile = "",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
) -> None:
    """Runs a failing case again, from its folder.

    The exit code is 0 if the case passes now, 1 if it fails again.

    Examples:
        npucall replay failures/aclnnSilu__grid__f32-4x6-0001 -t npu-host:50051
    """
    target = the_target(target, target_option)
    with ExitStack() as stack:
        subject = SubjectOpener(stack, connect, soc).first(target, adapter)
        outcome = golden.replay(folder, subject, known_profile(profile))
    if as_json:
        print_json({name: getattr(outcome, name) for name in ("case", "status", "problems")})
    else:
        print(f"{outcome.case}: {outcome.status}", *outcome.problems, sep="\n  ")
    if outcome.status != "passed":
        raise typer.Exit(1)


def _export(folder: Path, cases: Sequence[Case], soc: str, profile: str, seed: int) -> None:
    """Writes golden data of the cases."""
    written = golden.Golden(folder, product_of(soc).soc, profile, seed, versions())
    written.write(cases)
    print(f"{len(written.cases)} cases for {written.product} in {folder}")
    for reason, many in written.left_out.items():
        print(f"left out {many}: {reason}")


def _selection(
    case: list[str] | None,
    operator: list[str] | None,
    dtype: list[str] | None,
    block: list[str] | None,
) -> Selection:
    for name in block or ():
        if name not in BLOCKS:
            raise ValueError(f"block: expected one of {', '.join(BLOCKS)}, found {name!r}")
    known = {name for each in statements() for name in (each.operator, each.title)}
    for name in operator or ():
        if plain(name) not in map(plain, known):
            hint = did_you_mean(name, sorted(known))
            raise ValueError(f"operator: expected one of the suite, found {name!r}{hint}")
    return Selection(
        tuple(case or ()),
        tuple(operator or ()),
        tuple(map(dtype_named, dtype or ())),
        tuple(block or ()),
    )


def _cases(chosen: Selection) -> list[Case]:
    """The cases of a run. Says which variants there are of an operator that was named."""
    cases = list(select(statements(), chosen))
    if not cases:
        raise ValueError("case: expected filters that leave a case, found none; see --list")
    if chosen.operators and (several := variants_of(cases)):
        print(f"npucall: {several}", file=sys.stderr)
    return cases
