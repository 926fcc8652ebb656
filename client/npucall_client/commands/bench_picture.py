"""A picture of runs: a dot for each, with the median, the fastest and the slowest in numbers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDTH, _ROW, _TOP, _LEFT = 720, 64, 40, 20
_COLOURS = ("#2266aa", "#cc6622")


def picture(title: str, runs: Sequence[tuple[str, Sequence[float]]], chance: float | None) -> str:
    """An SVG of nanoseconds by target; ``chance``: the p-value of a rank test of the two."""
    most = max(max(times) for _, times in runs) or 1.0
    height = _TOP + _ROW * len(runs) + 10
    said = title if chance is None else f"{title}, p = {chance:.2g}"
    lines = [
        line
        for row, (name, times) in enumerate(runs)
        for line in _row(name, times, (_WIDTH - 2 * _LEFT) / most, _TOP + row * _ROW, row)
    ]
    size = f'viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
            f'<text x="{_LEFT}" y="22" font-weight="bold">{escape(said)}</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _row(name: str, times: Sequence[float], scale: float, top: int, number: int) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    least, median, p90 = (float(each) / 1e6 for each in np.quantile(times, [0, 0.5, 0.9]))
    said = f"{name}: min {least:.4g} ms, median {median:.4g} ms, p90 {p90:.4g} ms"
    yield f'<text x="{_LEFT}" y="{top + 14}" fill="{colour}">{escape(said)}</text>'
    for run, time in enumerate(times):
        x, y = _LEFT + time * scale, top + 24 + run * 24 / len(times)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}" fill-opacity="0.4"/>'
    x = _LEFT + median * 1e6 * scale
    yield f'<path d="M{x:.1f} {top + 20}v32" stroke="{colour}" stroke-width="2"/>'
