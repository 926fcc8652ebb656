"""Runs the suite on ``local:`` with a catalogue of our own, as ``npucall conform`` would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import npucall_client
from npucall.declare.catalogue import Catalogue
from npucall.operators import CATALOGUE
from npucall_client import local
from npucall_client.conformance.cases.select import Selection, select
from npucall_client.conformance.reporting.report import Report
from npucall_client.conformance.running.judged import judged
from npucall_client.conformance.running.runner import Runner
from npucall_client.conformance.statements import statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from npucall.declare.declaration import Operator


def report_on(
    operator: str,
    blocks: Iterable[str] = (),
    *,
    soc: str = "Ascend910B1",
    quick: bool = False,
    profile: str = "cpu-strict",
) -> Report:
    """What the suite says of one operator (with its variant) and these blocks; none: all."""
    selection = Selection(operators=(operator,), blocks=tuple(blocks), quick=quick)
    with npucall_client.connect("local:", soc=soc) as client:
        runner = Runner(judged(client, "local:"), profile=profile)
        outcomes = list(runner.run(select(statements(), selection)))
        runner.first.close()
        return Report(profile, 0, runner.first.server, outcomes=outcomes)


def use_instead(monkeypatch: pytest.MonkeyPatch, changed: Operator[..., object]) -> None:
    """Lets ``local:`` have this operator in place of the one of its name and variant.

    The suite goes on knowing the right one: it asks the catalogue of the contract.
    """
    rest = (each for each in CATALOGUE if each.title != changed.title)
    monkeypatch.setattr(local, "CATALOGUE", Catalogue((*rest, changed)))


def failing_blocks(report: Report) -> set[str]:
    """The blocks in which something failed."""
    return {outcome.block for outcome in report.failures}
