"""A failing case in a folder, to be looked at anywhere, and run again: ``npucall replay FOLDER``.

``case.json`` has what golden data say of a case, and how it failed. ``arrays.npz`` has the inputs,
what is expected and how near an answer has to be, and what the server answered: ``got.NAME``. The
suite makes a case again from its id and the seed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from npucall.errors import NpucallError
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.golden import arrays_in, entry_of, folder_of, plain
from npucall_conformance.judging.check import arrays_of, described
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements

VERSION = 3


def save(folder: Path, report: Report, seen: Observation) -> Path:
    """Writes a bundle into a folder of its own below ``folder``; returns that folder.

    ``report`` is that of the run, which need not have ended.
    """
    case, call, expectation, answer = seen.case, seen.call, seen.expectation, seen.answer
    place = folder / folder_of(case)
    place.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = arrays_in(call, expectation, report.profile)
    if not isinstance(answer, NpucallError):
        arrays |= {f"got.{name}": plain(array) for name, array in arrays_of(answer).items()}
    np.savez(place / "arrays.npz", **arrays)
    about = {
        "bundle": VERSION,
        **entry_of(case, call, expectation),
        "problems": seen.outcome.problems,
        "error": described(answer) if isinstance(answer, NpucallError) else None,
        "profile": report.profile,
        "seed": report.seed,
        "server": asdict(report.server),
        "versions": report.versions,
    }
    (place / "case.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return place


def replay(place: Path, subject: Subject, profile: str = "") -> CaseOutcome:
    """Runs a bundle's case once more, and judges it as then, or by another profile.

    Raises OSError or ValueError if there is no bundle, or if this suite has no such case.
    """
    about = json.loads((place / "case.json").read_text(encoding="utf-8"))
    if about.get("bundle") != VERSION:
        raise ValueError(f"{place}: expected a bundle of version {VERSION}")
    cases = select(statements(), Selection(cases=(about["case"],)))
    runner = Runner(subject, profile=profile or about["profile"], seed=about["seed"])
    for outcome in runner.run(cases):
        return outcome
    raise ValueError(f"{place}: expected a case of this suite, found {about['case']}")
