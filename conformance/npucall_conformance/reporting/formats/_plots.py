"""The page's plots as SVG: errors against the tolerance on a log axis, and little histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npucall_conformance.reporting.formats._markup import Child, Markup, join, tag
from npucall_conformance.reporting.formats.text import count, number
from npucall_conformance.reporting.report import ULP_BINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DECADES = (-4, 2)
"""The axis runs from 10^-4 to 10^2 of the tolerance; errors beyond it are drawn at its ends."""
_ZERO, _START, _END = 2.5, 14.0, 97.5
"""The position of cases without any error, and both ends of the axis, in percent of the width."""
_ROW, _AXIS = 17, 20
"""Heights of a line and of the axis, in pixels."""
_BINS = 14
"""Marks that a decade of the axis has at most."""


@dataclass(frozen=True)
class Strip:
    """One line of the plot: the worst errors of cases, as shares of their tolerance."""

    operator: str
    variant: str
    dtype: str
    ratios: Sequence[float]


def dtype_class(dtype: str) -> str:
    """The class that colours a dtype."""
    return dtype if dtype in ("f32", "f16", "bf16") else "other"


def strips(rows: Sequence[Strip]) -> Markup:
    """Every case as a mark, half of them in the box, one line for each operator and dtype.

    Widths are percentages, so that the plot is as wide as the page, and texts stay as they are.
    """
    groups: dict[tuple[str, str], list[Strip]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.variant), []).append(row)
    bodies = [_group(*names, group) for names, group in groups.items()]
    return tag("div", _axis(), *bodies, _axis(), class_="strips")


def histogram(counts: Sequence[int], dtype: str) -> Markup:
    """Elements by their error in ulp; heights are logarithms."""
    width, height = 9, 22
    top = math.log1p(max(counts, default=0)) or 1.0
    bars: list[Child] = []
    for index, many in enumerate(counts):
        tall = max(height * math.log1p(many) / top, 1.5) if many else 0.5
        bars.append(
            tag("rect", tag("title", f"{_bin(index)}: {count(many, 'element')}"), class_="bar",
                x=index * width, y=height - tall, width=width - 1.5, height=tall)
        )  # fmt: skip
    return tag(
        "svg", *bars, class_=dtype_class(dtype), width=width * len(counts), height=height,
        role="img", aria_label="Elements by error in ulp",
    )  # fmt: skip


def _bin(index: int) -> str:
    if index == 0:
        return "exact"
    if index == len(ULP_BINS):
        return f"over {ULP_BINS[-1]:g} ulp"
    return f"over {ULP_BINS[index - 1]:g}, up to {ULP_BINS[index]:g} ulp"


def _group(operator: str, variant: str, rows: Sequence[Strip]) -> Markup:
    """The lines of an operator, below its name or next to it."""
    name = tag("div", operator, _variant(variant), class_="name")
    lines = [
        tag("div", tag("span", row.dtype, class_="dtype"), _line(row),
            class_=f"line {dtype_class(row.dtype)}")
        for row in rows
    ]  # fmt: skip
    return tag("div", name, tag("div", *lines), class_="strip")


def _variant(variant: str) -> Markup | None:
    return tag("span", f" {variant}", class_="variant") if variant else None


def _line(row: Strip) -> Markup:
    limit = _x(1.0)
    decades = range(_DECADES[0], _DECADES[1] + 1)
    return tag(
        "svg",
        tag("rect", class_="beyond", x=_percent(limit), y=0, width=_percent(100 - limit),
            height=_ROW),
        *(_upright("grid", _x(10.0**decade)) for decade in decades),
        _upright("limit", limit),
        _box(sorted(row.ratios)),
        *_marks(row.ratios),
        width="100%", height=_ROW, role="img",
        aria_label=f"Worst error of each case of {row.operator} {row.dtype} as a share of its "
        "tolerance",
    )  # fmt: skip


def _upright(style: str, x: float) -> Markup:
    return tag("line", class_=style, x1=_percent(x), x2=_percent(x), y1=0, y2=_ROW)


def _box(ratios: Sequence[float]) -> Markup:
    """From the first to the third quartile, and the median."""
    low, median, high = (_x(ratios[round(q * (len(ratios) - 1))]) for q in (0.25, 0.5, 0.75))
    text = f"{count(len(ratios), 'case')}, largest {number(ratios[-1])} of the tolerance"
    middle = _ROW / 2
    return join(
        tag("rect", tag("title", text), class_="box", x=_percent(low), y=middle - 5,
            width=_percent(max(high - low, 0.1)), height=10, rx=2),
        tag("line", class_="median", x1=_percent(median), x2=_percent(median), y1=middle - 5,
            y2=middle + 5),
    )  # fmt: skip


def _marks(ratios: Iterable[float]) -> Iterator[Markup]:
    """Cases near each other share a mark, which grows with their number."""
    step = (_END - _START) / ((_DECADES[1] - _DECADES[0]) * _BINS)
    places: dict[tuple[float, bool], list[float]] = {}
    for ratio in ratios:
        place = round(_x(ratio) / step) * step if ratio else _x(ratio)
        places.setdefault((place, not ratio <= 1), []).append(ratio)
    for (x, outside), here in sorted(places.items()):
        worst = number(max(here, key=lambda r: math.inf if math.isnan(r) else r))
        text = f"{count(len(here), 'case')} up to {worst} of the tolerance"
        radius = min(1.4 + 0.55 * math.log2(len(here)), 5.0)
        radius = max(radius, 2.5) if outside else radius
        # A case outside is never drawn inside, however near it is: it moves off the line.
        beside = abs(x - _x(1.0)) <= 2 * step
        limit = max(x, _x(1.0)) if outside else min(x, _x(1.0))
        yield tag(
            "circle", tag("title", text), class_="outside" if outside else "mark",
            cx=_percent(limit), cy=_ROW / 2, r=radius,
            transform=f"translate({radius if outside else -radius:.4g} 0)" if beside else None,
        )  # fmt: skip


def _x(ratio: float) -> float:
    """The position of a share of the tolerance, in percent."""
    if ratio <= 0:
        return _ZERO
    first, last = _DECADES
    decade = last if not math.isfinite(ratio) else min(max(math.log10(ratio), first), last)
    return _START + (decade - first) / (last - first) * (_END - _START)


def _percent(value: float) -> str:
    return f"{value:.4g}%"


def _axis() -> Markup:
    """The axis with its numbers; above the plot and below it."""
    first, last = _DECADES
    texts = [("exact", 0.0, "")]
    for decade in range(first, last + 1):
        label = "tolerance" if decade == 0 else f"{10.0**decade:g}"
        ends = {first: f"≤ {label}", last: f"≥ {label}"}
        texts.append((ends.get(decade, label), _x(10.0**decade), " odd" if decade % 2 else ""))
    anchors = {0.0: "start", _START: "start", _END: "end"}
    shown = [
        tag("text", text, x=_percent(x), y=14, text_anchor=anchors.get(x, "middle"),
            class_=f"small{odd}")
        for text, x, odd in texts
    ]  # fmt: skip
    drawing = tag("svg", *shown, width="100%", height=_AXIS, role="img", aria_label="Axis")
    line = tag("div", tag("span", class_="dtype"), drawing, class_="line")
    return tag("div", tag("div", class_="name"), line, class_="strip axis")
