"""The benchmark of lanes, and what its trace shows of them: what goes on at once, not how fast."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
STEPS = ["collect", "copy in", "copy out", "plan", "run", "stage"]
CALLS = 8


def run(folder: Path) -> list[dict[str, Any]]:
    """Lets the benchmark write what one round on two lanes was; the steps in its trace."""
    command = [sys.executable, "benchmarks/cann.py", "--only", "lanes", "--lanes", "2"]
    command += ["--rounds", "1", "--json", f"{folder}/figures.json"]
    command += ["--trace", f"{folder}/trace.json", "--picture", f"{folder}/picture.svg"]
    subprocess.run(command, cwd=ROOT, check=True)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def test_both_lanes_work_at_once_on_a_call_each_and_every_step_is_shown(tmp_path: Path) -> None:
    steps = run(tmp_path)
    device = sorted(
        (each for each in steps if each["cat"] == "device"),
        key=lambda each: (each["args"]["lane"], each["ts"]),
    )
    assert not any(
        a["args"]["lane"] == b["args"]["lane"] and intersect(a, b)
        for a, b in itertools.pairwise(device)
    )
    for call in range(1, CALLS + 1):
        of_call = [each["name"] for each in steps if each["args"]["call"] == call]
        assert sorted(of_call) == STEPS
    picture = ET.parse(tmp_path / "picture.svg")  # our own file
    titles = list(picture.iter("{http://www.w3.org/2000/svg}title"))
    assert len(titles) == len(steps) == CALLS * len(STEPS)
    # Beside other processes calls may come too late to be at once, and are made again.
    tried = itertools.chain([steps], (run(tmp_path) for _ in range(9)))
    assert any(map(both_work_at_once, tried))


def both_work_at_once(steps: list[dict[str, Any]]) -> bool:
    pairs = itertools.product(named(steps, "copy in", "copy out"), named(steps, "run"))
    beside = any(a["args"]["lane"] != b["args"]["lane"] and intersect(a, b) for a, b in pairs)
    lanes = [{each["args"]["lane"] for each in named(steps, s)} for s in ("copy in", "run")]
    return beside and lanes == [{1, 2}] * 2


def named(steps: Iterable[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    return [each for each in steps if each["name"] in names]


def intersect(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]
