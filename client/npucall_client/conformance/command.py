"""``npucall conform`` and ``npucall replay``."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from npucall_client.client import connect
from npucall_client.conformance import bundle
from npucall_client.conformance.cases import BLOCKS, dtype_named
from npucall_client.conformance.report import Report
from npucall_client.conformance.runner import Evidence, Judged, Runner, default_profile, judged
from npucall_client.conformance.select import Selection, select
from npucall_client.conformance.statements import statements
from npucall_client.conformance.tolerance import PROFILES

if TYPE_CHECKING:
    from npucall_client.conformance.report import Server

try:
    import typer
except ImportError:
    sys.exit(
        "npucall: expected the extra conformance, found it missing: "
        "pip install 'npucall-client[conformance]'"
    )

_REPORTS = "npucall_client.conformance.reports"
_PACKAGES = ("npucall", "npucall-client", "numpy", "ml-dtypes", "grpcio", "protobuf")
_TARGET_HELP = "HOST:PORT, unix:PATH, local: or pool:...; else NPUCALL_TARGET, 127.0.0.1:50051."

Target = Annotated[str | None, typer.Argument(help=_TARGET_HELP)]
Profile = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(PROFILES)}; else cpu-strict for the CPU reference, else cann-standard."
    ),
]


def conform(  # noqa: PLR0913  # options of a command
    target: Target = None,
    against: Annotated[
        str | None, typer.Option(help="A second server, to judge and compare with the first.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="The case of this id alone.")] = None,
    operator: Annotated[
        list[str] | None, typer.Option(help="This operator alone, such as KlDivBackward.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="This dtype alone: f32, bf16.")] = None,
    block: Annotated[
        list[str] | None, typer.Option(help=f"This block alone: {', '.join(BLOCKS)}.")
    ] = None,
    quick: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--quick", help="A sample of everything, in seconds.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the data; ids do not depend on it.")] = 0,
    profile: Profile = "",
    json: Annotated[Path | None, typer.Option(help="Write a report as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a report as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write a bundle of each failing case below this folder.")
    ] = None,
    list_: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--list", help="Print the ids of the cases, run nothing.")
    ] = False,
) -> None:
    """Judges a server's operators by independent statements; exit code 1 if a case fails."""
    chosen = _selection(case, operator, dtype, block, quick=quick)
    cases = list(select(statements(), chosen))
    if not cases:
        raise ValueError("case: expected filters that leave a case, found none; see --list")
    if list_:
        for each in cases:
            print(each.id)
        return
    with ExitStack() as stack:
        first = _judged(stack, target)
        second = _judged(stack, against) if against else None
        report = _report(first, second, profile, seed, quick=quick)
        runner = Runner(
            first, second, report.profile, seed, torch=not quick,
            on_failure=_saver(save, report) if save else None,
        )  # fmt: skip
        start = time.monotonic()
        outcomes = runner.run(cases)
        report.outcomes.extend(import_module(f"{_REPORTS}.table").progress(outcomes, len(cases)))
        report.seconds = time.monotonic() - start
    for name, path in {"json_file": json, "junit": junit, "html": html}.items():
        if path is not None:
            _write(name, report, path)
    import_module(f"{_REPORTS}.table").show(report)
    if not report.passed:
        raise typer.Exit(1)


def replay(
    folder: Annotated[Path, typer.Argument(help="A folder that conform --save wrote.")],
    target: Target = None,
    profile: Profile = "",
) -> None:
    """Runs a failing case once more from its bundle; exit code 1 if it fails again."""
    kept = bundle.load(folder)
    with connect(target) as client:
        outcome = bundle.replay(kept, client, _known(profile))
    print(f"{outcome.case}: {outcome.status}")
    for problem in outcome.problems:
        print(f"  {problem}")
    if outcome.status != "passed":
        raise typer.Exit(1)


def _selection(
    case: list[str] | None,
    operator: list[str] | None,
    dtype: list[str] | None,
    block: list[str] | None,
    *,
    quick: bool,
) -> Selection:
    for name in block or ():
        if name not in BLOCKS:
            raise ValueError(f"block: expected one of {', '.join(BLOCKS)}, found {name!r}")
    return Selection(
        tuple(case or ()),
        tuple(operator or ()),
        tuple(map(dtype_named, dtype or ())),
        tuple(block or ()),
        quick,
    )


def _judged(stack: ExitStack, target: str | None) -> Judged:
    client = stack.enter_context(connect(target))
    return judged(client, target or client._settings.target)  # noqa: SLF001  # its own package


def _report(
    first: Judged, second: Judged | None, profile: str, seed: int, *, quick: bool
) -> Report:
    servers = [each.server for each in (first, second) if each is not None]
    stated = {each.title for each in statements()}
    return Report(
        _known(profile) or default_profile(*servers),
        seed,
        first.server,
        second.server if second is not None else None,
        quick=quick,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(),
        unstated=tuple(sorted(first.dtypes.keys() - stated)),
    )


def _known(profile: str) -> str:
    if profile and profile not in PROFILES:
        raise ValueError(f"profile: expected one of {', '.join(PROFILES)}, found {profile!r}")
    return profile


def _saver(folder: Path, report: Report) -> Any:
    def keep(evidence: Evidence) -> None:
        server: Server = report.server
        bundle.save(
            folder, evidence, profile=report.profile, seed=report.seed, server=server,
            versions=report.versions,
        )  # fmt: skip

    return keep


def _versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}}


def _write(name: str, report: Report, path: Path) -> None:
    """Calls ``write(report, path)`` of the module of that name in ``reports``."""
    import_module(f"{_REPORTS}.{name}").write(report, path)
