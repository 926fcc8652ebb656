"""Spans as a picture: a row for each lane, steps on the device above those on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cann_timeline import Span

_COLOURS = {
    "stage": "#9ecae9",
    "copy in": "#4c78a8",
    "plan": "#e45756",
    "run": "#54a24b",
    "copy out": "#f58518",
    "collect": "#ffbf79",
}
_LEFT, _WIDTH, _RIGHT = 70, 800, 20
_TOP, _TITLE, _ROW, _AXIS = 40, 24, 34, 40
_STRIPS = {"device": (2, 16), "host": (20, 8)}
"""Of each place: where its strip starts in a row, and how high it is."""
_SHORTEST = 0.8
"""Pixels that a step has at least, to be seen."""
_TICKS = (50, 100, 200, 500, 1000)
_STYLE = "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.call{fill:#fff}"


def picture_of(runs: Mapping[str, Sequence[Span]]) -> str:
    """An SVG with a panel for each run."""
    longest = max(span.end for spans in runs.values() for span in spans)
    lanes = [len({span.lane for span in spans}) for spans in runs.values()]
    bottom = _TOP + sum(_TITLE + _ROW * count for count in lanes)
    lines, y = [*_legend(), *_axis(longest, bottom)], _TOP
    for title, spans in runs.items():
        lines.append(f'<text class="title" x="{_LEFT}" y="{y + 16}">{title}</text>')
        y += _TITLE
        for lane in sorted({span.lane for span in spans}):
            lines.append(f'<text x="8" y="{y + 18}">lane {lane}</text>')
            of_lane = [span for span in spans if span.lane == lane]
            lines += _row(of_lane, y, _WIDTH / longest)
            y += _ROW
    width, height = _LEFT + _WIDTH + _RIGHT, bottom + _AXIS
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    for index, (step, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 100 * index
        yield f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 17}" y="22">{step}</text>'


def _row(spans: Sequence[Span], y: int, pixels: float) -> Iterator[str]:
    for span in spans:
        top, height = _STRIPS[span.place]
        x = _LEFT + span.start * pixels
        width = max((span.end - span.start) * pixels, _SHORTEST)
        yield (
            f'<rect x="{x:.1f}" y="{y + top}" width="{width:.1f}" height="{height}" '
            f'fill="{_COLOURS[span.step]}"><title>call {span.call}: {span.step}, '
            f"{(span.end - span.start) / 1e3:.1f} ms</title></rect>"
        )
        if span.step == "run":
            yield f'<text class="call" x="{x + 3:.1f}" y="{y + 15}">{span.call}</text>'


def _axis(longest: float, y: int) -> Iterator[str]:
    step = next((tick for tick in _TICKS if longest / 1e3 / tick <= 12), _TICKS[-1])  # noqa: PLR2004  # ticks that fit
    for tick in range(0, int(longest / 1e3) + 1, step):
        x = _LEFT + tick * 1e3 * _WIDTH / longest
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y + 6}" stroke="#ccc"/>'
        yield f'<text x="{x:.1f}" y="{y + 22}" text-anchor="middle">{tick} ms</text>'
