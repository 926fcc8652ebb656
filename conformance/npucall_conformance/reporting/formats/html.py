"""A report as one page that needs nothing but itself: no network, no scripts.

Its Content-Security-Policy forbids everything from elsewhere, so a hostile server's texts could not
load anything either if they were not escaped, which ``_markup.tag`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_conformance.reporting.formats import _causes, _coverage, _pairs, _tables
from npucall_conformance.reporting.formats._markup import Markup, join, tag
from npucall_conformance.reporting.formats._plots import Strip, strips
from npucall_conformance.reporting.formats._style import STYLE
from npucall_conformance.reporting.formats.text import NOTHING, number, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_conformance.reporting.report import JudgedServer, Report

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_DTYPES = ("f64", "f32", "f16", "bf16")
_PROFILES = {
    "cpu-strict": "the number that the truth rounds to, give or take what float32 inside costs",
    "cann-standard": "CANN's precision standard: relative and absolute error, 99 % of the elements",
    "cann-legacy": "the older form of CANN's standard: mean and largest relative error",
}


def write(report: Report, path: Path) -> None:
    """Writes the file."""
    path.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The text of the page."""
    parts = list(_sections(report))
    links = [tag("a", title, href=f"#{name}") for name, title, _ in parts]
    tone = {"conforms": None, "conforms in part": "partly", "fails": "failed"}[report.verdict]
    body = tag(
        "main",
        tag(
            "header",
            tag("div", "npucall conformance", class_="kicker"),
            tag("h1", verdict(report)),
            tag("div", _subtitle(report), class_="soft"),
            tag("nav", *links),
            class_=tone,
        ),
        _numbers(report),
        *(tag("section", tag("h2", title), body, id=name) for name, title, body in parts),
    )
    title = f"{verdict(report)}: npucall conformance of {report.server.target}"
    return document(title, body)


def document(title: str, body: Markup) -> str:
    """The text of a page with this body."""
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", title),
            tag("style", Markup(STYLE)),
        ),
        tag("body", body),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _subtitle(report: Report) -> str:
    server = report.server
    beside = f" against {report.against.target}" if report.against else ""
    return (
        f"{server.target}{beside} · {server.device} as {server.soc} ({server.product}) · profile "
        f"{report.profile} · seed {report.seed}{' · quick' if report.quick else ''}"
    )


def _sections(report: Report) -> Iterator[tuple[str, str, Markup]]:
    """Anchor, title and body of what there is to show."""
    yield "coverage", "Coverage", join(_coverage_note(report), _coverage.covered(report))
    if report.failures:
        yield "failures", "Failures by cause", _causes.failures(report)
    if report.total().accepted:
        note = _note("They failed as the baseline says, and are no matter until they change.")
        yield "accepted", "Known deviations", join(note, _causes.accepted(report))
    yield "run", "What was judged", _facts(report)
    if report.outcomes:
        yield "blocks", "Operators and blocks", join(_heat_note(), _tables.heat_map(report))
    rows = _strips(report)
    if rows:
        yield "errors", "Errors against the tolerance", join(_error_note(report), strips(rows))
        yield "figures", "Operators and dtypes", join(_figure_note(), _tables.figures(report))
    if report.pairs():
        yield "pairs", "Two servers", _pairs.pairs(report)
    if report.contradictions():
        note = _note(
            "Where CANN's documents and sources contradict each other, one call each shows "
            "with which of them the server agrees. docs/conformance.md explains the numbers."
        )
        yield "documents", "Documents against behaviour", join(note, _tables.sources(report))


def _numbers(report: Report) -> Markup:
    total = report.total()
    operators = {outcome.title for outcome in report.outcomes if outcome.status != "skipped"}
    shown = [
        ("cases ran", f"{total.cases:,}", False),
        ("failed", f"{total.failed:,}", bool(total.failed)),
        ("accepted, as the baseline says", f"{total.accepted:,}", False),
        ("skipped", f"{total.skipped:,}", False),
        ("operators and variants", f"{len(operators)}", False),
        ("elements compared", f"{sum(total.histogram):,}", False),
        ("worst error, of its tolerance", number(total.ratio), total.ratio > 1),
        ("duration", f"{report.seconds:.1f} s", False),
    ]
    boxes = [
        tag("div", tag("b", value), tag("span", name), class_="figure alarm" if bad else "figure")
        for name, value, bad in shown
    ]
    return tag("div", *boxes, class_="figures")


