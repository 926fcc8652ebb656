"""``npucall conform`` on servers on a simulated NPU, one for each variant that hosts have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .servers import command

if TYPE_CHECKING:
    from pathlib import Path

    from npucall_client.testing import ServerProcess

NINE_DIMENSIONS = {
    f"aclnnGeluBackwardV2/rank/{case}"
    for case in (
        "f32-none-1x2x1x1x2x1x1x1x3-0013",
        "f16-tanh-1x2x1x1x2x1x1x1x3-0014",
        "bf16-none-1x2x1x1x2x1x1x1x3-0015",
    )
}
"""The operator's own rules let them pass; CANN takes 8 dimensions of any tensor."""


@pytest.fixture(params=["builtin", "community"])
def variant(request: pytest.FixtureRequest) -> str:
    """The variant that a host has."""
    name: str = request.param
    return name


@pytest.fixture
def host(variant: str, npu_server: ServerProcess, community_npu_server: ServerProcess) -> str:
    """The target of a server on that host."""
    return (npu_server if variant == "builtin" else community_npu_server).target


def report_of(folder: Path, target: str, *options: str) -> dict[str, Any]:
    """The JSON report of a run."""
    path = folder / "report.json"
    result = command("conform", target, "--json", str(path), *options)
    assert isinstance(result.exception, SystemExit | None), result.exception
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def failed(report: dict[str, Any]) -> set[str]:
    return {each["case"] for each in report["outcomes"] if each["status"] == "failed"}


def judged(report: dict[str, Any]) -> set[str]:
    """The variants whose cases were run, of operators that have variants."""
    run = (each for each in report["outcomes"] if each["status"] != "skipped")
    return {each["variant"] for each in run} - {""}


@pytest.mark.more
def test_the_variant_of_the_host_passes_by_each_profile(
    tmp_path: Path, host: str, variant: str
) -> None:
    for words, profile in (((), "cann-standard"), (("--profile=cpu-strict",), "cpu-strict")):
        report = report_of(tmp_path, host, "--quick", "--operator=KlDivTargetBackward", *words)
        assert (report["profile"], failed(report)) == (profile, set())
        assert judged(report) == {variant}


@pytest.mark.long
def test_a_quick_run_passes(tmp_path: Path, host: str, variant: str) -> None:
    report = report_of(tmp_path, host, "--quick")
    assert len(report["outcomes"]) > 3000
    assert failed(report) == NINE_DIMENSIONS
    assert judged(report) == {variant}


@pytest.mark.long
@pytest.mark.parametrize("profile", ["cann-standard", "cpu-strict"])
def test_a_full_run_passes(tmp_path: Path, host: str, profile: str) -> None:
    report = report_of(tmp_path, host, f"--profile={profile}")
    assert len(report["outcomes"]) > 14_000
    assert failed(report) == NINE_DIMENSIONS
