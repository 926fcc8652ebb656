"""The first run on a new host, as docs/ascend.md has it: one thing after the other is turned on."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.npu import spotless_npu_server

from npucall_server.devices.cann.claims import Stake
from npucall_server.devices.cann.unverified import UNVERIFIED

PAGE = Path(__file__).parents[2] / "docs/ascend.md"
STEPS = re.findall(r"^   \| `(--.+?)` \| .+? \| (.*) ?\|$", PAGE.read_text("utf-8"), re.MULTILINE)
"""The flags of each start, and the claims that hold if it serves."""
NINE_DIMENSIONS = "aclnnGeluBackwardV2/rank/"
"""CANN takes eight at the most; the operator itself has no such rule. The page says so."""


def test_each_claim_that_a_start_hangs_on_stands_beside_the_step_that_shows_it() -> None:
    shown = [key for _, claims in STEPS for key in re.findall(r"`([\w-]+)`", claims)]
    hung_on = (Stake.START, Stake.FAST)
    assert sorted(shown) == sorted(each.key for each in UNVERIFIED if each.stake in hung_on)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(flags, marks=pytest.mark.long)  # each a minute and a half
        for flags, _ in STEPS
    ],
)
def test_each_step_of_the_first_run_passes_the_quick_suite(flags: str, tmp_path: Path) -> None:
    with spotless_npu_server(tmp_path, *shlex.split(flags)) as server:
        report = tmp_path / "conform.json"
        npucall = Path(sys.executable).with_name("npucall")
        command = [npucall, "conform", server.target, "--quick", "--json", str(report)]
        subprocess.run(command, capture_output=True, check=False, timeout=300)
    outcomes = json.loads(report.read_text())["outcomes"]
    failed = [each["case"] for each in outcomes if each["status"] == "failed"]
    assert len(outcomes) > 3000
    assert [each for each in failed if not each.startswith(NINE_DIMENSIONS)] == []
