"""A run on every product, one after the other, and the verdict of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall_conformance.reporting.coverage import Verdict
    from npucall_conformance.reporting.report import Report

SOCS = (
    "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589", "Ascend910A", "Ascend310P3",
    "Ascend310B1", "Ascend310",
)  # fmt: skip
"""A SoC of each product."""
_WORST_FIRST: tuple[Verdict, ...] = ("fails", "conforms in part", "conforms")


@dataclass(frozen=True)
class Matrix:
    """The reports of several products; there is at least one."""

    reports: tuple[Report, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the products on which there was something to judge."""
        found = {report.verdict for report in self.judged}
        return next((verdict for verdict in _WORST_FIRST if verdict in found), "fails")

    @property
    def judged(self) -> tuple[Report, ...]:
        """The reports of the products that have some of the chosen cases."""
        return tuple(each for each in self.reports if _has_some(each))

    @property
    def passed(self) -> bool:
        """The verdict is ``conforms``."""
        return self.verdict == "conforms"

    @property
    def titles(self) -> tuple[str, ...]:
        """The operators, with their variants, that any of the runs has."""
        return tuple(dict.fromkeys(o.title for report in self.reports for o in report.outcomes))


def _has_some(report: Report) -> bool:
    """Whether something ran or should have: no product has every operator."""
    return bool(report.total().cases) or not report.coverage().complete
