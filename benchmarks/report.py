"""What a run prints, and its JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goals import Row

_COLOURS = {
    "missed": "red",
    "not available": "red",
    "reached": "green",
    "aim reached": "green",
    "reached, aim missed": "yellow",
    "aim missed": "yellow",
}


def goal_table(rows: Sequence[Row]) -> Table:
    """The goals beside the figures."""
    heads = ("ratio", "noise", "must", "aim", "", "absolute", "client")
    table = Table(Column("goal", no_wrap=True), *heads, box=None)
    for row in rows:
        if row.goal is not None:
            table.add_row(*goal_cells(row), style=_COLOURS[row.verdict])
    return table


def goal_cells(row: Row) -> list[str]:
    """A row of the table of goals: name, ratio, noise, bounds, verdict, absolute, which client."""
    figure, goal = row.figure, row.goal
    if goal is None:
        raise ValueError(f"{figure.series.name}: expected a goal, found none")
    sign = "<=" if goal.better == "lower" else ">="
    bounds = ("" if bound is None else f"{sign} {bound}" for bound in (goal.must, goal.aim))
    client = figure.series.way if goal.kept else "as it comes" if figure.series.callers else ""
    return [
        figure.series.name, number(figure.ratio), number(figure.noise), *bounds, row.verdict,
        absolute(row), client,
    ]  # fmt: skip


def figure_table(rows: Sequence[Row]) -> Table:
    """The figures without a goal."""
    table = Table(Column("figure", no_wrap=True), "ratio", "noise", "absolute", box=None)
    for row in rows:
        if row.goal is None:
            table.add_row(*figure_cells(row))
    return table


def figure_cells(row: Row) -> list[str]:
    """A row of the other figures: name, ratio, noise, absolute."""
    figure = row.figure
    return [figure.series.name, number(figure.ratio), number(figure.noise), absolute(row)]


def summary(rows: Sequence[Row]) -> str:
    """How many goals were reached, which were not."""
    goals = [row for row in rows if row.goal is not None]
    musts = [row for row in goals if row.goal and row.goal.must is not None]
    aims = [row for row in goals if row.goal and row.goal.aim is not None]
    missed = [row.figure.series.name for row in musts if row.must_missed]
    reached = sum(row.reaches(row.goal.aim) for row in aims if row.goal)
    text = (
        f"must: {len(musts) - len(missed)} of {len(musts)} reached; "
        f"aim: {reached} of {len(aims)} reached"
    )
    return text + (f"; missed: {'; '.join(missed)}" if missed else "")


def as_json(rows: Sequence[Row]) -> str:
    """All rows, those with a goal first."""
    return json.dumps([row.as_object() for row in rows], indent=1) + "\n"


def number(value: float | None) -> str:
    """A ratio in three digits."""
    return "" if value is None else f"{value:.3g}"


def absolute(row: Row) -> str:
    """With its unit."""
    value = row.figure.absolute
    return "" if value is None else f"{value:.4g} {row.figure.series.unit}"
