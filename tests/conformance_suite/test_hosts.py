"""The suite on hosts with a simulated NPU, by the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from npucall_client.testing import ServerProcess

from .servers import TITLES, command


@pytest.fixture(params=["builtin", "community"])
def variant(request: pytest.FixtureRequest) -> str:
    """The variant that a host has."""
    return str(request.param)


@pytest.fixture
def host(variant: str, npu_server: ServerProcess, community_npu_server: ServerProcess) -> str:
    """The target of a server on that host."""
    return (npu_server if variant == "builtin" else community_npu_server).target


def report_of(folder: Path, target: str, *options: str) -> dict[str, Any]:
    """The JSON report of a run."""
    path = folder / "report.json"
    result = command("conform", target, "--json", str(path), *options)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return dict(json.loads(path.read_text()))


def wrong_in(report: dict[str, Any]) -> set[str]:
    return {each["case"] for each in report["outcomes"] if each["status"] == "failed"}


def variants_in(report: dict[str, Any]) -> set[str]:
    """The variants whose cases were run, of operators that have variants."""
    run = (each for each in report["outcomes"] if each["status"] != "skipped")
    return {each["variant"] for each in run} - {""}


@pytest.mark.more
def test_the_hosts_variant_passes_by_each_profile(tmp_path: Path, host: str, variant: str) -> None:
    """Of HardswishBackward it has the one without a variant."""
    both = "--operator=KlDivTargetBackward", "--operator=HardswishBackward"
    for words, profile in (((), "cann-standard"), (("--profile=cpu-strict",), "cpu-strict")):
        report = report_of(tmp_path, host, "--quick", *both, *words)
        assert (report["profile"], wrong_in(report)) == (profile, set())
        assert variants_in(report) == {variant}


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "profile"), [("builtin", "cpu-strict"), ("community", "cann-standard")]
)
def test_a_host_passes_in_full(tmp_path: Path, host: str, variant: str, profile: str) -> None:
    """Half of the operators on either host: these differ in the operator that has variants."""
    half = TITLES[::2] if variant == "builtin" else TITLES[1::2]
    chosen = [f"--operator={title}" for title in ("KlDivTargetBackward", *half)]
    report = report_of(tmp_path, host, f"--profile={profile}", *chosen)
    assert len(report["outcomes"]) > 14_000
    assert wrong_in(report) == set()
    assert variants_in(report) == {variant}
