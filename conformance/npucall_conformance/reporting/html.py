"""A report, or those of every product, as one page that needs nothing but itself.

``page.html`` is the page, a template of Jinja; what it computes is here. All text is escaped on its
way in. The page has no scripts, and its Content-Security-Policy forbids everything from elsewhere,
so a hostile server's texts could not load anything either if they were not escaped.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from npucall_conformance.cases.case import BLOCKS
from npucall_conformance.judging.tolerance import ULP_BINS
from npucall_conformance.reporting import wording
from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.coverage import Matrix
from npucall_conformance.reporting.pairs import LEVELS, SMALL_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from npucall_conformance.reporting.coverage import Covered
    from npucall_conformance.reporting.pairs import Pair
    from npucall_conformance.reporting.report import JudgedServer, Report, Tally

_PROFILES = {
    "cpu-strict": "the number that the truth rounds to, give or take what float32 inside costs",
    "cann-standard": "CANN's precision standard: relative and absolute error, 99 % of the elements",
    "cann-legacy": "the older form of CANN's standard: mean and largest relative error",
}
_TONES = {"conforms": "", "conforms in part": "partly", "fails": "failed"}
_DASH = "\N{EN DASH}"


def render(found: Report | Matrix) -> str:
    """The text of the page."""
    several, said = isinstance(found, Matrix), wording.verdict(found)
    who = "" if several else f" of {found.reports[0].server.target}"
    title = f"{said}: npucall conformance{who}"
    return _page().render(found=found, several=several, said=said, title=title)


@cache
def _page() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, finalize=_harmless,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "comma": "{:,}".format, "digits": wording.number, "told": _told, "by_title": _by_title,
        "milliseconds": _milliseconds,
    }  # fmt: skip
    environment.globals |= {
        "bars_of": _bars, "causes": causes, "count": wording.count, "figures_of": _figures,
        "heat_of": _heat, "kinds_of": _kinds, "lacking_of": _lacking, "levels": LEVELS,
        "local_id": wording.local_id, "milliseconds": _milliseconds, "number": wording.number,
        "numbers": _numbers, "operators_of": _operators, "passed_of": _passed,
        "profile_of": _profile, "remarks": wording.remarks, "rerun": wording.rerun,
        "scope": wording.scope, "sections": _sections, "share": _share, "small_ratio": SMALL_RATIO,
        "told_of": wording.told, "tones": _TONES, "ulp": _ulp, "ulp_note": _ulp_note,
        "ulps_of": _ulps, "verdict": wording.verdict,
    }  # fmt: skip
    return environment.get_template("page.html")


def _harmless(value: Any) -> Any:
    return value if isinstance(value, Markup) else wording.clean(str(value))


def _sections(report: Report) -> dict[str, str]:
    """The titles of the sections that have something to show, by their anchors."""
    some = {
        "coverage": ("Coverage", True),
        "failures": ("Failures by cause", report.failures),
        "accepted": ("Known deviations", report.total().accepted),
        "run": ("What was judged", True),
        "blocks": ("Operators and blocks", report.outcomes),
        "figures": ("Operators and dtypes", any(any(o.histogram) for o in report.outcomes)),
        "pairs": ("Two servers", report.pairs()),
        "documents": ("Documents against behaviour", report.contradictions()),
    }
    return {name: title for name, (title, there) in some.items() if there}


def _numbers(report: Report) -> list[tuple[str, str, bool]]:
    """The figures at the top: name, value, and whether it is bad."""
    total = report.total()
    operators = {outcome.title for outcome in report.outcomes if outcome.status != "skipped"}
    return [
        ("cases ran", f"{total.cases:,}", False),
        ("failed", f"{total.failed:,}", bool(total.failed)),
        ("accepted, as the baseline says", f"{total.accepted:,}", False),
        ("skipped", f"{total.skipped:,}", False),
        ("operators and variants", f"{len(operators)}", False),
        ("elements compared", f"{sum(total.histogram):,}", False),
        ("worst error, of its tolerance", wording.number(total.ratio), total.ratio > 1),
        ("duration", f"{report.seconds:.1f} s", False),
    ]


def _profile(report: Report) -> str:
    return f"{report.profile}: {_PROFILES.get(report.profile, '')}".rstrip(": ")


def _operators(server: JudgedServer) -> str:
    """How many operators it has, and the variants of those that have any."""
    variants = [title.removeprefix("aclnn") for title in server.variants if "." in title]
    named = f"; variants {', '.join(variants)}" if variants else ""
    return f"{len(server.variants)}{named}"


def _kinds(found: Any) -> dict[str, Covered]:
    kinds = (found.operators, found.dtypes, found.blocks, found.paths)
    return dict(zip(wording.KINDS, kinds, strict=True))


def _lacking(covered: Covered) -> list[str]:
    """What was not judged at all, and of what a part was not."""
    parts = [f"{wording.count(n, 'case')} of {name}" for name, n in covered.partly.items()]
    return [each.replace("aclnn", "") for each in (*_told(covered.missing), *parts)]


def _heat(report: Report) -> tuple[list[str], dict[str, dict[str, Tally]]]:
    """The blocks in their order, and by operator the tally of each."""
    rows: dict[str, dict[str, Tally]] = {}
    for (title, block), tally in report.by_operator_and_block().items():
        rows.setdefault(title, {})[block] = tally
    there = {block for row in rows.values() for block in row}
    known = [block for block in BLOCKS if block in there]
    return known + sorted(there - set(known)), rows


def _figures(report: Report) -> dict[str, list[tuple[str, Tally, float]]]:
    """By operator, of each dtype its tally, and the usual share of the tolerance in a case."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for each in report.outcomes:
        if any(each.histogram):
            ratios.setdefault((each.title, each.dtype), []).append(each.ratio)
    groups: dict[str, list[tuple[str, Tally, float]]] = {}
    for (title, dtype), tally in report.by_operator_and_dtype().items():
        usual = median(ratios.get((title, dtype), [0.0]))
        groups.setdefault(title, []).append((dtype, tally, usual))
    return groups


