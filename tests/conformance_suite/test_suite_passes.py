"""The suite on what there is: this process, and a server over a socket."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from servers import failed, run
from tests.more import TURNS

from npucall_client.conformance.running.judged import judged
from npucall_client.conformance.statements import statements

if TYPE_CHECKING:
    from npucall_client import Client
    from npucall_client.conformance.reporting.report import Outcome

TITLES = [statement.title for statement in statements()]
# Every 16th operator here, every 48th over a socket, and others on an NPU; then the next ones.
CASES = [
    pytest.param(device, title, marks=TURNS[min((number - first) % turns, 2)])
    for device, first, turns in (("local", 0, 16), ("server", 0, 48), ("npu", 12, 48))
    for number, title in enumerate(TITLES)
]
each = pytest.mark.parametrize(("client", "title"), CASES, indirect=["client"])


@cache
def quick_run(client: Client, title: str) -> list[Outcome]:
    return run(judged(client, "here"), operators=(title,), quick=True)


@each
def test_a_quick_run_passes(client: Client, title: str) -> None:
    outcomes = quick_run(client, title)
    assert outcomes
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []


@pytest.mark.long
@pytest.mark.parametrize("title", TITLES)
def test_a_full_run_passes(client: Client, title: str) -> None:
    outcomes = run(judged(client, "here"), operators=(title,))
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []


@each
def test_a_quick_run_skips_next_to_nothing(client: Client, title: str) -> None:
    outcomes = quick_run(client, title)
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    unexplained = [o for o in skipped if not o.problems[0].startswith("for ")]  # other products
    assert {outcome.block for outcome in unexplained} <= {"invalid", "documents"}
