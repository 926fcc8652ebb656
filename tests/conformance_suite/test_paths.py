"""The block ``paths``: every way to a server, and the faults that only some of them show."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each

import npucall_client
from npucall.wire.replies import Timings
from npucall_conformance import golden
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.paths import PATHS, PLAN, PROGRAM_PLAN, UNREAD
from npucall_conformance.running.paths.path import of_timings
from npucall_conformance.running.subject import open_subject

from . import fault_table
from .faults import Fault
from .servers import failed, run
from .serving import serving

ANY, FAULTS = "aclnnL1LossBackward", fault_table.PATHS
ALL = {path.name for path in PATHS} | {PLAN, PROGRAM_PLAN}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(shared_memory=tmp_path_factory.mktemp("p") / "side") as target:
        yield target


def outcomes_of(target: str, operator: str = ANY, **filters: Any) -> list[CaseOutcome]:
    filters = {"blocks": ("paths",), "quick": True, **filters}
    with npucall_client.connect(target) as client:
        return run(open_subject(client, target), operators=(operator,), **filters)


def reporting(outcomes: list[CaseOutcome]) -> set[str]:
    """The paths that problems begin with."""
    problems = (problem for outcome in outcomes for problem in outcome.problems)
    return {problem.partition(":")[0].partition(",")[0] for problem in problems}


def is_reported_by_its_paths(target: str, fault: Fault) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault.apply(patch)
        found = reporting(failed(outcomes_of(target, fault.operator)))
    assert fault.seen <= found
    assert "" not in found


def test_a_right_server_passes_by_every_path(target: str) -> None:
    outcomes = outcomes_of(target)
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    assert {path for outcome in outcomes for path in outcome.paths} == ALL


@pytest.mark.more
def test_a_right_server_passes_the_whole_block(target: str) -> None:
    assert [(o.case, *o.problems) for o in failed(outcomes_of(target, quick=False))] == []


def test_inputs_that_nobody_reads_go_both_ways(target: str) -> None:
    outcomes = outcomes_of(target, "aclnnKlDivBackward")
    assert failed(outcomes) == []
    assert all(UNREAD in outcome.paths for outcome in outcomes)


@each("fault", FAULTS[::4])
def test_a_fault_is_reported_by_its_paths(target: str, fault: Fault) -> None:
    is_reported_by_its_paths(target, fault)


@pytest.mark.more
@each("fault", FAULTS)
def test_a_fault_is_reported_by_its_paths_and_no_other_block(target: str, fault: Fault) -> None:
    is_reported_by_its_paths(target, fault)
    with pytest.MonkeyPatch.context() as patch:
        fault.apply(patch)
        assert failed(outcomes_of(target, fault.operator, blocks=("grid", "invalid"))) == []


def test_a_bundle_of_a_path_fails_again_until_the_path_is_right(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Observation] = []
    with npucall_client.connect(target) as client, closing(open_subject(client, target)) as server:
        with monkeypatch.context() as patched:
            next(fault for fault in FAULTS if "stream" in fault.seen).apply(patched)
            run(server, operators=(ANY,), blocks=("paths",), quick=True, on_failure=found.append)
            place = golden.save(tmp_path, Report("cpu-strict", 0, server.server), found[0])
            again = golden.replay(place, server)
            assert again.problems == found[0].outcome.problems
        assert golden.replay(place, server).status == "passed"


@each(
    ("settings", "missing"),
    [
        ({"max_streams": 0}, {"stream", "chunks", "pipeline"}),
        ({"handle_memory": 0}, {"handle", "kept-output", "program"}),
    ],
)
def test_a_server_without_a_usual_path_fails(settings: dict[str, Any], missing: set[str]) -> None:
    with serving(**settings) as target:
        assert missing <= reporting(failed(outcomes_of(target)))
        allowed = outcomes_of(target, allow_missing=True)
    assert failed(allowed) == []
    assert missing <= allowed[0].paths_skipped.keys()
    assert allowed[0].paths_skipped["shared-memory"] == "the server shares no memory"


def test_in_this_process_nothing_travels() -> None:
    (first, *_) = outcomes_of("local:")
    assert set(first.paths) == {
        "pipeline", "handle", "kept-output", "program", PLAN, PROGRAM_PLAN,
    }  # fmt: skip
    assert first.paths_skipped["execute"] == "nothing travels here"


@each(
    ("times", "wrong"),
    [
        (Timings(run_ns=30, plan_ns=60, copy_in_ns=65), False),  # an NPU copies in while it plans
        (Timings(run_ns=30, plan_ns=60, copy_in_ns=75), True),
        (Timings(run_ns=45, plan_ns=60, queue_ns=1), True),
        (Timings(run_ns=0, plan_ns=60), True),
    ],
)
def test_times_of_parts_fit_into_the_time_of_the_call(times: Timings, wrong: bool) -> None:
    assert bool(of_timings(times, 100, computed=True)) == wrong


def test_of_a_pool_one_member_is_judged_and_named(target: str) -> None:
    """Were there two, answers would come from another instance."""
    with serving() as other:
        pool = f"pool:{target},{other}"
        with npucall_client.connect(pool) as client:
            server = open_subject(client, pool)
            outcomes = run(server, operators=(ANY,), quick=True, blocks=("grid", "paths"))
        named = {f"{pool}, member {each}": each for each in (target, other)}
        with npucall_client.connect(named[server.server.target]) as member:
            assert member.server_info().server.instance == server.server.instance
    assert failed(outcomes) == []
    assert {path for outcome in outcomes for path in outcome.paths} >= {"pipeline", PLAN}