def _facts(report: Report) -> Markup:
    run = {
        "profile": f"{report.profile}: {_PROFILES.get(report.profile, '')}".rstrip(": "),
        "seed": str(report.seed),
        "chosen": str(report.chosen) or "all cases",
        "started": report.started,
        "this side": ", ".join(f"{name} {value}" for name, value in report.versions.items()),
        "not judged": ", ".join(report.unstated),
    }
    servers = [_server(report.server)]
    if report.against is not None:
        servers.append(_server(report.against))
    return tag("div", *servers, _list(run), class_="facts")


def _server(server: JudgedServer) -> Markup:
    return _list(
        {
            "server": server.target,
            "device": server.device,
            "SoC": f"{server.soc} (family {server.product})",
            "version": server.version,
            "instance": server.instance,
            "default variant": server.default_variant,
            "operators": _operators(server.variants),
        }
    )


def _operators(titles: tuple[str, ...]) -> str:
    """How many operators it has, and the variants of those that have any."""
    variants = [title.removeprefix("aclnn") for title in titles if "." in title]
    named = f"; variants {', '.join(variants)}" if variants else ""
    return f"{len(titles)}{named}"


def _list(facts: dict[str, str]) -> Markup:
    rows = [join(tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    return tag("dl", *rows)


def _strips(report: Report) -> list[Strip]:
    """Only cases in which numbers were compared have errors."""
    ratios: dict[tuple[str, str, str], list[float]] = {}
    for each in report.outcomes:
        if any(each.histogram):
            key = (each.operator.removeprefix("aclnn"), each.variant, each.dtype)
            ratios.setdefault(key, []).append(each.ratio)
    order = {dtype: index for index, dtype in enumerate(_DTYPES)}
    keys = sorted(ratios, key=lambda k: (k[0], k[1], order.get(k[2], len(order)), k[2]))
    return [Strip(*key, ratios=ratios[key]) for key in keys]


def _note(*text: Markup | str) -> Markup:
    return tag("p", *text, class_="note")


def _key(style: str, text: str) -> Markup:
    return join(tag("span", class_="key", style=style), text)


def _coverage_note(report: Report) -> Markup:
    if report.chosen.whole:
        return _note("Of all that the suite judges on this product.")
    return _note(
        f"Of what was chosen: {report.chosen}. That is no verdict of all that the suite judges; a "
        "run without filters is."
    )


def _heat_note() -> Markup:
    return _note(
        _key("background: rgb(var(--good-tint) / .35)", "all passed (how many; darker is more)"),
        _key("background: rgb(var(--bad-tint) / .7)", "some failed (of how many that ran)"),
        _key("background: rgb(var(--warn-tint) / .4)", "some deviate as the baseline says"),
        _key("background: var(--band)", "all skipped"),
        _key(
            "background: var(--card); box-shadow: inset 0 0 0 1px var(--line)",
            "empty: the operator has no case of that block",
        ),
    )


def _error_note(report: Report) -> Markup:
    return _note(
        "Each mark is the worst element of a case, or of several cases near each other, as a share "
        f"of what {report.profile} allows; the box holds half of the cases, its line is the "
        "median. Right of the red line is outside. Where the profile leaves nothing but the "
        "nearest number, what is rounded right stands at the line."
    )


def _figure_note() -> Markup:
    return _note(
        "The bars count elements by their error in ulp of the output, heights logarithmic: exact, "
        "then up to 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8, 16, 64, 1,024 and beyond. Many are allowed "
        "where terms cancel; the share of the tolerance says whether they were. The worst case is "
        "that of the share; the run is the median of the cases on the device, as the server says. "
        f"A worst ulp is {NOTHING} where the expected number is nearly 0: one ulp of it is tiny, "
        "and the share of the tolerance is what counts."
    )
