"""The picture of speed in the README: npucall beside Arrow Flight and plain gRPC.

``speed_chart.py`` draws ``docs/speed.svg`` from the figures in ``docs/speed.json``; ``--measure``
measures these first. What counts is CPU time of client and server together, as a ratio of the same
round: it stays nearly the same on a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cases import AS_IT_COMES, CPU, FLIGHT, FRAMES, FRAMES_TLS, KEPT, Case
from commit import commit
from figures import KIB, MIB
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from plots import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cases import Sample

_DOCS = Path(__file__).parents[1] / "docs"
_FIGURES, _PICTURE = _DOCS / "speed.json", _DOCS / "speed.svg"
_WAYS = {
    "npucall, one host": "#2ca02c",
    "npucall, TLS": "#98df8a",
    "npucall over gRPC": "#1f77b4",
    "Arrow Flight": "#ff7f0e",
    "plain gRPC": "#7f7f7f",
}
_GRPC, _HOST, _TLS = "npucall over gRPC", "npucall, one host", "npucall, TLS"
_CELLS: dict[str, tuple[Case, dict[str, str]]] = {
    "1 KiB, one caller": (
        Case(KIB, 1, (FRAMES, FRAMES_TLS, AS_IT_COMES, FLIGHT), rounds=7, seconds=1.0),
        {_HOST: FRAMES, _TLS: FRAMES_TLS, _GRPC: AS_IT_COMES, FLIGHT: FLIGHT},
    ),
    "1 KiB, 8 callers": (
        Case(KIB, 8, (FRAMES, FRAMES_TLS, AS_IT_COMES, FLIGHT), rounds=7, seconds=1.0),
        {_HOST: FRAMES, _TLS: FRAMES_TLS, _GRPC: AS_IT_COMES, FLIGHT: FLIGHT},
    ),
    "1 MiB, 4 callers": (
        Case(MIB, 4, (FRAMES, AS_IT_COMES, FLIGHT), rounds=7, seconds=1.0),
        {_HOST: FRAMES, _GRPC: AS_IT_COMES, FLIGHT: FLIGHT},
    ),
    "16 MiB, 4 callers": (
        Case(16 * MIB, 4, (FRAMES, KEPT, FLIGHT), rounds=5, seconds=1.0),
        {_HOST: FRAMES, _GRPC: KEPT, FLIGHT: FLIGHT},
    ),
}


def main() -> None:
    """Measures if it is told to, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        _FIGURES.write_text(json.dumps(_measured(), indent=1) + "\n")
    found = json.loads(_FIGURES.read_text())
    _PICTURE.write_text(svg(_drawn(found), _title(found)) + "\n")


def _measured() -> dict[str, Any]:
    from service import service  # noqa: PLC0415  # to draw needs no server

    cells = {}
    with service() as bench:
        for name, (case, ways) in _CELLS.items():
            samples = bench.samples(case, ["yardstick", *case.ways])
            theirs = samples["yardstick"]
            cells[name] = {shown: _ratio(case, theirs, samples[way]) for shown, way in ways.items()}
            print(name, cells[name], flush=True)
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit(), "cells": cells}


def _ratio(case: Case, theirs: Sequence[Sample], ours: Sequence[Sample]) -> float:
    """How many calls a second of CPU makes, as a multiple of theirs in the same round."""
    rounds = zip(theirs, ours, strict=True)
    return round(median(CPU.of(case, their) / CPU.of(case, our) for their, our in rounds), 2)


def _title(found: dict[str, Any]) -> str:
    return (
        "Calls for a second of CPU, client and server together, as a multiple of plain Python gRPC "
        f"({found['date']}, {found['commit']})"
    )


def _drawn(found: dict[str, Any]) -> Figure:
    cells: dict[str, dict[str, float]] = found["cells"]
    canvas = Figure(figsize=(8, 5.2), layout="constrained")
    axes = canvas.add_subplot()
    ticks, at = [], 0.0
    for name, measured in cells.items():
        bars = {**measured, "plain gRPC": 1.0}
        for way, ratio in bars.items():
            drawn = axes.barh(at, ratio, 0.85, color=_WAYS[way])
            axes.bar_label(drawn, [f"{ratio:.3g}"], padding=3)
            at += 1
        ticks.append((at - (len(bars) + 1) / 2, name))
        at += 0.8
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.5, 2 * max(max(each.values()) for each in cells.values()))
    axes.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set_xlabel("times plain Python gRPC, calls for a second of CPU (client + server)")
    axes.spines[["top", "right"]].set_visible(False)
    shown = [Patch(color=colour) for colour in _WAYS.values()]
    canvas.legend(shown, list(_WAYS), loc="outside upper center", ncols=3, frameon=False)
    return canvas


if __name__ == "__main__":
    main()
