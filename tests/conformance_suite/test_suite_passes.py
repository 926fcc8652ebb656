"""The suite on what there is: this process, a server over a socket, simulated NPUs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each

from npucall.products import DEFAULT_SOC
from npucall_client import Client
from npucall_client.testing import ServerProcess
from npucall_conformance.running.subject import Subject, open_subject
from npucall_conformance.statements import statements

from .servers import command, failed, local, run, soc_with

TITLES = [statement.title for statement in statements()]


def passes_quickly(server: Subject, title: str, blocks: tuple[str, ...] = ()) -> None:
    """A quick run passes, and skips next to nothing but what other products alone have or take."""
    outcomes = run(server, operators=(title,), blocks=blocks, quick=True)
    assert outcomes
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    of_others = re.compile("for |.* takes no ")
    unexplained = [outcome for outcome in skipped if not of_others.match(outcome.problems[0])]
    assert {outcome.block for outcome in unexplained} <= {"invalid", "documents"}


@each("title", TITLES[5::60])
def test_a_quick_run_passes(title: str) -> None:
    """Of every operator ``tests/operators`` tries the blocks that are about it."""
    passes_quickly(local(soc_with(title)), title)


@pytest.mark.more
@each("title", TITLES[::3])
def test_the_other_blocks_pass(title: str) -> None:
    """Of every operator a full run tries them, by make test-long."""
    blocks = ("invalid", "determinism", "size", "large", "paths")
    passes_quickly(local(soc_with(title)), title, blocks)


@pytest.mark.more
@each("title", TITLES[1::6])
def test_a_crowd_is_answered_alike(title: str) -> None:
    passes_quickly(local(soc_with(title)), title, ("crowd",))


@pytest.mark.more
@pytest.mark.parametrize("client", ["server", "npu"], indirect=True)
def test_a_quick_run_over_a_server_passes(client: Client) -> None:
    there = [
        t for t in TITLES if "." not in t and soc_with(t) == DEFAULT_SOC
    ]  # hosts have one variant
    for title in there[3::24]:
        passes_quickly(open_subject(client, "here"), title)


@pytest.mark.long
@pytest.mark.parametrize("client", ["local", "server"], indirect=True)
@pytest.mark.parametrize("title", TITLES)
def test_a_full_run_passes(client: Client, title: str) -> None:
    """On an NPU the command makes it, below."""
    outcomes = run(open_subject(client, "here"), operators=(title,))
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []


# --- Hosts with an NPU, by the command ------------------------------------------------------------


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
def test_a_full_run_on_a_host_passes(tmp_path: Path, host: str, variant: str, profile: str) -> None:
    """By either profile once: what is right by the strict one is right by the other too."""
    report = report_of(tmp_path, host, f"--profile={profile}")
    assert len(report["outcomes"]) > 14_000
    assert wrong_in(report) == set()
    assert variants_in(report) == {variant}
