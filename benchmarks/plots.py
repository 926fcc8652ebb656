"""Figures as pictures: SVG to stand within a page."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from cases import ALL_WAYS, CPU, FLIGHT, RATE, THROUGHPUT
from figures import MIB, size_text
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from memory import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from figures import Figure
    from matplotlib.axes import Axes

_STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
_WAYS = ("yardstick", *ALL_WAYS, FLIGHT)
_COLOURS = dict(zip(_WAYS, mpl.colormaps["tab10"].colors, strict=False))
_ENDS = {"client": "#4c78a8", "server": "#f58518"}
_RATES = (RATE.name, THROUGHPUT.name)
_LARGE = 16 * MIB
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def plots(figures: Sequence[Figure]) -> Iterator[tuple[str, str]]:
    """What each picture shows, and its SVG; those that nothing was measured for are left out."""
    known = [figure for figure in figures if figure.absolute is not None]
    drawn = (
        ("How many times as fast as the yardstick, one caller", _ratio_by_size(known)),
        ("How much gets through, by the number of callers", _throughput_by_callers(known)),
        ("What a call is made of: each stage alone, microseconds", _stages(known)),
        ("CPU time and memory, tensors of 16 MiB", _costs(known)),
    )
    for title, canvas in drawn:
        if canvas.axes:
            yield title, svg(canvas, title)


def _ratio_by_size(figures: Sequence[Figure]) -> Canvas:
    chosen = [
        figure
        for figure in _where(figures, _RATES, callers=1, dtype="float32")
        if figure.series.way != "yardstick"
    ]
    canvas = _canvas(4.6)
    if not chosen:
        return canvas
    axes = canvas.add_subplot()
    for way, line in _by_way(chosen):
        points = [(figure.series.size, figure.ratio) for figure in line]
        axes.plot(*zip(*points, strict=True), "o-", color=_COLOURS[way], label=way)
    axes.axhline(1, color=_COLOURS["yardstick"], linestyle="--", label="yardstick")
    _log(axes, sorted({figure.series.size for figure in chosen}), size_text)
    _log_upwards(axes, "x")
    axes.set_xlabel("bytes of one tensor")
    _legend(canvas)
    return canvas


def _throughput_by_callers(figures: Sequence[Figure]) -> Canvas:
    chosen = _where(figures, _RATES, dtype="float32")
    counts: dict[int, set[int]] = {}
    for figure in chosen:
        counts.setdefault(figure.series.size, set()).add(figure.series.callers)
    sizes = [size for size, callers in sorted(counts.items()) if len(callers) > 1]
    canvas = _canvas(3.6 * ((len(sizes) + 1) // 2) + 0.4)
    for index, size in enumerate(sizes):
        axes = canvas.add_subplot((len(sizes) + 1) // 2, 2, index + 1)
        of_size = [figure for figure in chosen if figure.series.size == size]
        for way, line in _by_way(of_size):
            points = [(figure.series.callers, figure.absolute) for figure in line]
            axes.plot(*zip(*points, strict=True), "o-", color=_COLOURS[way], label=way)
        _log(axes, sorted(counts[size]), str)
        _log_upwards(axes, "")
        axes.set_title(f"{size_text(size)}, {of_size[0].series.quantity}")
        axes.set_xlabel("callers")
        axes.set_ylabel(of_size[0].series.unit)
    _legend(canvas)
    return canvas


def _stages(figures: Sequence[Figure]) -> Canvas:
    chosen = [figure for figure in figures if figure.series.quantity == "stage"]
    sizes = sorted({figure.series.size for figure in chosen})
    canvas = _canvas(3.8)
    first: Axes | None = None
    for index, size in enumerate(sizes):
        axes = canvas.add_subplot(1, len(sizes), index + 1, sharey=first)
        bars = {f.series.way: f.absolute for f in chosen if f.series.size == size}
        drawn = axes.barh(
            list(bars), list(bars.values()), color=[_ENDS[name.split(":")[0]] for name in bars]
        )
        axes.bar_label(drawn, fmt="%.3g", padding=3)
        axes.margins(x=0.3)
        axes.set_title(size_text(size))
        axes.set_xlabel("us")
        axes.tick_params(labelleft=first is None)
        if first is None:
            axes.invert_yaxis()
            first = axes
    return canvas


def _costs(figures: Sequence[Figure]) -> Canvas:
    canvas = _canvas(3.8)
    cpu = [f"{end} {CPU.name}" for end in _ENDS]
    one = _where(figures, cpu, callers=1, dtype="float32", size=_LARGE)
    peaks = _where(figures, ENDS)
    if one:
        _bars(canvas.add_subplot(1, 2, 1), one, cpu, "CPU seconds a GB, one caller", stacked=True)
    if peaks:
        callers = peaks[0].series.callers
        title = f"peak memory, {callers} callers, MiB"
        _bars(canvas.add_subplot(1, 2, 2), peaks, ENDS, title, stacked=False)
    return canvas


def _bars(
    axes: Axes, figures: Sequence[Figure], quantities: Sequence[str], title: str, *, stacked: bool
) -> None:
    """A bar for each way and end: one behind the other, or one below the other."""
    ways = [way for way, _ in _by_way(figures)]
    values = {(f.series.quantity, f.series.way): f.absolute or 0.0 for f in figures}
    height = 0.8 if stacked else 0.4
    left = [0.0] * len(ways)
    for index, (end, quantity) in enumerate(zip(_ENDS, quantities, strict=True)):
        lengths = [values[quantity, way] for way in ways]
        places = [place if stacked else place + index * height - 0.2 for place in range(len(ways))]
        drawn = axes.barh(places, lengths, height, left=left, color=_ENDS[end], label=end)
        if stacked:
            left = [start + length for start, length in zip(left, lengths, strict=True)]
        if not stacked or end == "server":
            texts = [f"{value:.3g}" for value in (left if stacked else lengths)]
            axes.bar_label(drawn, texts, padding=3)
    axes.set_yticks(range(len(ways)), ways)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title)
    axes.legend(loc="lower right", frameon=False)


def _where(figures: Iterable[Figure], quantities: Sequence[str], **wanted: Any) -> list[Figure]:
    """The figures of these quantities whose series say this."""
    return [
        figure
        for figure in figures
        if figure.series.quantity in quantities
        and all(getattr(figure.series, name) == value for name, value in wanted.items())
    ]


def _by_way(figures: Sequence[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    """The figures of each way, from small to large."""
    for way in _WAYS:
        line = [figure for figure in figures if figure.series.way == way]
        if line:
            yield way, sorted(line, key=lambda f: (f.series.size, f.series.callers))


def _canvas(inches: float) -> Canvas:
    return Canvas(figsize=(10, inches), layout="constrained")


def _log(axes: Axes, ticks: Sequence[int], text: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [text(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _log_upwards(axes: Axes, unit: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, color="#ddd")


def _legend(canvas: Canvas) -> None:
    """One for all axes, below them."""
    named: dict[str, Any] = {}
    for axes in canvas.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    canvas.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=5, frameon=False
    )


def svg(canvas: Canvas, title: str) -> str:
    """Without XML's prologue; ``title`` keeps its ids apart from those of other pictures."""
    out = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": title}):
        canvas.savefig(out, format="svg", metadata=_NO_METADATA)
    text = out.getvalue()
    return text[text.index("<svg") :]
