"""``npucall conform`` on servers on a simulated NPU, one for each variant that hosts have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from npucall_client.conformance import command

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
VARIANTS = {"builtin": "npu_server", "community": "community_npu_server"}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    """The variant that a host has."""
    name: str = request.param
    return name


@pytest.fixture
def host(request: pytest.FixtureRequest, variant: str) -> str:
    """The target of a server on that host."""
    server: ServerProcess = request.getfixturevalue(VARIANTS[variant])
    return server.target


def report_of(folder: Path, target: str, *options: str) -> dict[str, Any]:
    """The JSON report of a run."""
    app, path = typer.Typer(), folder / "report.json"
    app.command("conform")(command.conform)
    CliRunner().invoke(app, [target, "--json", str(path), *options], catch_exceptions=False)
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def failed(report: dict[str, Any]) -> set[str]:
    return {each["case"] for each in report["outcomes"] if each["status"] == "failed"}


def judged(report: dict[str, Any]) -> set[str]:
    """The variants whose cases were run, of operators that have variants."""
    run = (each for each in report["outcomes"] if each["status"] != "skipped")
    return {each["variant"] for each in run} - {""}


@pytest.mark.long
def test_a_quick_run_on_a_host_with_a_custom_package_passes(
    tmp_path: Path, community_npu_server: ServerProcess
) -> None:
    report = report_of(tmp_path, community_npu_server.target, "--quick")
    assert len(report["outcomes"]) > 3000
    assert failed(report) == NINE_DIMENSIONS
    assert judged(report) == {"community"}


@pytest.mark.parametrize(
    ("options", "profile"), [((), "cann-standard"), (("--profile=cpu-strict",), "cpu-strict")]
)
def test_the_variant_of_the_host_passes_by_each_profile(
    tmp_path: Path, host: str, variant: str, options: tuple[str, ...], profile: str
) -> None:
    operator = ("--quick", "--operator=KlDivTargetBackward")
    report = report_of(tmp_path, host, *operator, *options)
    assert (report["profile"], failed(report)) == (profile, set())
    assert judged(report) == {variant}


@pytest.mark.long
@pytest.mark.parametrize("profile", ["cann-standard", "cpu-strict"])
def test_a_full_run_passes(tmp_path: Path, host: str, profile: str) -> None:
    report = report_of(tmp_path, host, f"--profile={profile}")
    assert len(report["outcomes"]) > 14_000
    assert failed(report) == NINE_DIMENSIONS
