"""The page's coverage: which of the required cases were judged, and why others were not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_conformance.reporting.formats._markup import Markup, join, tag
from npucall_conformance.reporting.formats.text import count, remarks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_conformance.reporting.coverage import Covered
    from npucall_conformance.reporting.report import Report

_NAMED = 12
"""Up to so many names of a kind are shown; of more, a few and the number of the others."""


def covered(report: Report) -> Markup:
    """A line for each kind of thing, and the reasons for what was not judged."""
    found = report.coverage()
    kinds = {
        "operators": found.operators,
        "operators and dtypes": found.dtypes,
        "blocks": found.blocks,
        "paths": found.paths,
    }
    rows = [_row(kind, each) for kind, each in kinds.items() if each.required or each.elsewhere]
    rows.append(_cases(found.judged, found.required))
    head = tag("tr", *(tag("th", name, scope="col") for name in ("", "judged", "which", "not")))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="coverage")
    why = [
        *_reasons("should have been judged", found.lowering.items(), "bad"),
        *_reasons("not for this server", found.elsewhere.items(), None),
        *(tag("li", each) for each in remarks(report)),
    ]
    return join(table, tag("ul", *why, class_="reasons") if why else None)


def _row(kind: str, covered: Covered) -> Markup:
    lacking = [f"{name}: {why}" for name, why in covered.missing.items()]
    lacking += [f"{count(many, 'case')} of {name}" for name, many in covered.partly.items()]
    elsewhere = [f"{name}: {why}" for name, why in covered.elsewhere.items()]
    return tag(
        "tr",
        tag("th", kind, scope="row"),
        _share(len(covered.judged), covered.required),
        tag("td", _named(covered.judged), data_label="which"),
        tag("td", tag("span", _named(lacking), class_="bad") if lacking else None,
            tag("span", _named(elsewhere), class_="soft") if elsewhere else None,
            data_label="not" if lacking or elsewhere else None),
    )  # fmt: skip


def _cases(judged: int, required: int) -> Markup:
    """The line of the cases."""
    share = _share(judged, required)
    return tag("tr", tag("th", "cases", scope="row"), share, tag("td"), tag("td"))


def _share(judged: int, required: int) -> Markup:
    text = f"{judged:,}" if judged == required else f"{judged:,} of {required:,}"
    return tag("td", text, data_label="judged",
               class_="share good" if judged == required else "share bad")  # fmt: skip


def _named(names: Iterable[str]) -> Markup:
    shown = [name.replace("aclnn", "") for name in names]
    if len(shown) <= _NAMED:
        return join(", ".join(shown))
    first = f"{', '.join(shown[:3])} and {len(shown) - 3:,} more"
    return tag("details", tag("summary", first), ", ".join(shown))


def _reasons(said: str, reasons: Iterable[tuple[str, int]], tone: str | None) -> Iterable[Markup]:
    for why, many in reasons:
        yield tag("li", tag("span", f"{count(many, 'case')} {said}: ", class_=tone), why)
