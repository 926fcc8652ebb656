"""The run as one page of HTML, which needs nothing beside it."""

from __future__ import annotations

import os
import platform
from html import escape
from importlib.metadata import version
from typing import TYPE_CHECKING

from report import figure_cells, goal_cells, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from goals import Row

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff }
table { border-collapse: collapse; font-size: 14px }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid #ddd }
td:not(:first-child) { white-space: nowrap; font-variant-numeric: tabular-nums }
tr.missed td { background: #fde3e1 } tr.aim-missed td { background: #fff5d6 }
tr.reached td { background: #e3f4e3 }
svg { width: 100%; height: auto } summary { cursor: pointer }
"""
_CLASSES = {
    "missed": "missed",
    "not available": "missed",
    "reached, aim missed": "aim-missed",
    "aim missed": "aim-missed",
    "reached": "reached",
    "aim reached": "reached",
}
_GOAL_HEADS = ("goal", "ratio", "noise", "must", "aim", "", "absolute", "client")
_HEADS = ("figure", "ratio", "noise", "absolute")


def page(rows: Sequence[Row]) -> str:
    """Goals, pictures, all other figures."""
    from plots import plots  # noqa: PLC0415  # loads matplotlib

    goals = [row for row in rows if row.goal is not None]
    others = [row for row in rows if row.goal is None]
    pictures = "".join(
        f"<h2>{escape(title)}</h2>\n{svg}\n" for title, svg in plots([row.figure for row in rows])
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>npucall: benchmarks</title>
<style>{_STYLE}</style></head><body>
<h1>npucall: benchmarks</h1>
<p>{escape(_machine())}. A ratio is to the yardstick, the plainest gRPC service that does the same
work, in turn with it in the same run: the median of the rounds. Noise: half the distance between
their quartiles.</p>
<h2>Goals</h2>
<p>{escape(summary(rows))}.</p>
{_table(_GOAL_HEADS, ((_CLASSES[row.verdict], goal_cells(row)) for row in goals))}
{pictures}<h2>All other figures</h2>
<details><summary>{len(others)} figures</summary>
{_table(_HEADS, (("", figure_cells(row)) for row in others))}
</details></body></html>
"""


def _table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    lines = [_row("", "th", heads), *(_row(kind, "td", cells) for kind, cells in rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _row(kind: str, tag: str, cells: Sequence[str]) -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<tr{attribute}>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "protobuf", "numpy"))
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {packages}"
    )