def _bars(counts: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Of each bin the height of its bar, a logarithm in percent, and what it is."""
    ends = [f"over {one:g}, up to {other:g} ulp" for one, other in pairwise(ULP_BINS)]
    top = math.log1p(max(counts, default=0)) or 1.0
    for name, many in zip(["exact", *ends, f"over {ULP_BINS[-1]:g} ulp"], counts, strict=True):
        height = max(round(100 * math.log1p(many) / top), 7) if many else 2
        yield height, f"{name}: {wording.count(many, 'element')}"


def _share(ratio: float) -> float:
    return round(100 * min(ratio, 1.0), 1)


def _ulp(tally: Tally) -> str:
    return wording.in_ulp(tally.ulp, inside=tally.ratio <= 1)


def _ulp_note(tally: Tally) -> str:
    return wording.NO_ULP if _ulp(tally) == wording.NOTHING else tally.ulp_case


def _passed(pair: Pair) -> list[str]:
    return [f"{side.passed:,}/{pair.cases:,}" for side in pair.sides]


def _ulps(pair: Pair) -> list[str]:
    return [wording.in_ulp(side.ulp, inside=side.passed == pair.cases) for side in pair.sides]


def _milliseconds(nanoseconds: int) -> str:
    """A time in milliseconds; a dash if a server tells none."""
    return wording.number(nanoseconds / 1e6) if nanoseconds else _DASH


def _told(facts: Mapping[str, Any], between: str = ": ") -> list[str]:
    return [f"{name}{between}{value}" for name, value in facts.items()]


def _by_title(report: Report) -> dict[str, tuple[int, int]]:
    """Cases that passed or were accepted, and those that ran, by operator."""
    found: dict[str, tuple[int, int]] = {}
    for (title, _), tally in report.by_operator_and_block().items():
        fine, ran = found.get(title, (0, 0))
        found[title] = (fine + tally.cases - tally.failed, ran + tally.cases)
    return found
