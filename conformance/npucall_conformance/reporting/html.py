"""A report, or those of every product, as one page that needs nothing but itself.

``page.html`` is the page, a template of Jinja. All text is escaped on its way in. The page has no
scripts, and its Content-Security-Policy forbids everything from elsewhere, so a hostile server's
texts could not load anything either if they were not escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from npucall_conformance.cases.case import BLOCKS
from npucall_conformance.reporting import pairs, wording
from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.coverage import Covered, Matrix
from npucall_conformance.reporting.report import Report, Tally

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
        "comma": "{:,}".format, "digits": wording.number, "heat": _heat, "ms": _milliseconds,
        "told": _told,
    }  # fmt: skip
    environment.globals |= {
        "causes": causes, "count": wording.count, "lacking_of": _lacking,
        "levels": pairs.LEVELS, "sections": _sections, "small_ratio": pairs.SMALL_RATIO,
        "wording": wording,
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


def _milliseconds(nanoseconds: int) -> str:
    """A time in milliseconds; a dash if a server tells none."""
    return wording.number(nanoseconds / 1e6) if nanoseconds else _DASH


def _told(facts: Mapping[str, Any], between: str = ": ") -> list[str]:
    return [f"{name}{between}{value}" for name, value in facts.items()]
