"""The page's plots as SVG: errors against the tolerance on a log axis, and little histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npucall_client.conformance.report import ULP_BINS
from npucall_client.conformance.reports._markup import Child, Markup, join, tag
from npucall_client.conformance.reports.text import count, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _GAP = 1120, 300, 24, 26, 17, 5
_DECADES = (-4, 2)
"""The axis runs from 10^-4 to 10^2 of the tolerance; what is beyond stands at its ends."""
_ZERO = 72
"""Width of the place for cases without any error, left of the axis."""
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
    """Every case as a mark, half of them in the box, one line for each operator and dtype."""
    tops = list(_tops(rows))
    bottom = (tops[-1] if tops else _TOP) + _ROW + 4
    height = bottom + 24
    lines = [_line(rows[i], top, first=_starts(rows, i)) for i, top in enumerate(tops)]
    limit = _x(1.0)
    return tag(
        "svg",
        tag("rect", class_="beyond", x=limit, y=_TOP, width=_WIDTH - _RIGHT - limit,
            height=bottom - _TOP),
        *_bands(rows, tops),
        *(_gridline(decade, bottom) for decade in range(_DECADES[0], _DECADES[1] + 1)),
        tag("line", class_="limit", x1=limit, x2=limit, y1=_TOP - 4, y2=bottom),
        tag("text", "tolerance", x=limit, y=_TOP - 9, text_anchor="middle", class_="small"),
        tag("text", "exact", x=_LEFT + _ZERO / 4, y=bottom + 15, text_anchor="middle",
            class_="small"),
        *lines,
        viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH, role="img",
        aria_label="Worst error of each case as a share of its tolerance, by operator and dtype",
    )  # fmt: skip


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


def _line(row: Strip, top: float, *, first: bool) -> Markup:
    middle = top + _ROW / 2
    name = tag("text", row.operator, _variant(row.variant), x=0, y=middle + 4) if first else None
    return tag(
        "g",
        name,
        tag("text", row.dtype, x=_LEFT - 14, y=middle + 4, text_anchor="end",
            style="fill: currentColor", class_="dtype"),
        _box(sorted(row.ratios), middle),
        *_marks(row.ratios, middle),
        class_=dtype_class(row.dtype),
    )  # fmt: skip


def _variant(variant: str) -> Markup | None:
    return tag("tspan", f" {variant}", class_="small") if variant else None


def _box(ratios: Sequence[float], middle: float) -> Markup:
    """From the first to the third quartile, and the median."""
    low, median, high = (_x(ratios[round(q * (len(ratios) - 1))]) for q in (0.25, 0.5, 0.75))
    text = f"{count(len(ratios), 'case')}, largest {number(ratios[-1])} of the tolerance"
    return join(
        tag("rect", tag("title", text), class_="box", x=low, y=middle - 5,
            width=max(high - low, 1.0), height=10, rx=2),
        tag("line", class_="median", x1=median, x2=median, y1=middle - 5, y2=middle + 5),
    )  # fmt: skip


def _marks(ratios: Iterable[float], middle: float) -> Iterator[Markup]:
    """Cases near each other share a mark, which grows with their number."""
    places: dict[tuple[float, bool], list[float]] = {}
    for ratio in ratios:
        step = (_WIDTH - _RIGHT - _LEFT - _ZERO) / ((_DECADES[1] - _DECADES[0]) * _BINS)
        place = round(_x(ratio) / step) * step if ratio else _x(ratio)
        places.setdefault((place, not ratio <= 1), []).append(ratio)
    for (x, outside), here in sorted(places.items()):
        worst = number(max(here, key=lambda r: math.inf if math.isnan(r) else r))
        text = f"{count(len(here), 'case')} up to {worst} of the tolerance"
        radius = min(1.4 + 0.55 * math.log2(len(here)), 5.0)
        # What is outside never stands inside, however near it is.
        place = max(x, _x(1.0) + radius) if outside else min(x, _x(1.0) - radius)
        yield tag(
            "circle", tag("title", text), class_="outside" if outside else "mark", cx=place,
            cy=middle, r=max(radius, 2.5) if outside else radius,
        )  # fmt: skip


def _x(ratio: float) -> float:
    """Where a share of the tolerance stands."""
    if ratio <= 0:
        return _LEFT + _ZERO / 4
    first, last = _DECADES
    decade = last if not math.isfinite(ratio) else min(max(math.log10(ratio), first), last)
    start = _LEFT + _ZERO
    return start + (decade - first) / (last - first) * (_WIDTH - _RIGHT - start)


def _gridline(decade: int, bottom: float) -> Markup:
    x = _x(10.0**decade)
    label = f"{10.0**decade:g}"
    ends = {_DECADES[0]: f"≤ {label}", _DECADES[1]: f"≥ {label}"}
    return join(
        tag("line", class_="grid", x1=x, x2=x, y1=_TOP, y2=bottom),
        tag("text", ends.get(decade, label), x=x, y=bottom + 15, text_anchor="middle",
            class_="small"),
    )  # fmt: skip


def _starts(rows: Sequence[Strip], index: int) -> bool:
    """Whether a line is the first of its operator."""
    own = (rows[index].operator, rows[index].variant)
    return not index or (rows[index - 1].operator, rows[index - 1].variant) != own


def _tops(rows: Sequence[Strip]) -> Iterator[float]:
    top = float(_TOP)
    for index in range(len(rows)):
        top += _GAP if _starts(rows, index) and index else 0
        yield top
        top += _ROW


def _bands(rows: Sequence[Strip], tops: Sequence[float]) -> Iterator[Markup]:
    """Every second operator stands on a band."""
    starts = [i for i in range(len(rows)) if _starts(rows, i)]
    ends = [*(i - 1 for i in starts[1:]), len(rows) - 1]
    for start, end in list(zip(starts, ends, strict=True))[::2]:
        y = tops[start] - _GAP / 2
        tall = tops[end] + _ROW + _GAP / 2 - y
        yield tag("rect", class_="band", x=0, y=y, width=_LEFT, height=tall, rx=3)
