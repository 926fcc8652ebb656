"""The benchmark of lanes, and what its trace shows of them: what goes on at once, not how fast."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run."""
    return tmp_path_factory.mktemp("lanes")


@pytest.fixture(scope="module")
def steps(written: Path) -> list[dict[str, Any]]:
    """The steps of that run."""
    return run(written)


def test_both_lanes_copy_and_run_and_one_copies_while_the_other_runs(
    steps: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Beside other processes calls may come too late for that, and are made again."""
    tried = itertools.chain([steps], (run(tmp_path) for _ in range(9)))
    assert any(map(both_work_at_once, tried))


def both_work_at_once(steps: list[dict[str, Any]]) -> bool:
    pairs = itertools.product(named(steps, "copy in", "copy out"), named(steps, "run"))
    beside = any(a["args"]["lane"] != b["args"]["lane"] and intersect(a, b) for a, b in pairs)
    lanes = [{each["args"]["lane"] for each in named(steps, s)} for s in ("copy in", "run")]
    return beside and lanes == [{1, 2}] * 2


def test_no_two_calls_are_on_a_lane_at_once(steps: list[dict[str, Any]]) -> None:
    device = sorted(
        (each for each in steps if each["cat"] == "device"),
        key=lambda each: (each["args"]["lane"], each["ts"]),
    )
    assert not any(
        a["args"]["lane"] == b["args"]["lane"] and intersect(a, b)
        for a, b in itertools.pairwise(device)
    )


def test_every_call_has_each_step_once(steps: list[dict[str, Any]]) -> None:
    for call in range(1, CALLS + 1):
        of_call = [each["name"] for each in steps if each["args"]["call"] == call]
        assert sorted(of_call) == STEPS


def test_the_picture_has_every_step(written: Path, steps: list[dict[str, Any]]) -> None:
    picture = ET.parse(written / "picture.svg")  # our own file
    titles = list(picture.iter("{http://www.w3.org/2000/svg}title"))
    assert len(titles) == len(steps) == CALLS * len(STEPS)


def named(steps: Iterable[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    return [each for each in steps if each["name"] in names]


def intersect(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]
